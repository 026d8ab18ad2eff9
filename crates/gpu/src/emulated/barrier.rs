//! Barriers of threads: of a block, named, of a cluster, and of the whole grid.

use super::access::{Place, Touch};
use super::block::{CallSite, Wait};
use super::clocks::{Meeting, Slot, Tidings, join};
use super::cluster::Reach;
use super::launch::{Flow, Launch, Step, Stop};
use super::operations::{read_word, write_word};
use super::shadow::Manner;
use crate::types::FaultKind;

/// `sync_threads` (number 0) or one of the fifteen named barriers.
#[derive(Default)]
pub(super) struct NamedBarrier {
    expected: u32,
    arrived: u32,
    waiters: Vec<usize>,
    meeting: Meeting,
    site: Option<CallSite>,
}

impl NamedBarrier {
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiters.is_empty()
    }

    pub(super) fn site(&self) -> CallSite {
        self.site.unwrap_or(CallSite::NOWHERE)
    }
}

/// All threads of a cluster; to arrive and to wait are two calls.
#[derive(Default)]
pub(super) struct ClusterBarrier {
    arrived: u64,
    exited: u64,
    /// Threads that arrived in this round and have ended since.
    leaving: u64,
    rounds: u32,
    waiters: Vec<(usize, usize)>,
    /// What those that arrived have told, and what of it the last round had.
    told: Tidings,
    ended: Tidings,
}

/// All threads of all blocks of a cooperative launch.
#[derive(Default)]
pub(super) struct GridBarrier {
    arrived: u64,
    exited: u64,
    waiters: Vec<(usize, usize)>,
    /// The word of the round.
    word: usize,
}

impl Launch {
    /// `sync_threads` when `id` is 0; otherwise `threads` threads meet at the named barrier.
    pub(super) fn barrier(&mut self, id: u32, threads: u32, wait: bool, site: CallSite) -> Step {
        let (block_slot, thread) = (self.current_block(), self.current_thread());
        let all = self.grid.threads_per_block() as u32;
        let expected = if id == 0 { all } else { threads };
        let unnamed = id == 0 && threads != 0;
        if unnamed || id > 15 || expected == 0 || expected > all || (id != 0 && expected % 32 != 0) {
            let message = format!(
                "named barrier {id} of {threads} threads: ids are 1 to 15 (0 is sync_threads), counts multiples of 32 up \
                 to the block's {all}"
            );
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        let someone_ended = self.block().live < all as usize;
        if id == 0
            && someone_ended
            && let Some(gone) =
                self.block().threads.iter().find(|thread| thread.done).map(|thread| thread.index)
        {
            let message = format!("sync_threads, but thread {gone:?} has ended without it");
            return Err(self.fault_at(FaultKind::Divergence, site, message));
        }
        let block = self.block();
        let state = &mut block.threads[thread];
        let barrier = &mut block.barriers[id as usize];
        if barrier.arrived > 0 && barrier.expected != expected {
            let message =
                format!("named barrier {id} is used with {} and with {expected} threads", barrier.expected);
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        if id == 0 && barrier.site.is_some_and(|other| !other.same_as(&site)) {
            let other = barrier.site().line;
            let message =
                format!("sync_threads at line {}, while other threads wait at line {other}", site.line);
            return Err(self.fault_at(FaultKind::Divergence, site, message));
        }
        barrier.expected = expected;
        barrier.site = Some(site);
        barrier.arrived += 1;
        barrier.meeting.add(&state.knowledge, thread as Slot, state.time);
        state.time += 1;
        if wait {
            barrier.waiters.push(thread);
        }
        if barrier.arrived < expected {
            return Ok(if wait { self.wait(Wait::Barrier { id }, site) } else { Flow::Go });
        }
        let met = std::mem::take(&mut block.barriers[id as usize]);
        for &waiter in &met.waiters {
            self.blocks[block_slot].threads[waiter].knowledge = met.meeting.knowledge().clone();
            self.wake(block_slot, waiter);
        }
        Ok(Flow::Go)
    }

    /// Arrives at the barrier of the thread's cluster. `releases` says whether others may rely on what it did
    /// before.
    pub(super) fn cluster_arrive(&mut self, releases: bool, site: CallSite) -> Step {
        let (slot, number) = (self.current_thread() as Slot, self.block().number);
        let thread = self.thread();
        if thread.cluster_arrivals > thread.cluster_waits {
            let message = "cluster_arrive a second time, with no cluster_wait since the first".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        thread.cluster_arrivals += 1;
        let told = releases.then(|| {
            thread.knowledge.own.seen.raise(slot, thread.time);
            thread.time += 1;
            thread.knowledge.told_by(number)
        });
        let barrier = self.cluster_barrier();
        barrier.arrived += 1;
        join(&mut barrier.told, &told.flatten());
        self.quiet = 0;
        self.end_cluster_round();
        Ok(Flow::Go)
    }

    /// Waits until all threads of the cluster have arrived, or ended.
    pub(super) fn cluster_wait(&mut self, site: CallSite) -> Step {
        let (slot, thread) = (self.current_block(), self.current_thread());
        let state = self.thread();
        if state.cluster_arrivals == state.cluster_waits {
            let message = "cluster_wait without a cluster_arrive before it".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        let round = state.cluster_waits;
        let barrier = self.cluster_barrier();
        if barrier.rounds > round {
            self.leave_cluster_barrier(slot, thread);
            return Ok(Flow::Go);
        }
        barrier.waiters.push((slot, thread));
        Ok(self.wait(Wait::Cluster, site))
    }

    fn leave_cluster_barrier(&mut self, slot: usize, thread: usize) {
        let size = self.clusters.size();
        let told = self.cluster_barriers[slot / size].ended.clone();
        let block = &mut self.blocks[slot];
        let state = &mut block.threads[thread];
        state.cluster_waits += 1;
        state.knowledge.hear(&told, block.number);
    }

    fn cluster_barrier(&mut self) -> &mut ClusterBarrier {
        let group = self.current_block() / self.clusters.size();
        &mut self.cluster_barriers[group]
    }

    /// A thread that has ended is waited for by nobody.
    pub(super) fn cluster_member_left(&mut self) {
        let arrivals = self.thread().cluster_arrivals;
        let barrier = self.cluster_barrier();
        // One that has arrived counts as such in this round, and as ended in the next.
        if arrivals > barrier.rounds {
            barrier.leaving += 1;
        } else {
            barrier.exited += 1;
        }
        self.end_cluster_round();
    }

    fn end_cluster_round(&mut self) {
        let all = self.clusters.size() as u64 * self.grid.threads_per_block();
        let barrier = self.cluster_barrier();
        if barrier.arrived == 0 || barrier.arrived + barrier.exited < all {
            return;
        }
        barrier.arrived = 0;
        barrier.exited += std::mem::take(&mut barrier.leaving);
        barrier.rounds += 1;
        barrier.ended = barrier.told.clone();
        for (slot, thread) in std::mem::take(&mut barrier.waiters) {
            self.leave_cluster_barrier(slot, thread);
            self.wake(slot, thread);
        }
    }

    /// `word` counts arrivals on the card: all but its top bit are zero between rounds.
    pub(super) fn sync_grid(&mut self, word: usize, site: CallSite) -> Step {
        if !self.grid.cooperative {
            let message = "sync_grid in a launch that is not cooperative: use Grid::cooperative".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        self.check_grid_word(word, site)?;
        self.grid_barrier.arrived += 1;
        self.grid_barrier.waiters.push((self.current_block(), self.current_thread()));
        let flow = self.wait(Wait::Grid, site);
        self.end_grid_round(site)?;
        Ok(flow)
    }

    fn check_grid_word(&mut self, word: usize, site: CallSite) -> Result<(), Stop> {
        self.thread().site = site;
        let manner = Manner::Atomic(Reach::Device, 4);
        let touch =
            Touch { address: word, bytes: 4, write: true, updates: true, alignment: 4, manner, pc: 0 };
        if !matches!(self.check(touch, None)?, Place::Global) {
            let message = "the word of sync_grid must lie in device memory".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        if self.grid_barrier.arrived > 0 && self.grid_barrier.word != word {
            let message = "threads of the grid call sync_grid with different words".into();
            return Err(self.fault_at(FaultKind::Divergence, site, message));
        }
        self.grid_barrier.word = word;
        // SAFETY: `check` found four bytes of a live buffer there, aligned.
        let value = unsafe { read_word(word as *const u8, 4) };
        if value & 0x7FFF_FFFF == 0 {
            return Ok(());
        }
        let message =
            format!("sync_grid on a word that holds {value:#x}: it must be zeroed before the launch");
        Err(self.fault_at(FaultKind::Protocol, site, message))
    }

    pub(super) fn grid_member_left(&mut self) -> Result<(), Stop> {
        self.grid_barrier.exited += 1;
        self.end_grid_round(CallSite::NOWHERE)
    }

    fn end_grid_round(&mut self, site: CallSite) -> Result<(), Stop> {
        let all = self.grid.block_count() * self.grid.threads_per_block();
        let GridBarrier { arrived, exited, .. } = self.grid_barrier;
        if arrived == 0 || arrived + exited < all {
            return Ok(());
        }
        if exited > 0 {
            let message = format!("sync_grid, but {exited} threads of the grid have ended without it");
            return Err(self.fault_at(FaultKind::Divergence, site, message));
        }
        self.grid_barrier.arrived = 0;
        let word = self.grid_barrier.word as *mut u8;
        // SAFETY: every thread that arrived has had the word checked.
        unsafe { write_word(word, 4, read_word(word, 4) ^ 0x8000_0000) };
        let waiters = std::mem::take(&mut self.grid_barrier.waiters);
        // Everyone learns what every thread did, and no more: a copy that nobody waited for is still under
        // way.
        let mut everything: Tidings = None;
        for block in &mut self.blocks {
            let met = block.knowledge();
            join(&mut everything, &met.told_by(block.number));
            for state in &mut block.threads {
                state.time += 1;
                state.knowledge = met.clone();
            }
        }
        for state in self.blocks.iter_mut().flat_map(|block| &mut block.threads) {
            state.knowledge.foreign = everything.clone();
        }
        for (slot, thread) in waiters {
            self.wake(slot, thread);
        }
        Ok(())
    }
}
