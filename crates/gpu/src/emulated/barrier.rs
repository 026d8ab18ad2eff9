//! Barriers: of a block, named, in shared memory with transactions, and of the whole grid.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::block::{Agent, CallSite, Wait};
use super::clocks::{Foreign, Knowledge, Meeting, Slot, join_foreign};
use super::launch::{Flow, Launch, Step, Stop};
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

/// A transaction barrier. As an agent, its time is the number of phases that have ended.
pub(super) struct Mbarrier {
    slot: Slot,
    count: u32,
    pending: u32,
    /// Bytes expected and not landed; negative while copies land ahead of the expectation.
    transactions: i64,
    phases: u32,
    /// The agent's time when it was initialised: an address that is initialised again goes on counting.
    born: u32,
    meeting: Meeting,
    ended: Knowledge,
    waiters: Vec<(usize, u32)>,
    /// Who initialised it, and when: nobody else may use it before they know.
    initialised: (Slot, u32),
    /// Whether the copy engine sees the initialisation.
    fenced: bool,
}

impl Mbarrier {
    /// The agent and the time of a copy that counts towards the current phase.
    pub(super) fn current_phase(&self) -> (Slot, u32) {
        (self.slot, self.time() + 1)
    }

    /// Phases that have ended, those of earlier barriers at this address included.
    fn time(&self) -> u32 {
        self.born + self.phases
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.fenced
    }

    fn has_ended(&self, parity: u32) -> bool {
        self.phases & 1 != parity & 1
    }
}

/// All threads of all blocks of a cooperative launch.
#[derive(Default)]
pub(super) struct GridBarrier {
    arrived: u64,
    exited: u64,
    waiters: Vec<(usize, usize)>,
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
        if id == 0
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

    pub(super) fn mbarrier_init(&mut self, address: usize, count: u32, site: CallSite) -> Result<(), Stop> {
        let offset = self.mbarrier_offset(address, site)?;
        if count == 0 {
            return Err(self.fault_at(FaultKind::Protocol, site, "an mbarrier of 0 arrivals".into()));
        }
        let thread = self.current_thread();
        let time = self.thread().time;
        let block = self.block();
        let (slot, born) = match block.mbarriers.get(&offset) {
            // A copy may have been stamped with the phase that never ended.
            Some(former) => (former.slot, former.time() + 1),
            None => (block.new_agent(Agent::Mbarrier(offset)), 0),
        };
        let barrier = Mbarrier {
            slot,
            count,
            pending: count,
            transactions: 0,
            phases: 0,
            born,
            meeting: Meeting::default(),
            ended: Knowledge::default(),
            waiters: Vec::new(),
            initialised: (thread as Slot, time),
            fenced: false,
        };
        block.mbarriers.insert(offset, barrier);
        Ok(())
    }

    /// `fence.mbarrier_init`: the copy engine sees what this thread initialised.
    pub(super) fn publish_mbarriers(&mut self) {
        let thread = self.current_thread() as Slot;
        for barrier in self.block().mbarriers.values_mut().filter(|barrier| barrier.initialised.0 == thread) {
            barrier.fenced = true;
        }
    }

    pub(super) fn mbarrier_arrive(&mut self, address: usize, bytes: u32, site: CallSite) -> Result<(), Stop> {
        let offset = self.mbarrier(address, site)?;
        let thread = self.current_thread();
        let block = self.block();
        let state = &mut block.threads[thread];
        let Some(barrier) = block.mbarriers.get_mut(&offset) else { return Ok(()) };
        if barrier.pending == 0 {
            let message = format!(
                "one arrival too many: the mbarrier at shared offset {offset} expects {}",
                barrier.count
            );
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        barrier.transactions += i64::from(bytes);
        barrier.pending -= 1;
        barrier.meeting.add(&state.knowledge, thread as Slot, state.time);
        state.time += 1;
        self.quiet = 0;
        let slot = self.current_block();
        self.end_phase(slot, offset, site)
    }

    /// Waits for the phase of that parity, or answers whether it has ended.
    pub(super) fn mbarrier_wait(
        &mut self,
        address: usize,
        parity: u32,
        blocking: bool,
        site: CallSite,
    ) -> Step {
        let offset = self.mbarrier(address, site)?;
        let thread = self.current_thread();
        let block = self.block();
        let Some(barrier) = block.mbarriers.get_mut(&offset) else { return Ok(Flow::Go) };
        let ended = barrier.has_ended(parity);
        if ended {
            let known = barrier.ended.clone();
            let state = &mut block.threads[thread];
            state.knowledge.join(&known);
            state.result = 1;
            return Ok(Flow::Go);
        }
        block.threads[thread].result = 0;
        if blocking {
            barrier.waiters.push((thread, parity));
            return Ok(self.wait(Wait::Mbarrier { offset, parity }, site));
        }
        self.count_quiet()?;
        Ok(self.preempt())
    }

    /// Bytes of a copy have landed on the barrier at `offset` of the block in `slot`.
    pub(super) fn mbarrier_landed(&mut self, slot: usize, offset: usize, bytes: u32) {
        let Some(barrier) = self.blocks[slot].mbarriers.get_mut(&offset) else { return };
        barrier.transactions -= i64::from(bytes);
        // A fault is recorded, and the loop that called ends on it.
        let _ = self.end_phase(slot, offset, CallSite::NOWHERE);
    }

    /// Ends the phase if all has come, and wakes who waited for it.
    fn end_phase(&mut self, slot: usize, offset: usize, site: CallSite) -> Result<(), Stop> {
        let in_flight = self.flights.iter().any(|flight| flight.counts_on(slot, offset));
        let Some(barrier) = self.blocks[slot].mbarriers.get_mut(&offset) else { return Ok(()) };
        if barrier.pending > 0 || barrier.transactions != 0 {
            return Ok(());
        }
        if in_flight {
            let message = format!(
                "the phase of the mbarrier at shared offset {offset} ends while a bulk copy for it is in flight: \
                 fewer bytes were expected than copied"
            );
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        barrier.phases += 1;
        barrier.pending = barrier.count;
        let (agent, time) = (barrier.slot, barrier.time());
        barrier.meeting.raise(agent, time);
        barrier.ended = barrier.meeting.knowledge().clone();
        let (ended, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut barrier.waiters)
            .into_iter()
            .partition(|&(_, parity)| barrier.has_ended(parity));
        barrier.waiters = waiting;
        let known = barrier.ended.clone();
        for (thread, _) in ended {
            let state = &mut self.blocks[slot].threads[thread];
            state.knowledge.join(&known);
            state.result = 1;
            self.wake(slot, thread);
        }
        Ok(())
    }

    /// The offset of an initialised barrier that the running thread may use.
    pub(super) fn mbarrier(&mut self, address: usize, site: CallSite) -> Result<usize, Stop> {
        let offset = self.mbarrier_offset(address, site)?;
        let thread = self.current_thread();
        let block = self.block();
        let Some(barrier) = block.mbarriers.get(&offset) else {
            let message = format!("the mbarrier at shared offset {offset} was never initialised");
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        };
        let (by, time) = barrier.initialised;
        if usize::from(by) != thread && block.threads[thread].knowledge.seen.get(by) < time {
            let message = format!(
                "race: the mbarrier at shared offset {offset} is used with nothing that orders this after its initialisation"
            );
            return Err(self.fault_at(FaultKind::Race, site, message));
        }
        Ok(offset)
    }

    fn mbarrier_offset(&mut self, address: usize, site: CallSite) -> Result<usize, Stop> {
        let found = self.block().shared.offset(address, 8).filter(|offset| offset % 8 == 0);
        found.ok_or_else(|| {
            let message =
                format!("an mbarrier at {address:#x}: it must lie in shared memory, at a multiple of 8");
            self.fault_at(FaultKind::Protocol, site, message)
        })
    }

    pub(super) fn sync_grid(&mut self, site: CallSite) -> Step {
        if !self.grid.cooperative {
            let message = "sync_grid in a launch that is not cooperative: use Grid::cooperative".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        self.grid_barrier.arrived += 1;
        self.grid_barrier.waiters.push((self.current_block(), self.current_thread()));
        let flow = self.wait(Wait::Grid, site);
        self.end_grid_round(site)?;
        Ok(flow)
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
        let waiters = std::mem::take(&mut self.grid_barrier.waiters);
        // Everyone learns what every thread did, and no more: a copy that nobody waited for is still under way.
        let mut everything: Foreign = None;
        for block in &mut self.blocks {
            let mut meeting = Meeting::default();
            for (thread, state) in block.threads.iter_mut().enumerate() {
                meeting.add(&state.knowledge, thread as Slot, state.time);
                state.time += 1;
            }
            let met = meeting.knowledge();
            join_foreign(&mut everything, &met.foreign);
            join_foreign(&mut everything, &Some(Rc::new(BTreeMap::from([(block.number, met.seen.clone())]))));
            for state in &mut block.threads {
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
