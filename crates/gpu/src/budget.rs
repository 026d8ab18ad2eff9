//! A byte budget: how much of a device this program allows itself.

use crate::locked::Locked;
use crate::{Error, Result};

/// Bytes a device may hold in buffers, and how many it holds. Asking past it is an error, never an abort.
#[derive(Debug)]
pub struct Budget {
    state: Locked<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    limit: u64,
    held: u64,
    peak: u64,
    promised: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { state: Locked::new(State { limit, held: 0, peak: 0, promised: 0 }) }
    }

    /// The most that may be held.
    pub fn limit(&self) -> u64 {
        self.lock().limit
    }

    /// Sets the most that may be held. What is held already stays.
    pub fn set_limit(&self, bytes: u64) {
        self.lock().limit = bytes;
    }

    /// Bytes held now.
    pub fn held(&self) -> u64 {
        self.lock().held
    }

    /// The most that was held at once, ever or since [`Budget::reset_peak`].
    pub fn peak(&self) -> u64 {
        self.lock().peak
    }

    /// Forgets what was held before.
    pub fn reset_peak(&self) {
        let mut state = self.lock();
        state.peak = state.held;
    }

    /// Bytes that may still be asked for.
    pub fn free(&self) -> u64 {
        let state = self.lock();
        state.limit.saturating_sub(state.held)
    }

    /// Bytes that are set aside by [`Promise`](crate::Promise)s, held or not.
    pub fn promised(&self) -> u64 {
        self.lock().promised
    }

    /// Sets aside `to` bytes instead of `from`, if all that is set aside stays below the limit.
    pub(crate) fn promise(&self, from: u64, to: u64) -> Result<()> {
        let mut state = self.lock();
        let others = state.promised.saturating_sub(from);
        let free = state.limit.saturating_sub(others);
        if to > free && to > from {
            return Err(Error::OutOfMemory { asked: to, held: others, free, limit: state.limit });
        }
        state.promised = others + to;
        Ok(())
    }

    pub(crate) fn reserve(&self, bytes: u64) -> Result<()> {
        let mut state = self.lock();
        let free = state.limit.saturating_sub(state.held);
        if bytes > free {
            return Err(Error::OutOfMemory { asked: bytes, held: state.held, free, limit: state.limit });
        }
        state.held += bytes;
        state.peak = state.peak.max(state.held);
        Ok(())
    }

    pub(crate) fn release(&self, bytes: u64) {
        let mut state = self.lock();
        state.held = state.held.saturating_sub(bytes);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_says_asked_held_free_and_leaves_room_for_the_next() {
        let budget = Budget::new(100);
        budget.reserve(60).unwrap();
        let refused = budget.reserve(50).unwrap_err();
        assert!(
            matches!(refused, Error::OutOfMemory { asked: 50, held: 60, free: 40, limit: 100 }),
            "{refused}"
        );
        budget.reserve(40).unwrap();
        budget.release(100);
        assert_eq!((budget.held(), budget.peak(), budget.free()), (0, 100, 100));
        budget.reserve(7).unwrap();
        budget.reset_peak();
        assert_eq!(budget.peak(), 7);
    }

    #[test]
    fn an_absurd_request_does_not_overflow() {
        let budget = Budget::new(100);
        budget.reserve(1).unwrap();
        assert!(budget.reserve(u64::MAX).is_err());
        assert_eq!(budget.held(), 1);
    }
}
