//! What a block may touch of the others in its cluster: distributed shared memory.

use super::block::{CallSite, Visit};
use super::clocks::Slot;
use super::launch::{Launch, Stop};
use crate::types::FaultKind;

impl Launch {
    /// The other block of the running thread's cluster that an address lies in, and the place there.
    pub(super) fn of_cluster(&self, address: usize, bytes: usize) -> Option<(usize, usize)> {
        let current = self.current_block();
        let mut others = self.peers().filter(|slot| *slot != current);
        others.find_map(|slot| Some((slot, self.blocks[slot].shared.offset(address, bytes)?)))
    }

    /// The resident blocks of the running thread's cluster, by rank.
    fn peers(&self) -> std::ops::Range<usize> {
        let size = self.clusters.size();
        let first = self.current_block() / size * size;
        first..first + size
    }

    /// The resident block of that rank in the running thread's cluster.
    pub(super) fn peer(&mut self, rank: u32, site: CallSite) -> Result<usize, Stop> {
        let peers = self.peers();
        if (rank as usize) < peers.len() {
            return Ok(peers.start + rank as usize);
        }
        let message = format!("block {rank} of a cluster of {}", peers.len());
        Err(self.fault_at(FaultKind::Protocol, site, message))
    }

    /// `mapa`: where byte `address` of the thread's own shared memory lies in the block of that rank.
    pub(super) fn map_to_peer(&mut self, address: usize, rank: u32, site: CallSite) -> Result<usize, Stop> {
        let peer = self.peer(rank, site)?;
        // One past the end is an address too.
        let base = self.block().shared.base();
        let offset = address.wrapping_sub(base);
        if offset > self.block().shared.bytes {
            let message = format!("{address:#x} is no address of the block's shared memory");
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        Ok(self.blocks[peer].shared.base() + offset)
    }

    /// Another block's shared memory may be touched once that has started, and until it ends.
    pub(super) fn check_peer(&mut self, slot: usize, visit: Visit) -> Result<(), Stop> {
        let (mine, home) = (self.block().number, self.blocks[slot].number);
        let state = self.thread();
        let started = state.cluster_waits > 0 || state.knowledge.of(home, mine).is_some();
        if self.blocks[slot].live == 0 {
            let message = format!("shared memory of block number {home} is touched, and the block has ended");
            return Err(self.fault_visit(FaultKind::FreedMemory, visit, message));
        }
        if !started {
            let message = format!(
                "race: shared memory of block number {home} is touched, and the block may not have started: meet at a \
                 cluster barrier first"
            );
            return Err(self.fault_visit(FaultKind::Race, visit, message));
        }
        Ok(())
    }

    /// Notes that the running thread touches shared memory of another block, which must not end before it
    /// knows.
    pub(super) fn visit(&mut self, slot: usize, visit: Visit) -> Result<(), Stop> {
        self.check_peer(slot, visit)?;
        let (mine, thread, time) = (self.block().number, self.current_thread() as Slot, self.thread().time);
        self.blocks[slot].visits.insert((mine, thread), (time, visit));
        Ok(())
    }

    fn fault_visit(&mut self, kind: FaultKind, visit: Visit, message: String) -> Stop {
        let site = match visit {
            Visit::Counter(pc) => self.entry.line(pc),
            Visit::Call(site) => site.site(),
        };
        self.fault(kind, None, site, message)
    }

    /// A block that ends must know that copies into and out of its shared memory are over, and visits of
    /// other blocks too.
    pub(super) fn check_block_end(&mut self) -> Result<(), Stop> {
        let slot = self.current_block();
        let block = &self.blocks[slot];
        if block.live > 0 {
            return Ok(());
        }
        let flying = self.flights.iter().find(|flight| flight.is_for(slot)).map(|flight| flight.site);
        let nothing_to_ask =
            block.visits.is_empty() && block.departures.is_empty() && block.mbarriers.is_empty();
        if flying.is_none() && nothing_to_ask {
            return Ok(());
        }
        let (mine, known) = (block.number, block.knowledge());
        let knows =
            |block, slot, time| known.of(block, mine).is_some_and(|known| known.seen.get(slot) >= time);
        let landing = block.mbarriers.values().find_map(|barrier| barrier.unawaited_copy(&known));
        let leaving = block.departures.iter().find(|(to, agent, time, _)| !knows(*to, *agent, *time));
        let copy = flying.or(landing).or(leaving.map(|(.., site)| *site));
        let visit = block.visits.iter().find(|((by, slot), (time, _))| !knows(*by, *slot, *time));
        if let Some(site) = copy {
            let message = format!(
                "block number {mine} ends while a bulk copy of its shared memory may be in flight: nobody there waited for it"
            );
            return Err(self.fault_at(FaultKind::FreedMemory, site, message));
        }
        let Some((&(by, _), &(_, visit))) = visit else { return Ok(()) };
        let message = format!(
            "shared memory of block number {mine} is touched by block number {by}, and nothing keeps the block from ending \
             before: meet at a cluster barrier after it"
        );
        Err(self.fault_visit(FaultKind::FreedMemory, visit, message))
    }
}
