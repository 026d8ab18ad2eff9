//! Who knows what has happened: vector clocks over the agents of a block.
//!
//! An agent is a thread, or something asynchronous that finishes in order: the phases of an mbarrier, the copy groups of
//! a thread, the products of a warp. An access by agent `a` at its time `t` happened before a thread's next access if
//! the thread's clock for `a` is at least `t`.

use std::collections::BTreeMap;
use std::rc::Rc;

/// An agent's number within its block; threads come first.
pub(super) type Slot = u16;

/// One time per agent. Copies are cheap until one of them changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Clocks(Rc<Vec<u32>>);

impl Clocks {
    pub(super) fn get(&self, slot: Slot) -> u32 {
        self.0.get(usize::from(slot)).copied().unwrap_or(0)
    }

    pub(super) fn raise(&mut self, slot: Slot, time: u32) {
        if self.get(slot) >= time {
            return;
        }
        let times = Rc::make_mut(&mut self.0);
        if times.len() <= usize::from(slot) {
            times.resize(usize::from(slot) + 1, 0);
        }
        times[usize::from(slot)] = time;
    }

    pub(super) fn join(&mut self, other: &Clocks) {
        if Rc::ptr_eq(&self.0, &other.0) || other.0.is_empty() {
            return;
        }
        if self.0.is_empty() {
            self.0 = other.0.clone();
            return;
        }
        let times = Rc::make_mut(&mut self.0);
        if times.len() < other.0.len() {
            times.resize(other.0.len(), 0);
        }
        for (time, &other) in times.iter_mut().zip(other.0.iter()) {
            *time = (*time).max(other);
        }
    }

    fn is(&self, other: &Clocks) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// What is known of other blocks, by their number in the launch.
pub(super) type Foreign = Option<Rc<BTreeMap<u32, Clocks>>>;

/// All that a thread knows to have happened.
#[derive(Debug, Clone, Default)]
pub(super) struct Knowledge {
    /// Accesses of this block's agents.
    pub(super) seen: Clocks,
    /// Ordinary writes that the asynchronous proxy (bulk copies, wgmma) may rely on: fenced by their writer.
    pub(super) proxied: Clocks,
    /// Accesses of other blocks' agents.
    pub(super) foreign: Foreign,
}

impl Knowledge {
    pub(super) fn join(&mut self, other: &Knowledge) {
        self.seen.join(&other.seen);
        self.proxied.join(&other.proxied);
        join_foreign(&mut self.foreign, &other.foreign);
    }
}

/// What atomics carry from fence to fence, by the scope of the fences: a narrow one serves the block alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Passage {
    /// Seen by the whole device.
    pub(super) device: Foreign,
    /// Seen by the block with that number.
    pub(super) block: Foreign,
}

impl Passage {
    pub(super) fn join(&mut self, other: &Passage) {
        join_foreign(&mut self.device, &other.device);
        join_foreign(&mut self.block, &other.block);
    }
}

pub(super) fn join_foreign(into: &mut Foreign, other: &Foreign) {
    let Some(other) = other else { return };
    match into {
        None => *into = Some(other.clone()),
        Some(mine) if Rc::ptr_eq(mine, other) => {}
        Some(mine) => {
            let mine = Rc::make_mut(mine);
            for (&block, clocks) in other.iter() {
                mine.entry(block).or_default().join(clocks);
            }
        }
    }
}

/// The joined knowledge of threads that arrive one after another. Threads of a block mostly share one set of clocks, so
/// a set that was joined just before is not joined again.
#[derive(Debug, Clone, Default)]
pub(super) struct Meeting {
    joined: Knowledge,
    last: Knowledge,
}

impl Meeting {
    /// Adds a thread that knows `knowledge` and is itself at `(slot, time)`.
    pub(super) fn add(&mut self, knowledge: &Knowledge, slot: Slot, time: u32) {
        if !self.last.seen.is(&knowledge.seen) {
            self.joined.seen.join(&knowledge.seen);
        }
        if !self.last.proxied.is(&knowledge.proxied) {
            self.joined.proxied.join(&knowledge.proxied);
        }
        join_foreign(&mut self.joined.foreign, &knowledge.foreign);
        self.last = knowledge.clone();
        self.joined.seen.raise(slot, time);
    }

    pub(super) fn knowledge(&self) -> &Knowledge {
        &self.joined
    }

    pub(super) fn raise(&mut self, slot: Slot, time: u32) {
        self.joined.seen.raise(slot, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meeting_tells_everyone_what_each_did() {
        let mut meeting = Meeting::default();
        let shared = Knowledge::default();
        for slot in 0..8 {
            meeting.add(&shared, slot, u32::from(slot) + 1);
        }
        for slot in 0..8 {
            assert_eq!(meeting.knowledge().seen.get(slot), u32::from(slot) + 1);
        }
        assert_eq!(meeting.knowledge().seen.get(8), 0);
    }

    #[test]
    fn join_takes_the_later_of_both() {
        let (mut a, mut b) = (Clocks::default(), Clocks::default());
        a.raise(0, 5);
        b.raise(0, 3);
        b.raise(4, 9);
        a.join(&b);
        assert_eq!([a.get(0), a.get(1), a.get(4), a.get(100)], [5, 0, 9, 0]);
        assert_eq!(b.get(0), 3);
    }
}
