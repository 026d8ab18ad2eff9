//! What a stream has queued, and what it knows of others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::Result;
use crate::locked::Locked;

/// A queue whose work can be ordered after another's.
pub(crate) trait Ordered: Clone {
    /// Its own time and what it knows.
    fn line(&self) -> &Arc<Line>;
    /// What is queued from now on runs after all that `other` has queued so far.
    fn run_after(&self, other: &Self) -> Result<()>;
}

/// The time of one stream, which counts its marks: work that was queued at time `t` is before the mark that
/// ended `t`.
pub(crate) struct Line {
    number: u64,
    time: AtomicU64,
    /// What was queued till then is complete.
    done: AtomicU64,
    /// What was queued on other streams and is before everything that this one queues from now on.
    known: Locked<Clock>,
}

impl Line {
    pub(crate) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            time: AtomicU64::new(1),
            done: AtomicU64::new(0),
            known: Locked::default(),
        })
    }

    /// Tells it from every other of the process, and is never 0.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The time of work that has just been queued. Asked for *after* queueing it: a mark that another thread
    /// makes meanwhile may come before that work.
    pub(crate) fn now(&self) -> u64 {
        self.time.load(Ordering::Acquire)
    }

    /// All that is before a mark of this stream. Made *before* the mark is queued, so that it claims no more
    /// than that.
    pub(crate) fn mark(self: &Arc<Self>) -> Clock {
        let time = self.time.fetch_add(1, Ordering::AcqRel);
        let mut clock = self.known.lock().clone();
        clock.advance(self.number, &Arc::downgrade(self), time);
        clock
    }

    /// This stream's work comes after a mark. Said *after* the wait was queued.
    pub(crate) fn learn(&self, clock: &Clock) {
        let mut known = self.known.lock();
        for (number, line, time) in clock.entries.iter().filter(|(number, ..)| *number != self.number) {
            known.advance(*number, line, *time);
        }
    }

    /// Whether work that `other` queued at `time` is before what this stream queues from now on.
    pub(crate) fn follows(&self, other: &Self, time: u64) -> bool {
        self.number == other.number
            || other.done.load(Ordering::Acquire) >= time
            || self.known.lock().time_of(other.number) >= time
    }
}

/// Points of streams: everything up to them is before whatever has this clock.
#[derive(Clone, Default)]
pub(crate) struct Clock {
    entries: Vec<(u64, Weak<Line>, u64)>,
}

/// Entries from which on those of streams that are gone are looked for.
const MANY: usize = 16;

impl Clock {
    /// All of it has happened.
    pub(crate) fn complete(&self) {
        for (_, line, time) in &self.entries {
            if let Some(line) = line.upgrade() {
                line.done.fetch_max(*time, Ordering::AcqRel);
            }
        }
    }

    fn time_of(&self, number: u64) -> u64 {
        self.entries.iter().find(|entry| entry.0 == number).map_or(0, |entry| entry.2)
    }

    fn advance(&mut self, number: u64, line: &Weak<Line>, time: u64) {
        match self.entries.iter_mut().find(|entry| entry.0 == number) {
            Some(entry) => entry.2 = entry.2.max(time),
            None => {
                if self.entries.len() >= MANY {
                    // No memory was used last by a stream that is gone: whoever tracks a use holds its
                    // stream.
                    self.entries.retain(|(_, line, _)| line.strong_count() > 0);
                }
                self.entries.push((number, line.clone(), time));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_covers_what_was_queued_before_it_and_no_more() {
        let (a, b) = (Line::new(), Line::new());
        let before = a.now();
        let mark = a.mark();
        let after = a.now();
        assert!(!b.follows(&a, before));
        b.learn(&mark);
        assert!(b.follows(&a, before) && !b.follows(&a, after));
        assert!(a.follows(&a, after), "a stream is in its own order");
    }

    #[test]
    fn knowledge_is_handed_on() {
        let (a, b, c) = (Line::new(), Line::new(), Line::new());
        let time = a.now();
        b.learn(&a.mark());
        c.learn(&b.mark());
        assert!(c.follows(&a, time));
        let mark = a.mark();
        assert!(!c.follows(&a, a.now() - 1));
        mark.complete();
        assert!(c.follows(&a, a.now() - 1) && !c.follows(&a, a.now()));
    }

    #[test]
    fn clocks_forget_streams_that_are_gone() {
        let stays = Line::new();
        let a = Line::new();
        stays.learn(&a.mark());
        for _ in 0..1000 {
            stays.learn(&Line::new().mark());
        }
        assert!(stays.known.lock().entries.len() <= MANY);
        assert!(stays.follows(&a, 1), "one that is there is not forgotten");
    }
}
