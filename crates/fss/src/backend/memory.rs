//! What an evaluation takes of a backend's own memory, before it does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;

use super::Backend;

/// A backend that keeps lengths alone, and what it counts.
pub struct Rehearsal {
    /// Takes the same calls as the backend that it stands for, and computes nothing.
    pub backend: Arc<dyn Backend>,
    /// Bytes that the other would hold.
    pub memory: MemoryCount,
}

/// Memory of a backend that is set aside for somebody, until this goes.
pub trait Promise: Send {
    /// Sets aside so many bytes instead of those before, or leaves them and fails.
    fn resize(&mut self, bytes: u64) -> Result<()>;

    /// Bytes that may be set aside for all.
    fn limit(&self) -> u64;
}

/// Bytes that are held, and were at most. Clones count together.
#[derive(Clone, Default)]
pub struct MemoryCount(Arc<Mutex<Count>>);

#[derive(Default)]
struct Count {
    held: u64,
    peak: u64,
}

impl MemoryCount {
    fn lock(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes held now.
    pub fn held(&self) -> u64 {
        self.lock().held
    }

    /// The most that was held at once since [`MemoryCount::reset_peak`].
    pub fn peak(&self) -> u64 {
        self.lock().peak
    }

    /// Forgets what was held before.
    pub fn reset_peak(&self) {
        let mut count = self.lock();
        count.peak = count.held;
    }

    /// Holds so many bytes more, until the room goes.
    pub fn take(&self, bytes: u64) -> CountedRoom {
        let mut room = CountedRoom { memory: self.clone(), bytes: 0 };
        room.resize(bytes);
        room
    }
}

/// Bytes that are counted as held.
pub struct CountedRoom {
    memory: MemoryCount,
    bytes: u64,
}

impl CountedRoom {
    /// Holds so many instead.
    pub fn resize(&mut self, bytes: u64) {
        let mut count = self.memory.lock();
        count.held = count.held - self.bytes + bytes;
        count.peak = count.peak.max(count.held);
        self.bytes = bytes;
    }
}

impl Drop for CountedRoom {
    fn drop(&mut self) {
        self.resize(0);
    }
}
