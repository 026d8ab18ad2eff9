//! Asynchronous copies: `cp.async` groups of a thread, and bulk copies that land when the schedule says.

use std::collections::VecDeque;

use super::access::{Place, Touch};
use super::block::{Agent, CallSite};
use super::clocks::Slot;
use super::launch::{Launch, Stop};
use super::shadow::{Manner, Stamp};
use crate::types::FaultKind;

/// One copy that has been issued and not carried out.
#[derive(Debug, Clone, Copy)]
struct Copy {
    to: usize,
    from: usize,
    bytes: usize,
    /// Bytes that are read; the rest become zeros.
    source_bytes: usize,
}

impl Copy {
    fn carry_out(&self) {
        // SAFETY: both ranges were checked at the issue, against live buffers and the block's shared memory, and both
        // live as long as the launch.
        unsafe {
            std::ptr::copy(self.from as *const u8, self.to as *mut u8, self.source_bytes);
            std::ptr::write_bytes(
                (self.to + self.source_bytes) as *mut u8,
                0,
                self.bytes - self.source_bytes,
            );
        }
    }
}

/// A thread's groups of one kind of copy. As an agent, its time is the number of groups that have finished.
#[derive(Debug, Default)]
pub(super) struct CopyGroups {
    open: Vec<Copy>,
    committed: VecDeque<Vec<Copy>>,
    finished: u32,
    agent: Option<Slot>,
    /// Bulk stores finish reading before they finish writing: the agent for the reads, and how many have.
    readers: Option<(Slot, u32)>,
}

impl CopyGroups {
    pub(super) fn agent(&self) -> Option<(Slot, u32)> {
        self.agent.map(|agent| (agent, self.finished))
    }

    /// The time of the group that is being filled.
    fn filling(&self) -> u32 {
        self.finished + self.committed.len() as u32 + 1
    }

    fn commit(&mut self) {
        let group = std::mem::take(&mut self.open);
        self.committed.push_back(group);
    }
}

/// A bulk load on its way.
#[derive(Debug)]
pub(super) struct Flight {
    copy: Copy,
    block: usize,
    barrier: usize,
}

impl Flight {
    pub(super) fn counts_on(&self, block: usize, barrier: usize) -> bool {
        self.block == block && self.barrier == barrier
    }
}

impl Launch {
    pub(super) fn copy_async(
        &mut self,
        to: usize,
        from: usize,
        bytes: usize,
        source: usize,
        site: CallSite,
    ) -> Result<(), Stop> {
        if source > bytes {
            let message = format!("a cp.async of {bytes} bytes that reads {source}");
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        let thread = self.current_thread();
        let agent = match self.thread().copies.agent {
            Some(agent) => agent,
            None => self.block().new_agent(Agent::CopyGroup(thread)),
        };
        self.thread().copies.agent = Some(agent);
        let time = self.thread().copies.filling();
        let stamp = self.agent_stamp(agent, time);
        let touch = Touch {
            address: from,
            bytes: source,
            write: false,
            alignment: bytes,
            manner: Manner::Generic,
            pc: 0,
        };
        if source > 0 {
            self.require(touch, stamp, false, site)?;
        }
        self.require(Touch { address: to, bytes, write: true, ..touch }, stamp, true, site)?;
        self.thread().copies.open.push(Copy { to, from, bytes, source_bytes: source });
        Ok(())
    }

    pub(super) fn copy_async_commit(&mut self) {
        self.thread().copies.commit();
    }

    /// The data of a group appears here, as late as the rules allow.
    pub(super) fn copy_async_wait(&mut self, pending: u32) {
        let thread = self.thread();
        while thread.copies.committed.len() > pending as usize {
            for copy in thread.copies.committed.pop_front().into_iter().flatten() {
                copy.carry_out();
            }
            thread.copies.finished += 1;
        }
        if let Some((agent, finished)) = thread.copies.agent() {
            thread.knowledge.seen.raise(agent, finished);
        }
        self.quiet = 0;
    }

    pub(super) fn bulk_load(
        &mut self,
        to: usize,
        from: usize,
        bytes: usize,
        barrier: usize,
        site: CallSite,
    ) -> Result<(), Stop> {
        let barrier = self.mbarrier(barrier, site)?;
        self.require_bulk_size(bytes, site)?;
        let (phase, fenced) = match self.block().mbarriers.get(&barrier) {
            Some(found) => (found.current_phase(), found.is_fenced()),
            None => return Ok(()),
        };
        if !fenced {
            let message = "a bulk copy for an mbarrier whose initialisation was not fenced: call fence_mbarrier_init after mbarrier_init".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        let stamp = self.agent_stamp(phase.0, phase.1);
        let touch =
            Touch { address: from, bytes, write: false, alignment: 16, manner: Manner::AsyncProxy, pc: 0 };
        self.require(touch, stamp, false, site)?;
        self.require(Touch { address: to, write: true, ..touch }, stamp, true, site)?;
        let block = self.current_block();
        self.flights.push(Flight { copy: Copy { to, from, bytes, source_bytes: bytes }, block, barrier });
        self.quiet = 0;
        Ok(())
    }

    pub(super) fn land(&mut self, index: usize) {
        let flight = self.flights.swap_remove(index);
        flight.copy.carry_out();
        self.mbarrier_landed(flight.block, flight.barrier, flight.copy.bytes as u32);
        self.quiet = 0;
    }

    pub(super) fn bulk_store(
        &mut self,
        to: usize,
        from: usize,
        bytes: usize,
        site: CallSite,
    ) -> Result<(), Stop> {
        self.require_bulk_size(bytes, site)?;
        let thread = self.current_thread();
        let (writes, reads) = match (self.thread().stores.agent, self.thread().stores.readers) {
            (Some(writes), Some((reads, _))) => (writes, reads),
            _ => {
                let block = self.block();
                (block.new_agent(Agent::StoreWrite(thread)), block.new_agent(Agent::StoreRead(thread)))
            }
        };
        let stores = &mut self.thread().stores;
        stores.agent = Some(writes);
        stores.readers.get_or_insert((reads, 0));
        let time = stores.filling();
        let touch =
            Touch { address: from, bytes, write: false, alignment: 16, manner: Manner::AsyncProxy, pc: 0 };
        let read_stamp = self.agent_stamp(reads, time);
        self.require(touch, read_stamp, true, site)?;
        let write_stamp = self.agent_stamp(writes, time);
        self.require(Touch { address: to, write: true, ..touch }, write_stamp, false, site)?;
        self.thread().stores.open.push(Copy { to, from, bytes, source_bytes: bytes });
        Ok(())
    }

    pub(super) fn bulk_commit(&mut self) {
        self.thread().stores.commit();
    }

    pub(super) fn bulk_wait(&mut self, pending: u32, read_only: bool) {
        let thread = self.thread();
        let stores = &mut thread.stores;
        if read_only {
            // The source may be reused from here. The data is written now too, but only the full wait lets it be seen.
            let done = stores.finished + (stores.committed.len() as u32).saturating_sub(pending);
            for copy in
                stores.committed.iter_mut().take((done - stores.finished) as usize).flat_map(std::mem::take)
            {
                copy.carry_out();
            }
            if let Some((agent, finished)) = &mut stores.readers {
                *finished = done.max(*finished);
                thread.knowledge.seen.raise(*agent, *finished);
            }
            return;
        }
        while stores.committed.len() > pending as usize {
            for copy in stores.committed.pop_front().into_iter().flatten() {
                copy.carry_out();
            }
            stores.finished += 1;
        }
        let finished = stores.finished;
        if let Some((agent, read)) = &mut stores.readers {
            *read = finished.max(*read);
            thread.knowledge.seen.raise(*agent, *read);
        }
        if let Some(agent) = stores.agent {
            thread.knowledge.seen.raise(agent, finished);
        }
    }

    /// A thread that ends with copies under way has lost its shared memory, or their data.
    pub(super) fn check_exit_copies(&mut self) -> Result<(), Stop> {
        let thread = self.thread();
        let unread = thread.stores.committed.iter().any(|group| !group.is_empty());
        let lost = [
            (!thread.copies.open.is_empty(), "cp.async copies that were never committed"),
            (
                thread.copies.committed.iter().any(|group| !group.is_empty()),
                "cp.async groups that were never waited for",
            ),
            (!thread.stores.open.is_empty(), "bulk stores that were never committed"),
            (unread, "bulk stores that were never waited for: their shared memory goes with the block"),
        ];
        let Some((_, what)) = lost.into_iter().find(|(lost, _)| *lost) else { return Ok(()) };
        Err(self.fault(FaultKind::Protocol, None, None, format!("the thread ends with {what}")))
    }

    /// A block that ends while a copy flies towards it gives its shared memory to another.
    pub(super) fn check_block_end(&mut self) -> Result<(), Stop> {
        let slot = self.current_block();
        if self.block().live > 0 || self.flights.iter().all(|flight| flight.block != slot) {
            return Ok(());
        }
        let message = "the block ends while a bulk copy into its shared memory is in flight".into();
        Err(self.fault(FaultKind::Protocol, None, None, message))
    }

    fn agent_stamp(&mut self, slot: Slot, time: u32) -> Stamp {
        Stamp { block: self.block().number, slot, time, pc: 0 }
    }

    /// Checks one side of a copy; `shared` says which memory it must be in.
    fn require(&mut self, touch: Touch, stamp: Stamp, shared: bool, site: CallSite) -> Result<(), Stop> {
        self.thread().site = site;
        match (self.check(touch, Some(stamp))?, shared) {
            (Place::Shared { .. }, true) | (Place::Global, false) => Ok(()),
            _ => {
                let kind = if shared { "shared" } else { "global" };
                let message = format!("a copy's address {:#x} is not in {kind} memory", touch.address);
                Err(self.fault_at(FaultKind::Protocol, site, message))
            }
        }
    }

    fn require_bulk_size(&mut self, bytes: usize, site: CallSite) -> Result<(), Stop> {
        if bytes > 0 && bytes.is_multiple_of(16) {
            return Ok(());
        }
        let message = format!("a bulk copy of {bytes} bytes: sizes are positive multiples of 16");
        Err(self.fault_at(FaultKind::Misaligned, site, message))
    }
}
