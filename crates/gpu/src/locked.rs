//! A mutex that a panic elsewhere does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Data behind a mutex whose invariants hold after every statement: a thread that panicked while it held the
/// lock has left nothing half done, and the others go on.
#[derive(Debug, Default)]
pub struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    /// Puts `data` behind a lock.
    pub const fn new(data: T) -> Self {
        Self(Mutex::new(data))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data, which nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
