//! Asynchronous copies: `cp.async` groups of a thread, and bulk copies that land when the schedule says.

use super::access::{Place, Touch};
use super::block::{Agent, CallSite};
use super::launch::{Launch, Stop};
use super::mbarrier::Found;
use super::shadow::{Manner, Stamp};
use super::transfer::{Copy, Parcel, Reduction, Sides};
use crate::types::FaultKind;

/// What is on its way to an mbarrier.
#[derive(Debug)]
pub(super) struct Flight {
    cargo: Cargo,
    to: Found,
    pub(super) site: CallSite,
}

#[derive(Debug)]
enum Cargo {
    /// A bulk copy of so many bytes, in pieces; the block that it reads from, if it is shared memory.
    Bytes { pieces: Vec<Copy>, bytes: u32, from: Option<usize> },
    /// The end of a thread's `cp.async` copies up to a batch, in that phase.
    Copies { thread: usize, batch: u32, phase: u32 },
}

impl Flight {
    pub(super) fn counts_on(&self, block: usize, barrier: usize) -> bool {
        self.to == Found { block, offset: barrier }
    }

    pub(super) fn brings_bytes_to(&self, block: usize, barrier: usize) -> bool {
        matches!(self.cargo, Cargo::Bytes { .. }) && self.counts_on(block, barrier)
    }

    /// Whether it reads or writes shared memory of the block.
    pub(super) fn is_for(&self, block: usize) -> bool {
        self.to.block == block || matches!(self.cargo, Cargo::Bytes { from: Some(from), .. } if from == block)
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
        let stamp = Stamp { block: self.block().number, slot: agent, time, pc: self.code_of(site) };
        let touch = Touch {
            address: from,
            bytes: source,
            write: false,
            updates: false,
            alignment: bytes,
            manner: Manner::Generic,
            pc: 0,
        };
        if source > 0 {
            self.require(touch, stamp, false, site)?;
        }
        self.require_in_block(Touch { address: to, bytes, write: true, ..touch }, stamp, site)?;
        let copy = Copy { source_bytes: source, ..Copy::plain(to, from, bytes) };
        self.carry_marks(&copy);
        self.thread().copies.site = Some(site);
        self.thread().copies.add(copy);
        Ok(())
    }

    pub(super) fn copy_async_commit(&mut self) {
        self.thread().copies.commit();
    }

    /// The data of a group appears here, as late as the rules allow.
    pub(super) fn copy_async_wait(&mut self, pending: u32) {
        let thread = self.thread();
        while thread.copies.committed.len() > pending as usize {
            let Some((batch, _)) = thread.copies.committed.front() else { break };
            let batch = *batch;
            thread.copies.finish(batch);
            thread.copies.committed.pop_front();
            thread.copies.finished = batch;
        }
        if let Some((agent, finished)) = thread.copies.agent() {
            thread.knowledge.own.seen.raise(agent, finished);
        }
        self.quiet = 0;
    }

    /// `cp.async.mbarrier.arrive`: an arrival once the thread's copies so far are done. `counted` says
    /// whether the barrier's count has it already (`.noinc`).
    pub(super) fn copy_async_arrive(
        &mut self,
        barrier: usize,
        counted: bool,
        site: CallSite,
    ) -> Result<(), Stop> {
        let (to, phase) = self.mbarrier_await_copies(barrier, counted, site)?;
        let thread = self.current_thread();
        let copies = &mut self.thread().copies;
        if !copies.open.is_empty() {
            copies.closed += 1;
        }
        copies.awaited = copies.closed;
        let batch = copies.closed;
        self.flights.push(Flight { cargo: Cargo::Copies { thread, batch, phase }, to, site });
        self.quiet = 0;
        Ok(())
    }

    /// Global to shared memory of the thread's own block, for an mbarrier there.
    pub(super) fn bulk_load(
        &mut self,
        to: usize,
        from: usize,
        bytes: usize,
        barrier: usize,
        site: CallSite,
    ) -> Result<(), Stop> {
        let parcel = self.bulk(to, from, bytes, false, site)?;
        self.fly(parcel, barrier, site)
    }

    /// Bytes that a bulk copy moves as they lie.
    fn bulk(
        &mut self,
        to: usize,
        from: usize,
        bytes: usize,
        from_shared: bool,
        site: CallSite,
    ) -> Result<Parcel, Stop> {
        self.require_bulk_size(bytes, site)?;
        let pieces = vec![Copy::plain(to, from, bytes)];
        Ok(Parcel { pieces, bytes, sides: Sides { from_shared, alignment: 16 } })
    }

    pub(super) fn bulk_load_multicast(
        &mut self,
        to: usize,
        from: usize,
        bytes: usize,
        barrier: usize,
        blocks: u32,
        site: CallSite,
    ) -> Result<(), Stop> {
        let parcel = self.bulk(to, from, bytes, false, site)?;
        self.multicast(&parcel, barrier, blocks, site)
    }

    /// Shared memory of the thread's own block to that of another of its cluster, for an mbarrier there.
    pub(super) fn bulk_send(
        &mut self,
        to: usize,
        from: usize,
        bytes: usize,
        barrier: usize,
        site: CallSite,
    ) -> Result<(), Stop> {
        let parcel = self.bulk(to, from, bytes, true, site)?;
        self.fly(parcel, barrier, site)
    }

    /// The same bytes to the same place in every block of the cluster whose bit is set, each for its own
    /// mbarrier.
    pub(super) fn multicast(
        &mut self,
        parcel: &Parcel,
        barrier: usize,
        mask: u32,
        site: CallSite,
    ) -> Result<(), Stop> {
        if mask == 0 || mask > 0xFFFF {
            let message = format!("a multicast to the blocks {mask:#x} of a cluster: a mask of 1 to 16 bits");
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        for rank in (0..16).filter(|rank| mask >> rank & 1 == 1) {
            let peer = self.peer(rank, site)?;
            let distance = self.blocks[peer].shared.base().wrapping_sub(self.block().shared.base());
            let mut copy = parcel.clone();
            for piece in &mut copy.pieces {
                piece.to = piece.to.wrapping_add(distance);
            }
            self.fly(copy, barrier.wrapping_add(distance), site)?;
        }
        Ok(())
    }

    /// Issues a bulk copy that lands when the schedule says. The mbarrier lies in the block that it is for.
    pub(super) fn fly(&mut self, parcel: Parcel, barrier: usize, site: CallSite) -> Result<(), Stop> {
        let Parcel { pieces, bytes, sides } = parcel;
        let to = self.mbarrier(barrier, site)?;
        let (agent, time) = self.mbarrier_phase(to, site)?;
        let home = self.blocks[to.block].number;
        let stamp = Stamp { block: home, slot: agent, time, pc: self.code_of(site) };
        for piece in &pieces {
            let touch = Touch {
                address: piece.from,
                bytes: piece.source_bytes,
                write: false,
                updates: false,
                alignment: sides.alignment,
                manner: Manner::AsyncProxy,
                pc: 0,
            };
            match (piece.source_bytes, sides.from_shared) {
                (0, _) => {}
                (_, true) => self.require_in_block(touch, stamp, site)?,
                (_, false) => _ = self.require(touch, stamp, false, site)?,
            }
            let touch = Touch { address: piece.to, bytes: piece.bytes, write: true, ..touch };
            if self.require(touch, stamp, true, site)? != Some(to.block) {
                let message = "a bulk copy into one block's shared memory for an mbarrier of another".into();
                return Err(self.fault_at(FaultKind::Protocol, site, message));
            }
            self.carry_marks(piece);
        }
        let from = sides.from_shared.then(|| self.current_block());
        if from.is_some_and(|from| from != to.block) {
            self.block().departures.push((home, agent, time, site));
        }
        self.flights.push(Flight { cargo: Cargo::Bytes { pieces, bytes: bytes as u32, from }, to, site });
        self.quiet = 0;
        Ok(())
    }

    pub(super) fn land(&mut self, index: usize) {
        let flight = self.flights.swap_remove(index);
        match flight.cargo {
            Cargo::Bytes { pieces, bytes, .. } => {
                pieces.iter().for_each(Copy::carry_out);
                self.mbarrier_landed(flight.to, bytes);
            }
            Cargo::Copies { thread, batch, phase } => {
                let copies = &mut self.blocks[flight.to.block].threads[thread].copies;
                copies.finish(batch);
                let agent = copies.agent.map(|agent| (agent, batch));
                self.run_as(flight.to.block, thread);
                self.mbarrier_copies_done(flight.to, phase, agent, flight.site);
            }
        }
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
        self.store_pieces(&[Copy::plain(to, from, bytes)], 16, Manner::AsyncProxy, site)
    }

    /// Combines words of global memory with those of shared memory.
    pub(super) fn bulk_reduce(
        &mut self,
        reduction: Reduction,
        to: usize,
        from: usize,
        bytes: usize,
        site: CallSite,
    ) -> Result<(), Stop> {
        self.require_bulk_size(bytes, site)?;
        let piece = Copy { reduction: Some(reduction), ..Copy::plain(to, from, bytes) };
        self.store_pieces(&[piece], 16, Manner::Reduction, site)
    }

    /// Copies from shared to global memory, in the thread's open group.
    pub(super) fn store_pieces(
        &mut self,
        pieces: &[Copy],
        alignment: usize,
        manner: Manner,
        site: CallSite,
    ) -> Result<(), Stop> {
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
        let block = self.block().number;
        let code = self.code_of(site);
        let stamp = |slot| Stamp { block, slot, time, pc: code };
        for piece in pieces {
            let touch = Touch {
                address: piece.from,
                bytes: piece.bytes,
                write: false,
                updates: false,
                alignment,
                manner: Manner::AsyncProxy,
                pc: 0,
            };
            self.require_in_block(touch, stamp(reads), site)?;
            self.require(
                Touch { address: piece.to, write: true, manner, ..touch },
                stamp(writes),
                false,
                site,
            )?;
            self.carry_marks(piece);
            self.thread().stores.add(*piece);
        }
        self.thread().stores.site = Some(site);
        Ok(())
    }

    pub(super) fn bulk_commit(&mut self) {
        self.thread().stores.commit();
    }

    pub(super) fn bulk_wait(&mut self, pending: u32, read_only: bool) {
        let thread = self.thread();
        let stores = &mut thread.stores;
        let done = stores.committed.len().saturating_sub(pending as usize);
        let batch = match done.checked_sub(1).and_then(|last| stores.committed.get(last)) {
            Some((batch, _)) => *batch,
            None => stores.finished,
        };
        // The data is written now in both cases, but only the full wait lets it be seen.
        stores.finish(batch);
        if let Some((agent, read)) = &mut stores.readers {
            *read = batch.max(*read);
            thread.knowledge.own.seen.raise(*agent, *read);
        }
        if read_only {
            return;
        }
        stores.committed.drain(..done);
        stores.finished = batch;
        if let Some(agent) = stores.agent {
            thread.knowledge.own.seen.raise(agent, batch);
        }
    }

    /// A thread that ends with copies under way has lost its shared memory, or their data.
    pub(super) fn check_exit_copies(&mut self) -> Result<(), Stop> {
        let thread = self.thread();
        let (copies, stores) = (&thread.copies, &thread.stores);
        let unread = stores.committed.iter().any(|(_, group)| !group.is_empty());
        let lost = [
            (copies.is_lost(&copies.open), copies.site, "cp.async copies that were never committed"),
            (
                copies.committed.iter().any(|(_, group)| copies.is_lost(group)),
                copies.site,
                "cp.async groups that were never waited for",
            ),
            (!stores.open.is_empty(), stores.site, "bulk stores that were never committed"),
            (
                unread,
                stores.site,
                "bulk stores that were never waited for: their shared memory goes with the block",
            ),
        ];
        let Some((_, site, what)) = lost.into_iter().find(|(lost, ..)| *lost) else { return Ok(()) };
        let site = site.unwrap_or(CallSite::NOWHERE);
        Err(self.fault_at(FaultKind::Protocol, site, format!("the thread ends with {what}")))
    }

    /// Checks one side of a copy; `shared` says which memory it must be in. Returns the resident block of
    /// shared memory.
    fn require(
        &mut self,
        touch: Touch,
        stamp: Stamp,
        shared: bool,
        site: CallSite,
    ) -> Result<Option<usize>, Stop> {
        self.thread().site = site;
        match (self.check(touch, Some(stamp))?, shared) {
            (Place::Shared { block, .. }, true) => Ok(Some(block)),
            (Place::Global, false) => Ok(None),
            _ => {
                let kind = if shared { "shared" } else { "global" };
                let message = format!("a copy's address {:#x} is not in {kind} memory", touch.address);
                Err(self.fault_at(FaultKind::Protocol, site, message))
            }
        }
    }

    /// Checks a side that must be in the thread's own shared memory.
    fn require_in_block(&mut self, touch: Touch, stamp: Stamp, site: CallSite) -> Result<(), Stop> {
        if self.require(touch, stamp, true, site)? == Some(self.current_block()) {
            return Ok(());
        }
        let message = "a copy's shared memory must be the block's own".into();
        Err(self.fault_at(FaultKind::Protocol, site, message))
    }

    fn require_bulk_size(&mut self, bytes: usize, site: CallSite) -> Result<(), Stop> {
        if bytes > 0 && bytes.is_multiple_of(16) {
            return Ok(());
        }
        let message = format!("a bulk copy of {bytes} bytes: sizes are positive multiples of 16");
        Err(self.fault_at(FaultKind::Misaligned, site, message))
    }
}
