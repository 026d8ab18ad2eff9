//! Transaction barriers in shared memory.

use std::collections::BTreeMap;

use super::access::Touch;
use super::block::{Agent, CallSite, Visit, Wait};
use super::clocks::{Address, Knowledge, Meeting, Slot, Tidings, join};
use super::launch::{Flow, Launch, Step, Stop};
use super::shadow::Manner;
use crate::abi::Scope;
use crate::types::FaultKind;

/// The largest count of arrivals, and of bytes that are expected or ahead.
const MOST: u32 = (1 << 20) - 1;

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
    /// What arrivals from other blocks told, which a wait of the cluster's scope hears.
    remote: Tidings,
    ended: (Knowledge, Tidings),
    waiters: Vec<(usize, u32, Scope)>,
    /// Who initialised it, and when: nobody else may use it before they know.
    initialised: (Slot, u32),
    /// Set once its thread has fenced the initialisation for the copy engine and the cluster.
    fenced: Option<Fenced>,
    /// Who used it last, by block and thread, and when.
    users: BTreeMap<(u32, Slot), u32>,
    /// The phase that the last copy counts towards, and where it was issued.
    last_copy: Option<(u32, CallSite)>,
}

/// When a thread fenced its barriers: at which of its times, and after how many arrivals at cluster barriers,
/// the next of which tells the cluster even if it is relaxed.
#[derive(Debug, Clone, Copy)]
struct Fenced {
    time: u32,
    arrivals: u32,
}

/// A barrier that the running thread may use: the resident block that it lies in, and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) block: usize,
    pub(super) offset: usize,
}

impl Mbarrier {
    /// The agent and the time of a copy that counts towards the current phase.
    fn current_phase(&self) -> (Slot, u32) {
        (self.slot, self.time() + 1)
    }

    /// Phases that have ended, those of earlier barriers at this address included.
    fn time(&self) -> u32 {
        self.born + self.phases
    }

    /// What its phase still waits for.
    pub(super) fn told(&self) -> String {
        let Self { count, pending, transactions, .. } = self;
        match transactions {
            0 => format!("which has {} of {count} arrivals", count.saturating_sub(*pending)),
            _ => {
                let arrived = count.saturating_sub(*pending);
                format!("which has {arrived} of {count} arrivals and expects {transactions} more bytes")
            }
        }
    }

    fn has_ended(&self, parity: u32) -> bool {
        self.phases & 1 != parity & 1
    }

    /// A copy into its block that nobody there has waited for, as far as `known` tells.
    pub(super) fn unawaited_copy(&self, known: &Knowledge) -> Option<CallSite> {
        self.last_copy.filter(|(time, _)| known.own.seen.get(self.slot) < *time).map(|(_, site)| site)
    }
}

impl Launch {
    pub(super) fn mbarrier_init(&mut self, address: usize, count: u32, site: CallSite) -> Result<(), Stop> {
        let offset = self.mbarrier_offset(address, site)?;
        if count == 0 || count > MOST {
            let message = format!("an mbarrier of {count} arrivals: 1 to {MOST} are possible");
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        let thread = self.current_thread();
        let time = self.thread().time;
        let block = self.block();
        if block.mbarriers.contains_key(&offset) {
            let message = format!(
                "an mbarrier is initialised at shared offset {offset}, where there is one: mbarrier_invalidate comes first"
            );
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        self.touch_mbarrier(address, site)?;
        let block = self.block();
        let (slot, born) = match block.retired.remove(&offset) {
            Some(former) => former,
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
            remote: None,
            ended: (Knowledge::default(), None),
            waiters: Vec::new(),
            initialised: (thread as Slot, time),
            fenced: None,
            users: BTreeMap::new(),
            last_copy: None,
        };
        block.mbarriers.insert(offset, barrier);
        Ok(())
    }

    /// The memory is free for other uses: all that was done with the barrier must have happened before.
    pub(super) fn mbarrier_invalidate(&mut self, address: usize, site: CallSite) -> Result<(), Stop> {
        self.mbarrier_offset(address, site)?;
        let Found { block, offset } = self.mbarrier(address, site)?;
        let (number, thread) = (self.block().number, self.current_thread());
        let in_flight = self.flights.iter().any(|flight| flight.counts_on(block, offset));
        let known = &self.blocks[block].threads[thread].knowledge;
        let Some(barrier) = self.blocks[block].mbarriers.get(&offset) else { return Ok(()) };
        let unordered = barrier.users.iter().find(|((by, slot), time)| {
            let mine = (*by, usize::from(*slot)) == (number, thread);
            !mine && known.of(*by, number).is_none_or(|known| known.seen.get(*slot) < **time)
        });
        let why = if in_flight || barrier.unawaited_copy(known).is_some() {
            Some("while copies count on it".to_owned())
        } else {
            unordered.map(|((by, slot), _)| {
                format!(
                    "with nothing that orders this after its use by thread number {slot} of block number {by}"
                )
            })
        };
        if let Some(why) = why {
            let message = format!("the mbarrier at shared offset {offset} is invalidated {why}");
            return Err(self.fault_at(FaultKind::Race, site, message));
        }
        // A copy may have been stamped with the phase that never ended.
        let retired = (barrier.slot, barrier.time() + 1);
        let block = &mut self.blocks[block];
        block.mbarriers.remove(&offset);
        block.retired.insert(offset, retired);
        self.touch_mbarrier(address, site)
    }

    /// Memory becomes a barrier, or becomes data again: a write, as far as others that use it are concerned.
    fn touch_mbarrier(&mut self, address: usize, site: CallSite) -> Result<(), Stop> {
        self.thread().site = site;
        let (bytes, alignment, manner) = (8, 8, Manner::Generic);
        let touch = Touch { address, bytes, write: true, updates: false, alignment, manner, pc: 0 };
        self.check(touch, None).map(|_| ())
    }

    /// `fence.mbarrier_init`: the copy engine and the cluster see what this thread initialised.
    pub(super) fn publish_mbarriers(&mut self) {
        let thread = self.current_thread() as Slot;
        let state = self.thread();
        let fenced = Fenced { time: state.time, arrivals: state.cluster_arrivals };
        for barrier in self.block().mbarriers.values_mut().filter(|barrier| barrier.initialised.0 == thread) {
            barrier.fenced.get_or_insert(fenced);
        }
    }

    /// So many arrivals, which release what the thread did, and so many bytes that are expected besides.
    pub(super) fn mbarrier_arrive(
        &mut self,
        address: usize,
        arrivals: u32,
        bytes: u32,
        site: CallSite,
    ) -> Result<(), Stop> {
        let found = self.used_mbarrier(address, site)?;
        let (number, thread) = (self.block().number, self.current_thread() as Slot);
        let state = self.thread();
        let time = state.time;
        let mut knowledge = state.knowledge.clone();
        if arrivals > 0 {
            state.time += 1;
        }
        let home = &mut self.blocks[found.block];
        let is_own = home.number == number;
        let Some(barrier) = home.mbarriers.get_mut(&found.offset) else { return Ok(()) };
        let (offset, count, pending) = (found.offset, barrier.count, barrier.pending);
        if arrivals > pending {
            let message = format!(
                "{} too many: the mbarrier at shared offset {offset} expects {count}, and {pending} of them are to come",
                if arrivals == 1 { "one arrival".into() } else { format!("{} arrivals", arrivals - pending) },
            );
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        barrier.transactions += i64::from(bytes);
        if barrier.transactions > i64::from(MOST) {
            let message = format!("an mbarrier that expects {} bytes, {MOST} at most", barrier.transactions);
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        barrier.pending -= arrivals;
        if arrivals > 0 && is_own {
            barrier.meeting.add(&knowledge, thread, time);
        } else if arrivals > 0 {
            knowledge.own.seen.raise(thread, time);
            join(&mut barrier.remote, &knowledge.told_by(number));
        }
        self.quiet = 0;
        self.end_phase(found, site)
    }

    /// An arrival that `cp.async` copies bring when they are done. Of the thread that issued them it tells
    /// nothing else.
    pub(super) fn mbarrier_copies_done(
        &mut self,
        found: Found,
        phase: u32,
        agent: Option<(Slot, u32)>,
        site: CallSite,
    ) {
        let Some(barrier) = self.blocks[found.block].mbarriers.get_mut(&found.offset) else { return };
        if barrier.time() + 1 != phase || barrier.pending == 0 {
            let message = format!(
                "the phase of the mbarrier at shared offset {} ended before cp.async copies that arrive at it: others \
                 arrived in their place",
                found.offset
            );
            self.fault_at(FaultKind::Protocol, site, message);
            return;
        }
        barrier.pending -= 1;
        if let Some((agent, time)) = agent {
            barrier.meeting.raise(agent, time);
        }
        // A fault is recorded, and the loop that called ends on it.
        let _ = self.end_phase(found, site);
    }

    /// The phase that copies of the running thread count towards. `counted` says whether they bring an
    /// arrival that the barrier's count does not have.
    pub(super) fn mbarrier_await_copies(
        &mut self,
        address: usize,
        counted: bool,
        site: CallSite,
    ) -> Result<(Found, u32), Stop> {
        self.mbarrier_offset(address, site)?;
        let found = self.used_mbarrier(address, site)?;
        let Some(barrier) = self.blocks[found.block].mbarriers.get_mut(&found.offset) else {
            return Ok((found, 0));
        };
        if !counted {
            barrier.pending += 1;
        }
        Ok((found, barrier.current_phase().1))
    }

    /// Waits for the phase of that parity, or answers whether it has ended.
    pub(super) fn mbarrier_wait(
        &mut self,
        address: usize,
        parity: u32,
        blocking: bool,
        scope: Scope,
        site: CallSite,
    ) -> Step {
        self.mbarrier_offset(address, site)?;
        let Found { offset, .. } = self.used_mbarrier(address, site)?;
        let thread = self.current_thread();
        let block = self.block();
        let Some(barrier) = block.mbarriers.get_mut(&offset) else { return Ok(Flow::Go) };
        if barrier.has_ended(parity) {
            let ended = barrier.ended.clone();
            self.leave_mbarrier(self.current_block(), thread, &ended, scope);
            return Ok(Flow::Go);
        }
        block.threads[thread].result = 0;
        if blocking {
            barrier.waiters.push((thread, parity, scope));
            return Ok(self.wait(Wait::Mbarrier { offset, parity }, site));
        }
        self.count_quiet()?;
        let flow = self.preempt();
        self.thread().site = site;
        Ok(flow)
    }

    fn leave_mbarrier(&mut self, slot: usize, thread: usize, ended: &(Knowledge, Tidings), scope: Scope) {
        let block = &mut self.blocks[slot];
        let state = &mut block.threads[thread];
        state.knowledge.join(&ended.0);
        if scope != Scope::Block {
            state.knowledge.hear(&ended.1, block.number);
        }
        state.result = 1;
    }

    /// The agent that a copy for this barrier is recorded as. Whoever issues it must know that the barrier
    /// was fenced.
    pub(super) fn mbarrier_phase(&mut self, found: Found, site: CallSite) -> Result<(Slot, u32), Stop> {
        let (mine, thread) = (self.block().number, self.current_thread());
        let home = self.blocks[found.block].number;
        let issuer = &self.blocks[self.current_block()].threads[thread];
        let (waits, known) = (issuer.cluster_waits, issuer.knowledge.of(home, mine));
        let Some(barrier) = self.blocks[found.block].mbarriers.get(&found.offset) else { return Ok((0, 0)) };
        let (by, _) = barrier.initialised;
        let is_own = (home, usize::from(by)) == (mine, thread);
        let sees = |fenced: Fenced| {
            let told = known.is_some_and(|known| known.seen.get(by) >= fenced.time);
            is_own || told || waits > fenced.arrivals
        };
        if !barrier.fenced.is_some_and(sees) {
            let message = "a bulk copy for an mbarrier whose initialisation was not fenced: call fence_mbarrier_init after mbarrier_init".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        let phase = barrier.current_phase();
        if let Some(barrier) = self.blocks[found.block].mbarriers.get_mut(&found.offset) {
            barrier.last_copy = Some((phase.1, site));
        }
        Ok(phase)
    }

    /// Bytes of a copy have landed on the barrier.
    pub(super) fn mbarrier_landed(&mut self, found: Found, bytes: u32) {
        let Some(barrier) = self.blocks[found.block].mbarriers.get_mut(&found.offset) else { return };
        barrier.transactions -= i64::from(bytes);
        // A fault is recorded, and the loop that called ends on it.
        let _ = self.end_phase(found, CallSite::NOWHERE);
    }

    /// Ends the phase if all has come, and wakes who waited for it.
    fn end_phase(&mut self, found: Found, site: CallSite) -> Result<(), Stop> {
        let Found { block: slot, offset } = found;
        let in_flight = self.flights.iter().any(|flight| flight.brings_bytes_to(slot, offset));
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
        barrier.ended = (barrier.meeting.knowledge().clone(), barrier.remote.clone());
        let (ended, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut barrier.waiters)
            .into_iter()
            .partition(|&(_, parity, _)| barrier.has_ended(parity));
        barrier.waiters = waiting;
        let known = barrier.ended.clone();
        for (thread, _, scope) in ended {
            self.leave_mbarrier(slot, thread, &known, scope);
            self.wake(slot, thread);
        }
        Ok(())
    }

    /// An initialised barrier that the running thread may use, of its own block or of another of its cluster.
    pub(super) fn mbarrier(&mut self, address: usize, site: CallSite) -> Result<Found, Stop> {
        let own = self.block().shared.offset(address, 8).map(|offset| (self.current_block(), offset));
        let found = own.or_else(|| self.of_cluster(address, 8)).filter(|(_, offset)| offset % 8 == 0);
        let Some((slot, offset)) = found else { return Err(self.no_mbarrier(address, site)) };
        if slot != self.current_block() {
            self.check_peer(slot, Visit::Call(site))?;
        }
        let Address { block: mine, .. } = self.block().address;
        let thread = self.current_thread();
        let waits = self.thread().cluster_waits;
        let home = self.blocks[slot].number;
        let Some(barrier) = self.blocks[slot].mbarriers.get(&offset) else {
            let retired = self.blocks[slot].retired.contains_key(&offset);
            let what = if retired { "is used after it was invalidated" } else { "was never initialised" };
            let message = format!("the mbarrier at shared offset {offset} {what}");
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        };
        let (by, since) = barrier.initialised;
        let met = barrier.fenced.is_some_and(|fenced| waits > fenced.arrivals);
        let is_own = home == mine && usize::from(by) == thread;
        let known = self.blocks[self.current_block()].threads[thread].knowledge.of(home, mine);
        if !is_own && !met && known.is_none_or(|known| known.seen.get(by) < since) {
            let message = format!(
                "race: the mbarrier at shared offset {offset} is used with nothing that orders this after its initialisation"
            );
            return Err(self.fault_at(FaultKind::Race, site, message));
        }
        Ok(Found { block: slot, offset })
    }

    /// The same, for a use by the thread itself: neither the barrier nor its block may end before that is
    /// known.
    fn used_mbarrier(&mut self, address: usize, site: CallSite) -> Result<Found, Stop> {
        let found = self.mbarrier(address, site)?;
        if found.block != self.current_block() {
            self.visit(found.block, Visit::Call(site))?;
        }
        let (mine, thread, time) = (self.block().number, self.current_thread() as Slot, self.thread().time);
        if let Some(barrier) = self.blocks[found.block].mbarriers.get_mut(&found.offset) {
            barrier.users.insert((mine, thread), time);
        }
        Ok(found)
    }

    /// The place of a barrier that must lie in the thread's own block.
    fn mbarrier_offset(&mut self, address: usize, site: CallSite) -> Result<usize, Stop> {
        let found = self.block().shared.offset(address, 8).filter(|offset| offset % 8 == 0);
        found.ok_or_else(|| self.no_mbarrier(address, site))
    }

    fn no_mbarrier(&mut self, address: usize, site: CallSite) -> Stop {
        let message =
            format!("an mbarrier at {address:#x}: it must lie in shared memory, at a multiple of 8");
        self.fault_at(FaultKind::Protocol, site, message)
    }
}
