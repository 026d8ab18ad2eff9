//! Loads, stores, atomics and fences of the running thread.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::block::Agent;
use super::clocks::{Clocks, Slot, join_foreign};
use super::launch::{Flow, Launch, Step, Stop};
use super::memory::RegionState;
use super::shadow::{Access, Accessor, Manner, Stamp};
use crate::abi::{AtomicOp, FenceKind};
use crate::types::{FaultKind, Site};

/// Where an address points.
pub(super) enum Place {
    Shared {
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
    /// The address must be a multiple of this.
    pub(super) alignment: usize,
    pub(super) manner: Manner,
    /// Program counter within the image, 0 if unknown.
    pub(super) pc: u32,
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
        Ok(self.burn())
    }

    /// Checks an access and records it for `stamp`, or for the running thread.
    pub(super) fn check(&mut self, touch: Touch, stamp: Option<Stamp>) -> Result<Place, Stop> {
        if !touch.address.is_multiple_of(touch.alignment) {
            let message = format!("{}, but the address is no multiple of {}", told(&touch), touch.alignment);
            return Err(self.fault_touch(FaultKind::Misaligned, touch, message));
        }
        let place = self.place(touch)?;
        if matches!(place, Place::Global) && self.grid.early && !self.thread().awaited {
            let message =
                format!("{} by a launch that starts early, before gw::await_stream()", told(&touch));
            return Err(self.fault_touch(FaultKind::Protocol, touch, message));
        }
        let coin = self.schedule.next() & 1 == 1;
        let stamp = match stamp {
            Some(stamp) => stamp,
            None => self.own_stamp(touch.pc),
        };
        let (current, slot) = (self.current_block(), self.current_thread() as Slot);
        let block = &mut self.blocks[current];
        let by = Accessor {
            block: block.number,
            slot,
            knowledge: &block.threads[usize::from(slot)].knowledge,
            manner: touch.manner,
            stamp,
        };
        let raced = match place {
            Place::Shared { offset } => block.shadow.access(offset, touch.bytes, touch.write, &by, coin),
            Place::Global => self.global.access(touch.address, touch.bytes, touch.write, &by, coin),
            Place::Constant => Ok(()),
        };
        raced.map_err(|other| self.race(touch, other))?;
        Ok(place)
    }

    /// Finds what an address belongs to.
    fn place(&mut self, touch: Touch) -> Result<Place, Stop> {
        let Touch { address, bytes, .. } = touch;
        // Saturating: an address near the top of the address space lies in no region.
        let end = address.saturating_add(bytes);
        if let Some(offset) = self.block().shared.offset(address, bytes) {
            let barrier = self.block().mbarriers.range(..offset + bytes).next_back();
            if barrier.is_some_and(|(&at, _)| at + 8 > offset) {
                let message = format!("{} that holds an mbarrier", told(&touch));
                return Err(self.fault_touch(FaultKind::Protocol, touch, message));
            }
            return Ok(Place::Shared { offset });
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
                    let message = format!("{} in a buffer that was freed", told(&touch));
                    Err(self.fault_touch(FaultKind::FreedMemory, touch, message))
                }
            },
            _ if !touch.write && self.is_constant(address..end) => Ok(Place::Constant),
            _ => {
                let whereabouts = self.whereabouts(address, after);
                Err(self.out_of_bounds(touch, whereabouts))
            }
        }
    }

    fn is_constant(&self, range: Range<usize>) -> bool {
        let holds = |outer: &Range<usize>| outer.start <= range.start && range.end <= outer.end;
        holds(self.entry.image()) || self.arguments.iter().any(holds)
    }

    fn whereabouts(&mut self, address: usize, after: usize) -> String {
        let shared = self.block().shared.bytes;
        let base = self.block().shared.base();
        if shared > 0 && address >= base && address < base + shared + 4096 {
            return format!("{} bytes into the block's {shared} bytes of shared memory", address - base);
        }
        let before = after.checked_sub(1).map(|index| self.regions[index]);
        match before.filter(|region| address < region.end + 4096) {
            Some(region) => {
                format!(
                    "{} bytes into a buffer of {} bytes",
                    address - region.start,
                    region.end - region.start
                )
            }
            None => "in no buffer of this device".into(),
        }
    }

    fn out_of_bounds(&mut self, touch: Touch, whereabouts: String) -> Stop {
        let message = format!("{}, {whereabouts}", told(&touch));
        self.fault_touch(FaultKind::OutOfBounds, touch, message)
    }

    fn fault_touch(&mut self, kind: FaultKind, touch: Touch, message: String) -> Stop {
        let site = match touch.pc {
            0 => self.thread().site.site(),
            pc => self.line_of(pc),
        };
        self.fault(kind, Some(touch.address), site, message)
    }

    fn line_of(&self, pc: u32) -> Option<Site> {
        self.entry.line(pc)
    }

    fn race(&mut self, touch: Touch, other: Access) -> Stop {
        let mine = self.block().number;
        let who = if other.stamp.block == mine {
            let agent = self.block().agents[usize::from(other.stamp.slot)];
            self.name(agent)
        } else {
            format!("a thread of block number {}", other.stamp.block)
        };
        let place = self.line_of(other.stamp.pc).map_or_else(String::new, |site| format!(" at {site}"));
        let proxy = if touch.manner == Manner::AsyncProxy {
            " (a write must also be fenced with fence_async_proxy before a bulk copy or wgmma may follow it)"
        } else {
            ""
        };
        let message =
            format!("race: {}, which {who} also touches{place}; nothing orders the two{proxy}", told(&touch));
        self.fault_touch(FaultKind::Race, touch, message)
    }

    fn name(&mut self, agent: Agent) -> String {
        let block = self.block();
        match agent {
            Agent::Thread(thread) => format!("thread {:?}", block.threads[thread].index),
            Agent::Mbarrier(offset) => format!("a bulk copy for the mbarrier at shared offset {offset}"),
            Agent::CopyGroup(thread) => {
                format!("a cp.async group of thread {:?}", block.threads[thread].index)
            }
            Agent::StoreRead(thread) | Agent::StoreWrite(thread) => {
                format!("a bulk store of thread {:?}", block.threads[thread].index)
            }
            Agent::Products(warp) => format!("a wgmma of warp {warp}"),
        }
    }

    /// An atomic: checked, carried out, and a carrier of what fences released.
    pub(super) fn atomic(
        &mut self,
        op: AtomicOp,
        touch: Touch,
        value: u64,
        compare: u64,
    ) -> Result<(u64, Flow), Stop> {
        self.check(touch, None)?;
        let pointer = touch.address as *mut u8;
        // SAFETY: `check` found the bytes inside a live buffer, the block's shared memory or, to be read, a constant,
        // aligned; the launch is the only one that touches them now.
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
        self.pass_on(touch.address, op);
        let turn = self.schedule.below(4) == 0;
        Ok((before, if turn { self.preempt() } else { self.burn() }))
    }

    /// The release and acquire sides of an atomic, as C++ has them for relaxed atomics between fences.
    fn pass_on(&mut self, address: usize, op: AtomicOp) {
        let (block, thread) = (self.current_block(), self.current_thread());
        let thread = &mut self.blocks[block].threads[thread];
        if op.reads()
            && let Some(published) = self.published.get(&address)
        {
            thread.acquired.join(published);
        }
        if op.writes() {
            self.published.entry(address).or_default().join(&thread.released);
        }
    }

    pub(super) fn fence(&mut self, kind: FenceKind) {
        let (slot, number) = (self.current_thread(), self.block().number);
        let copies = self.thread().copies.agent();
        let thread = self.thread();
        match kind {
            FenceKind::Block | FenceKind::Device | FenceKind::System => {
                let narrow = kind == FenceKind::Block;
                for passage in [&thread.acquired.device, &thread.acquired.block] {
                    if let Some(mine) = passage.as_ref().and_then(|passage| passage.get(&number)) {
                        thread.knowledge.seen.join(mine);
                    }
                }
                thread.acquired.block = None;
                if !narrow {
                    let acquired = thread.acquired.device.take();
                    join_foreign(&mut thread.knowledge.foreign, &acquired);
                }
                let mut seen: Clocks = thread.knowledge.seen.clone();
                seen.raise(slot as Slot, thread.time);
                thread.time += 1;
                if !narrow {
                    let mut device = thread.knowledge.foreign.as_deref().cloned().unwrap_or_default();
                    device.insert(number, seen.clone());
                    thread.released.device = Some(Rc::new(device));
                }
                thread.released.block = Some(Rc::new(BTreeMap::from([(number, seen)])));
            }
            FenceKind::AsyncProxy => {
                thread.knowledge.proxied.raise(slot as Slot, thread.time);
                if let Some((agent, finished)) = copies {
                    thread.knowledge.proxied.raise(agent, finished);
                }
                thread.time += 1;
                // Bulk copies belong to that proxy, so they see the barriers that this thread initialised too.
                self.publish_mbarriers();
            }
            FenceKind::MbarrierInit => self.publish_mbarriers(),
            FenceKind::Wgmma => self.fence_products(),
        }
    }
}

fn told(touch: &Touch) -> String {
    let verb = match (touch.manner, touch.write) {
        (Manner::Atomic, _) => "updates atomically",
        (_, true) => "writes",
        (_, false) => "reads",
    };
    format!("{verb} {} bytes at {:#x}", touch.bytes, touch.address)
}

/// # Safety
/// `pointer` is valid and aligned for `bytes`, 4 or 8.
unsafe fn read_word(pointer: *const u8, bytes: usize) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { if bytes == 4 { u64::from(pointer.cast::<u32>().read()) } else { pointer.cast::<u64>().read() } }
}

/// # Safety
/// `pointer` is valid and aligned for `bytes`, 4 or 8.
unsafe fn write_word(pointer: *mut u8, bytes: usize, value: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        if bytes == 4 {
            pointer.cast::<u32>().write(value as u32);
        } else {
            pointer.cast::<u64>().write(value);
        }
    }
}
