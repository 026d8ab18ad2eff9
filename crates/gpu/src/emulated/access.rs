//! Loads, stores, atomics and fences of the running thread.

use std::ops::Range;

use super::block::{Block, Visit};
use super::clocks::{Passage, Slot, Space};
use super::interruption;
use super::launch::{Flow, Launch, Step, Stop};
use super::memory::{Region, RegionState};
use super::operations::{read_word, write_word};
use super::shadow::{Accessor, Manner, Stamp};
use crate::abi::{AtomicOp, FenceKind, Order, Scope};
use crate::types::{FaultKind, Site};

/// Where an address points.
pub(super) enum Place {
    /// Of the resident block with that number, the running thread's own or one of its cluster.
    Shared {
        block: usize,
        offset: usize,
    },
    Global,
    /// A constant of the kernel, or one of its arguments before the thread has copied it.
    Constant,
}

/// One access as the kernel makes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touch {
    pub(super) address: usize,
    pub(super) bytes: usize,
    pub(super) write: bool,
    /// Whether a write depends on what is there.
    pub(super) updates: bool,
    /// The address must be a multiple of this.
    pub(super) alignment: usize,
    pub(super) manner: Manner,
    /// Program counter within the image, 0 if unknown.
    pub(super) pc: u32,
}

/// What atomics on one address have been given to pass on, and who wrote there last.
pub(super) struct Published {
    passage: Passage,
    writer: (u32, Slot),
}

/// An atomic as the kernel makes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Atomic {
    pub(super) op: AtomicOp,
    pub(super) value: u64,
    pub(super) compare: u64,
    pub(super) order: Order,
    pub(super) scope: Scope,
}

impl Launch {
    /// A plain load or store, seen before it happens.
    pub(super) fn touch(&mut self, touch: Touch) -> Step {
        let (low, high) = self.stack();
        if touch.address >= low && touch.address.saturating_add(touch.bytes) <= high {
            return self.touch_local(touch);
        }
        self.check(touch, None)?;
        if touch.write {
            self.quiet = 0;
        }
        let flow = self.burn();
        if flow == Flow::Wait && interruption::is_overdue() {
            let site = self.line_of_code(touch.pc);
            return Err(self.out_of_time(site));
        }
        Ok(flow)
    }

    /// A volatile load or store, seen before it happens. In global memory it is a relaxed one of the system's
    /// scope, as PTX has it: flags are polled so. In shared memory it is an ordinary one: there the word stands
    /// for the barrier of a warp that is missing, which it is not.
    pub(super) fn touch_volatile(&mut self, touch: Touch) -> Step {
        let Touch { address, bytes, write, .. } = touch;
        let (low, high) = self.stack();
        let is_local = address >= low && address.saturating_add(bytes) <= high;
        let is_shared =
            self.block().shared.offset(address, bytes).is_some() || self.of_cluster(address, bytes).is_some();
        if is_local || is_shared || !matches!(bytes, 1 | 2 | 4 | 8) {
            return self.touch(touch);
        }
        let manner = Manner::Atomic(Scope::System.into(), bytes as u8);
        self.check(Touch { manner, ..touch }, None)?;
        let op = if write {
            self.quiet = 0;
            AtomicOp::Store
        } else {
            self.count_volatile();
            AtomicOp::Load
        };
        if interruption::is_overdue() {
            let site = self.line_of_code(touch.pc);
            return Err(self.out_of_time(site));
        }
        self.pass_on(
            address,
            Atomic { op, value: 0, compare: 0, order: Order::Relaxed, scope: Scope::System },
        );
        Ok(Flow::Go)
    }

    /// Checks an access and records it for `stamp`, or for the running thread.
    pub(super) fn check(&mut self, touch: Touch, stamp: Option<Stamp>) -> Result<Place, Stop> {
        if !touch.address.is_multiple_of(touch.alignment) {
            let message =
                format!("{}, but the address is no multiple of {}", self.told(&touch), touch.alignment);
            return Err(self.fault_touch(FaultKind::Misaligned, touch, message));
        }
        let place = self.place(touch)?;
        if matches!(place, Place::Global) && self.grid.early && !self.thread().awaited {
            let message =
                format!("{} by a launch that starts early, before gw::await_stream()", self.told(&touch));
            return Err(self.fault_touch(FaultKind::Protocol, touch, message));
        }
        let coin = self.schedule.next() & 1 == 1;
        // Matrix loads have no counter: rows that are never looked at may be anything.
        let is_load = stamp.is_none() && touch.pc != 0;
        let stamp = match stamp {
            Some(stamp) => stamp,
            None => {
                let code = if touch.pc == 0 { self.code_of_call() } else { touch.pc };
                self.own_stamp(code)
            }
        };
        let (current, slot) = (self.current_block(), self.current_thread() as Slot);
        let clusters = &self.clusters;
        let (bytes, write, manner) = (touch.bytes, touch.write, touch.manner);
        let accessor = |number, knowledge, home| Accessor {
            block: number,
            slot,
            knowledge,
            manner,
            stamp,
            home,
            clusters,
        };
        let mut home = None;
        let raced = match place {
            Place::Shared { block, offset } if block == current => {
                let Block { number, threads, shadow, .. } = &mut self.blocks[current];
                home = Some(*number);
                let by = accessor(*number, &threads[usize::from(slot)].knowledge, home);
                shadow.access(offset, bytes, write, &by, coin)
            }
            Place::Shared { block, offset } => {
                // Taken out meanwhile: the clocks are the other block's.
                let mut shadow = std::mem::take(&mut self.blocks[block].shadow);
                home = Some(self.blocks[block].number);
                let mine = &self.blocks[current];
                let by = accessor(mine.number, &mine.threads[usize::from(slot)].knowledge, home);
                let raced = shadow.access(offset, bytes, write, &by, coin);
                self.blocks[block].shadow = shadow;
                raced
            }
            Place::Global => {
                let mine = &self.blocks[current];
                let by = accessor(mine.number, &mine.threads[usize::from(slot)].knowledge, None);
                self.global.access(touch.address, bytes, write, &by, coin)
            }
            Place::Constant => Ok(()),
        };
        raced.map_err(|other| self.race(touch, other, home))?;
        if is_load && (!touch.write || touch.updates) {
            self.check_written(&touch, &place);
        }
        if touch.write && manner != Manner::Reduction {
            self.mark_written(&touch, &place);
        }
        Ok(place)
    }

    /// Finds what an address belongs to.
    fn place(&mut self, touch: Touch) -> Result<Place, Stop> {
        let Touch { address, bytes, .. } = touch;
        // Saturating: an address near the top of the address space lies in no region.
        let end = address.saturating_add(bytes);
        if let Some(offset) = self.block().shared.offset(address, bytes) {
            return self.shared_place(touch, self.current_block(), offset);
        }
        if let Some((block, offset)) = self.of_cluster(address, bytes) {
            let visit =
                if touch.pc == 0 { Visit::Call(self.thread().site) } else { Visit::Counter(touch.pc) };
            // A copy's block waits for the copy, not for the thread that issued it.
            match touch.manner {
                Manner::Generic | Manner::ReadOnly | Manner::Atomic(..) => self.visit(block, visit)?,
                Manner::AsyncProxy | Manner::Reduction => self.check_peer(block, visit)?,
            }
            return self.shared_place(touch, block, offset);
        }
        let last = self.regions.get(self.last_region);
        if last.is_some_and(|region| {
            region.state == RegionState::Buffer && address >= region.start && end <= region.end
        }) {
            return Ok(Place::Global);
        }
        let after = self.regions.partition_point(|region| region.start <= address);
        let found = after.checked_sub(1).map(|index| (index, self.regions[index]));
        match found {
            Some((index, region)) if end <= region.end => match region.state {
                RegionState::Buffer => {
                    self.last_region = index;
                    Ok(Place::Global)
                }
                RegionState::Freed => {
                    let message = format!("{} in a buffer that was freed", self.told(&touch));
                    Err(self.fault_touch(FaultKind::FreedMemory, touch, message))
                }
                RegionState::OfPeer => {
                    let message = format!(
                        "{} in a buffer of another device, without Device::enable_peer_access",
                        self.told(&touch)
                    );
                    Err(self.fault_touch(FaultKind::OutOfBounds, touch, message))
                }
            },
            _ if self.is_constant(address..end) => {
                if !touch.write {
                    return Ok(Place::Constant);
                }
                let message = format!("{}, a constant, which kernels only read", self.told(&touch));
                Err(self.fault_touch(FaultKind::OutOfBounds, touch, message))
            }
            _ => {
                let whereabouts = self.whereabouts(address, after);
                Err(self.out_of_bounds(touch, whereabouts))
            }
        }
    }

    fn shared_place(&mut self, touch: Touch, block: usize, offset: usize) -> Result<Place, Stop> {
        let mbarriers = &self.blocks[block].mbarriers;
        if mbarriers.is_empty() {
            return Ok(Place::Shared { block, offset });
        }
        let barrier = mbarriers.range(..offset + touch.bytes).next_back();
        if barrier.is_some_and(|(&at, _)| at + 8 > offset) {
            let message = format!("{} that holds an mbarrier", self.told(&touch));
            return Err(self.fault_touch(FaultKind::Protocol, touch, message));
        }
        Ok(Place::Shared { block, offset })
    }

    pub(super) fn is_constant(&self, range: Range<usize>) -> bool {
        let holds = |outer: &Range<usize>| outer.start <= range.start && range.end <= outer.end;
        holds(self.entry.image()) || self.arguments.iter().any(holds)
    }

    fn out_of_bounds(&mut self, touch: Touch, whereabouts: String) -> Stop {
        let message = format!("{}, {whereabouts}", self.told(&touch));
        self.fault_touch(FaultKind::OutOfBounds, touch, message)
    }

    pub(super) fn fault_touch(&mut self, kind: FaultKind, touch: Touch, message: String) -> Stop {
        let site = self.site_of(&touch);
        self.fault(kind, Some(touch.address), site, message)
    }

    /// Where in the source an access is made.
    pub(super) fn site_of(&mut self, touch: &Touch) -> Option<Site> {
        match touch.pc {
            0 => self.thread().site.site(),
            pc => self.entry.line(pc),
        }
    }

    /// The region that an address is of, if it is of one.
    pub(super) fn region_of(&mut self, address: usize) -> Option<Region> {
        let within = |region: &&Region| address >= region.start && address < region.end;
        if let Some(region) = self.regions.get(self.last_region).filter(within) {
            return Some(*region);
        }
        let after = self.regions.partition_point(|region| region.start <= address);
        after.checked_sub(1).and_then(|index| self.regions.get(index)).filter(within).copied()
    }

    /// An atomic: checked, carried out, and a carrier of what was released.
    pub(super) fn atomic(&mut self, atomic: Atomic, touch: Touch) -> Result<(u64, Flow), Stop> {
        let Atomic { op, scope, value, compare, .. } = atomic;
        let place = self.check(touch, None)?;
        if let Place::Shared { block, .. } = place
            && block != self.current_block()
            && scope != Scope::Cluster
            && !op.reaches_other_blocks(touch.bytes)
        {
            let message = format!(
                "an atomic of {} bytes on another block's shared memory, which the hardware has not: give it \
                 Scope::Cluster, where it compares and exchanges",
                touch.bytes
            );
            return Err(self.fault(
                FaultKind::Protocol,
                Some(touch.address),
                self.entry.line(touch.pc),
                message,
            ));
        }
        let pointer = touch.address as *mut u8;
        // SAFETY: `check` found the bytes inside a live buffer, the cluster's shared memory or, to be read, a
        // constant, aligned; the launch is the only one that touches them now.
        let before = unsafe { read_word(pointer, touch.bytes) };
        let after = op.apply(before, value, compare, touch.bytes);
        if op.writes() && after != before {
            self.quiet = 0;
        } else {
            self.count_quiet()?;
        }
        if op.writes() {
            // SAFETY: as above, and constants are not written: `check` knew that this is a write.
            unsafe { write_word(pointer, touch.bytes, after) };
        }
        if interruption::is_overdue() {
            let site = self.line_of_code(touch.pc);
            return Err(self.out_of_time(site));
        }
        self.pass_on(touch.address, atomic);
        Ok((before, self.may_preempt()))
    }

    /// The release and acquire sides of an atomic. A relaxed one carries what fences before it released, to
    /// fences after those that read it. A store by another thread ends what came before; an update hands it
    /// on.
    fn pass_on(&mut self, address: usize, atomic: Atomic) {
        let Atomic { op, order, scope, .. } = atomic;
        let (at, slot) = (self.block().address, self.current_thread() as Slot);
        if op.reads()
            && let Some(published) = self.published.get(&address)
        {
            let heard = published.passage.for_thread(at, scope);
            let mut carried = Passage::default();
            carried.join(&published.passage, scope);
            let thread = self.thread();
            if matches!(order, Order::Acquire | Order::AcquireRelease) {
                thread.knowledge.hear(&heard, at.block);
            } else {
                thread.acquired.join(&carried, scope);
            }
        }
        if !op.writes() {
            return;
        }
        let released = match order {
            Order::Release | Order::AcquireRelease => self.release(scope),
            Order::Relaxed | Order::Acquire => self.thread().released.clone(),
        };
        let writer = (at.block, slot);
        let entry = self
            .published
            .entry(address)
            .or_insert_with(|| Published { passage: Passage::default(), writer });
        if op == AtomicOp::Store && entry.writer != writer {
            entry.passage = Passage::default();
        }
        entry.passage.join(&released, scope);
        entry.writer = writer;
    }

    /// What the running thread knows and did until now, for others in `scope`.
    fn release(&mut self, scope: Scope) -> Passage {
        let (at, slot) = (self.block().address, self.current_thread() as Slot);
        let thread = self.thread();
        thread.knowledge.own.seen.raise(slot, thread.time);
        thread.time += 1;
        Passage::of(&thread.knowledge.told_by(at.block), at, scope)
    }

    pub(super) fn fence(&mut self, kind: FenceKind) {
        let spaces: &[Space] = match kind {
            FenceKind::Block => return self.fence_memory(Scope::Block),
            FenceKind::Cluster => return self.fence_memory(Scope::Cluster),
            FenceKind::Device => return self.fence_memory(Scope::Device),
            FenceKind::System => return self.fence_memory(Scope::System),
            FenceKind::MbarrierInit => return self.publish_mbarriers(),
            FenceKind::Wgmma => return self.fence_products(),
            FenceKind::AsyncShared => &[Space::Shared],
            FenceKind::AsyncCluster => &[Space::Shared, Space::Remote],
            FenceKind::AsyncGlobal => &[Space::Global],
            FenceKind::AsyncAll => &[Space::Shared, Space::Remote, Space::Global],
        };
        self.fence_proxy(spaces);
    }

    /// Relaxed atomics before this have acquired, and those after it release. Memory is sequentially
    /// consistent here, so that `fence.sc` does no more.
    fn fence_memory(&mut self, scope: Scope) {
        let at = self.block().address;
        let thread = self.thread();
        if !thread.acquired.is_empty() {
            let heard = thread.acquired.for_thread(at, scope);
            thread.knowledge.hear(&heard, at.block);
        }
        if matches!(scope, Scope::Device | Scope::System) {
            thread.acquired = Passage::default();
        }
        // A narrow fence takes nothing away from a wide one before it.
        let released = self.release(scope);
        self.thread().released.join(&released, scope);
    }

    /// What the thread itself wrote, or had its copies write, the asynchronous proxy now sees.
    fn fence_proxy(&mut self, spaces: &[Space]) {
        let slot = self.current_thread() as Slot;
        let thread = self.thread();
        let agents = [thread.copies.agent(), thread.stores.agent(), Some((slot, thread.time))];
        for &space in spaces {
            let proxied = thread.knowledge.own.proxied_mut(space);
            for (agent, time) in agents.into_iter().flatten() {
                proxied.raise(agent, time);
            }
        }
        thread.time += 1;
        // Bulk copies belong to that proxy, so they see the barriers that this thread initialised too.
        if spaces.contains(&Space::Shared) {
            self.publish_mbarriers();
        }
    }
}
