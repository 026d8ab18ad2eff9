//! Device memory of the emulated device: host memory with guard zones, poisoned, and remembered after it is freed.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};

use super::marks::Marks;

/// Every buffer starts at a multiple of this, as the CUDA allocators promise at least 256.
const ALIGNMENT: usize = 512;
/// Bytes around a buffer that belong to nobody.
const GUARD: usize = 512;
/// Freed bytes that are kept from reuse, so that a late access is recognised.
const QUARANTINE: usize = 64 << 20;
/// What unwritten memory holds: not-a-number in every float format.
const POISON: u8 = 0xFF;

/// A run of addresses that a kernel may touch, or has lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Region {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) state: RegionState,
    /// Which bytes somebody has written; null for memory of the host, where all count as such.
    pub(super) written: *mut Marks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegionState {
    Buffer,
    Freed,
    /// A buffer of another device, which this one may not touch.
    OfPeer,
}

#[derive(Debug)]
struct Block {
    bytes: usize,
    freed: bool,
    /// Page-locked memory of the host, which kernels may touch too.
    of_host: bool,
    written: Box<UnsafeCell<Marks>>,
}

/// All memory of one emulated device.
#[derive(Debug)]
pub(super) struct Memory {
    blocks: BTreeMap<usize, Block>,
    quarantine: VecDeque<usize>,
    quarantined: usize,
    pub(super) held: u64,
    pub(super) total: u64,
}

impl Memory {
    pub(super) fn new(total: u64) -> Self {
        Self { blocks: BTreeMap::new(), quarantine: VecDeque::new(), quarantined: 0, held: 0, total }
    }

    pub(super) fn allocate(&mut self, bytes: usize) -> Option<usize> {
        if self.held.saturating_add(bytes as u64) > self.total {
            return None;
        }
        let layout = layout(bytes)?;
        let start = self.insert(layout, bytes, POISON, false)?;
        self.held += bytes as u64;
        Some(start)
    }

    /// Page-locked memory of the host, zeroed.
    pub(super) fn allocate_of_host(&mut self, bytes: usize) -> Option<usize> {
        self.insert(layout(bytes)?, bytes, 0, true)
    }

    pub(super) fn free_of_host(&mut self, start: usize) {
        if self.blocks.get(&start).is_some_and(|block| block.of_host) {
            self.release(start);
        }
    }

    fn insert(&mut self, layout: Layout, bytes: usize, filled_with: u8, of_host: bool) -> Option<usize> {
        // SAFETY: the layout is not empty: it holds the guards.
        let base = unsafe { alloc(layout) };
        if base.is_null() {
            return None;
        }
        let start = base as usize + GUARD;
        // SAFETY: the block holds `bytes` bytes from `start`.
        unsafe { std::ptr::write_bytes(start as *mut u8, filled_with, bytes) };
        let written = Box::new(UnsafeCell::new(Marks::new(if of_host { 0 } else { bytes })));
        self.blocks.insert(start, Block { bytes, freed: false, of_host, written });
        Some(start)
    }

    pub(super) fn free(&mut self, start: usize) {
        let Some(block) = self.blocks.get_mut(&start).filter(|block| !block.freed) else { return };
        block.freed = true;
        self.held -= block.bytes as u64;
        self.quarantined += block.bytes;
        self.quarantine.push_back(start);
        while self.quarantined > QUARANTINE {
            let Some(oldest) = self.quarantine.pop_front() else { break };
            self.quarantined -= self.release(oldest);
        }
    }

    /// Whether `start .. start + bytes` lies in one live buffer.
    pub(super) fn holds(&self, start: usize, bytes: usize) -> bool {
        let found = self.blocks.range(..=start).next_back();
        found.is_some_and(|(&at, block)| {
            !block.freed && !block.of_host && start - at <= block.bytes && bytes <= block.bytes - (start - at)
        })
    }

    /// Which of the bytes `start .. start + bytes` of one buffer somebody has written; none for all of them.
    pub(super) fn marks(&mut self, start: usize, bytes: usize) -> Option<Vec<bool>> {
        let (&at, block) = self.blocks.range_mut(..=start).next_back().filter(|(_, block)| !block.of_host)?;
        let (marks, from) = (block.written.get_mut(), start - at);
        if marks.has(from, bytes) {
            return None;
        }
        Some((from..from + bytes).map(|byte| marks.has(byte, 1)).collect())
    }

    /// Bytes of one buffer were written with what has such marks.
    pub(super) fn set_marks(&mut self, start: usize, bytes: usize, marks: Option<&[bool]>) {
        let found = self.blocks.range_mut(..=start).next_back();
        let Some((&at, block)) = found.filter(|(_, block)| !block.of_host) else { return };
        let (written, from) = (block.written.get_mut(), start - at);
        match marks {
            None => written.set(from, bytes, true),
            Some(marks) => {
                let each = marks.iter().enumerate();
                each.for_each(|(byte, marked)| written.set(from + byte, 1, *marked));
            }
        }
    }

    pub(super) fn regions(&self) -> Vec<Region> {
        let region = |(&start, block): (&usize, &Block)| Region {
            start,
            end: start + block.bytes,
            state: if block.freed { RegionState::Freed } else { RegionState::Buffer },
            written: if block.of_host { std::ptr::null_mut() } else { block.written.get() },
        };
        self.blocks.iter().map(region).collect()
    }

    fn release(&mut self, start: usize) -> usize {
        let Some(block) = self.blocks.remove(&start) else { return 0 };
        if let Some(layout) = layout(block.bytes) {
            // SAFETY: the block was allocated with this layout, `GUARD` before its start, and is freed once.
            unsafe { dealloc((start - GUARD) as *mut u8, layout) };
        }
        block.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let starts: Vec<usize> = self.blocks.keys().copied().collect();
        for start in starts {
            self.release(start);
        }
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(2 * GUARD)?, ALIGNMENT).ok()
}
