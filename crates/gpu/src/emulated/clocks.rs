//! Who knows what has happened: vector clocks over the agents of a block.
//!
//! An agent is a thread, or something asynchronous that finishes in order: the phases of an mbarrier, the
//! copy groups of a thread, the products of a warp. An access by agent `a` at its time `t` happened before a
//! thread's next access if the thread's clock for `a` is at least `t`.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::abi::Scope;

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

/// Where memory lies, as the proxy fence tells it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    /// Shared memory of the writer's own block.
    Shared,
    /// Shared memory of another block of the writer's cluster.
    Remote,
    Global,
}

/// What is known of the agents of one block.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Their accesses.
    pub(super) seen: Clocks,
    /// Ordinary writes that the asynchronous proxy (bulk copies, wgmma) may rely on, by [`Space`]: fenced by
    /// their writer.
    proxied: [Clocks; 3],
}

impl Known {
    pub(super) fn proxied(&self, space: Space) -> &Clocks {
        &self.proxied[space as usize]
    }

    pub(super) fn proxied_mut(&mut self, space: Space) -> &mut Clocks {
        &mut self.proxied[space as usize]
    }

    pub(super) fn join(&mut self, other: &Known) {
        self.seen.join(&other.seen);
        for (mine, others) in self.proxied.iter_mut().zip(&other.proxied) {
            mine.join(others);
        }
    }

    fn is(&self, other: &Known) -> bool {
        let same = |(mine, others): (&Clocks, &Clocks)| mine.is(others);
        self.seen.is(&other.seen) && self.proxied.iter().zip(&other.proxied).all(same)
    }
}

/// What is known of several blocks, by their number in the launch.
pub(super) type Tidings = Option<Rc<BTreeMap<u32, Known>>>;

/// All that a thread knows to have happened.
#[derive(Debug, Clone, Default)]
pub(super) struct Knowledge {
    /// Of its own block.
    pub(super) own: Known,
    /// Of other blocks.
    pub(super) foreign: Tidings,
}

impl Knowledge {
    pub(super) fn join(&mut self, other: &Knowledge) {
        self.own.join(&other.own);
        join(&mut self.foreign, &other.foreign);
    }

    /// What a thread of block `number` that knows this can tell any other thread.
    pub(super) fn told_by(&self, number: u32) -> Tidings {
        let mut all = self.foreign.as_deref().cloned().unwrap_or_default();
        all.insert(number, self.own.clone());
        Some(Rc::new(all))
    }

    /// A thread of block `number` hears of it.
    pub(super) fn hear(&mut self, tidings: &Tidings, number: u32) {
        let Some(own) = tidings.as_ref().and_then(|tidings| tidings.get(&number)) else {
            join(&mut self.foreign, tidings);
            return;
        };
        self.own.join(own);
        let others = tidings.iter().flat_map(|tidings| tidings.iter());
        let others: BTreeMap<u32, Known> = others
            .filter(|(block, _)| **block != number)
            .map(|(block, known)| (*block, known.clone()))
            .collect();
        if !others.is_empty() {
            join(&mut self.foreign, &Some(Rc::new(others)));
        }
    }

    /// What is known of block `block`, to a thread of block `mine`.
    pub(super) fn of(&self, block: u32, mine: u32) -> Option<&Known> {
        if block == mine { Some(&self.own) } else { self.foreign.as_ref()?.get(&block) }
    }
}

/// What an atomic carries from a release to an acquire, by the scope of the two: a narrow one serves few
/// threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Passage {
    /// To the whole device, and the system.
    device: Tidings,
    /// To the cluster with that number.
    clusters: BTreeMap<u32, Tidings>,
    /// To the block with that number.
    blocks: BTreeMap<u32, Tidings>,
}

/// Who a thread is to others: its block and its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) block: u32,
    pub(super) cluster: u32,
}

impl Passage {
    /// What a thread at `from` releases in `scope`.
    pub(super) fn of(tidings: &Tidings, from: Address, scope: Scope) -> Self {
        let mut passage = Self::default();
        passage.blocks.insert(from.block, tidings.clone());
        if scope != Scope::Block {
            passage.clusters.insert(from.cluster, tidings.clone());
        }
        if matches!(scope, Scope::Device | Scope::System) {
            passage.device.clone_from(tidings);
        }
        passage
    }

    /// Adds as much of another passage as an access of that scope carries.
    pub(super) fn join(&mut self, other: &Passage, scope: Scope) {
        for (block, tidings) in &other.blocks {
            join(self.blocks.entry(*block).or_default(), tidings);
        }
        if scope != Scope::Block {
            for (cluster, tidings) in &other.clusters {
                join(self.clusters.entry(*cluster).or_default(), tidings);
            }
        }
        if matches!(scope, Scope::Device | Scope::System) {
            join(&mut self.device, &other.device);
        }
    }

    /// What a thread at `to` acquires in `scope`.
    pub(super) fn for_thread(&self, to: Address, scope: Scope) -> Tidings {
        let mut tidings = self.blocks.get(&to.block).cloned().flatten();
        if scope != Scope::Block {
            join(&mut tidings, &self.clusters.get(&to.cluster).cloned().flatten());
        }
        if matches!(scope, Scope::Device | Scope::System) {
            join(&mut tidings, &self.device);
        }
        tidings
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

pub(super) fn join(into: &mut Tidings, other: &Tidings) {
    let Some(other) = other else { return };
    match into {
        None => *into = Some(other.clone()),
        Some(mine) if Rc::ptr_eq(mine, other) => {}
        Some(mine) => {
            let mine = Rc::make_mut(mine);
            for (&block, known) in other.iter() {
                mine.entry(block).or_default().join(known);
            }
        }
    }
}

/// The joined knowledge of threads that arrive one after another. Threads of a block mostly share one set of
/// clocks, so a set that was joined just before is not joined again.
#[derive(Debug, Clone, Default)]
pub(super) struct Meeting {
    joined: Knowledge,
    last: Knowledge,
}

impl Meeting {
    /// Adds a thread that knows `knowledge` and is itself at `(slot, time)`.
    pub(super) fn add(&mut self, knowledge: &Knowledge, slot: Slot, time: u32) {
        if !self.last.own.is(&knowledge.own) {
            self.joined.own.join(&knowledge.own);
        }
        join(&mut self.joined.foreign, &knowledge.foreign);
        self.last = knowledge.clone();
        self.joined.own.seen.raise(slot, time);
    }

    pub(super) fn knowledge(&self) -> &Knowledge {
        &self.joined
    }

    pub(super) fn raise(&mut self, slot: Slot, time: u32) {
        self.joined.own.seen.raise(slot, time);
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
            assert_eq!(meeting.knowledge().own.seen.get(slot), u32::from(slot) + 1);
        }
        assert_eq!(meeting.knowledge().own.seen.get(8), 0);
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
