//! Device memory of the emulated device: host memory with guard zones, poisoned, and remembered after it is
//! freed.

use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::arena::Arena;
use super::marks::Marks;

/// Every buffer starts at a multiple of this, as the CUDA allocators promise at least 256.
const ALIGNMENT: usize = 512;
/// Bytes around a buffer that belong to nobody.
const GUARD: usize = 512;
/// Freed bytes that keep what they held, for copies and kernels that come too late.
const QUARANTINE: usize = 64 << 20;
/// What unwritten memory holds: not-a-number in every float format.
pub(super) const POISON: u8 = 0xFF;

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
    arenas: Vec<Arena>,
    blocks: BTreeMap<usize, Block>,
    /// Where freed buffers lay that were given back: starts, and ends.
    graves: BTreeMap<usize, usize>,
    quarantine: VecDeque<usize>,
    quarantined: usize,
    pub(super) held: u64,
    total: u64,
}

impl Memory {
    pub(super) fn new(total: u64) -> Self {
        Self {
            arenas: Vec::new(),
            blocks: BTreeMap::new(),
            graves: BTreeMap::new(),
            quarantine: VecDeque::new(),
            quarantined: 0,
            held: 0,
            total,
        }
    }

    pub(super) fn allocate(&mut self, bytes: usize) -> Option<usize> {
        if self.held.saturating_add(bytes as u64) > self.total {
            return None;
        }
        let start = self.insert(bytes, POISON, false)?;
        self.held += bytes as u64;
        Some(start)
    }

    /// Page-locked memory of the host, zeroed.
    pub(super) fn allocate_of_host(&mut self, bytes: usize) -> Option<usize> {
        self.insert(bytes, 0, true)
    }

    pub(super) fn free_of_host(&mut self, start: usize) -> Option<Range<usize>> {
        self.blocks.get(&start).filter(|block| block.of_host)?;
        self.release(start)
    }

    fn insert(&mut self, bytes: usize, filled_with: u8, of_host: bool) -> Option<usize> {
        let taken = self.arenas.last_mut().and_then(|arena| arena.take(bytes, GUARD, ALIGNMENT));
        let start = match taken {
            Some(start) => start,
            None => {
                let mut arena = Arena::new(bytes.checked_add(2 * GUARD + ALIGNMENT)?)?;
                let start = arena.take(bytes, GUARD, ALIGNMENT)?;
                self.arenas.push(arena);
                start
            }
        };
        // SAFETY: the block holds `bytes` bytes from `start`.
        unsafe { std::ptr::write_bytes(start as *mut u8, filled_with, bytes) };
        let written = Box::new(UnsafeCell::new(Marks::new(if of_host { 0 } else { bytes })));
        self.blocks.insert(start, Block { bytes, freed: false, of_host, written });
        Some(start)
    }

    /// Frees a buffer. Returned are the addresses of buffers freed before, whose bytes are let go of now.
    pub(super) fn free(&mut self, start: usize) -> Vec<Range<usize>> {
        let Some(block) = self.blocks.get_mut(&start).filter(|block| !block.freed) else { return Vec::new() };
        block.freed = true;
        self.held -= block.bytes as u64;
        self.quarantined += block.bytes;
        self.quarantine.push_back(start);
        let mut released = Vec::new();
        while self.quarantined > QUARANTINE {
            let Some(oldest) = self.quarantine.pop_front() else { break };
            let Some(bytes) = self.release(oldest) else { break };
            self.quarantined -= bytes.len();
            released.push(bytes);
        }
        released
    }

    /// Whether `start .. start + bytes` lies in one live buffer.
    pub(super) fn holds(&self, start: usize, bytes: usize) -> bool {
        let found = self.blocks.range(..=start).next_back();
        found.is_some_and(|(&at, block)| {
            !block.freed && !block.of_host && start - at <= block.bytes && bytes <= block.bytes - (start - at)
        })
    }

    /// Whether `start .. start + bytes` lies in page-locked memory of the host.
    pub(super) fn holds_of_host(&self, start: usize, bytes: usize) -> bool {
        let found = self.blocks.range(..=start).next_back();
        found.is_some_and(|(&at, block)| block.of_host && start + bytes <= at + block.bytes)
    }

    /// Bytes of the live buffer that starts there.
    pub(super) fn bytes_of(&self, start: usize) -> usize {
        self.blocks.get(&start).filter(|block| !block.freed).map_or(0, |block| block.bytes)
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
        let grave = |(&start, &end): (&usize, &usize)| Region {
            start,
            end,
            state: RegionState::Freed,
            written: std::ptr::null_mut(),
        };
        let mut regions: Vec<Region> =
            self.blocks.iter().map(region).chain(self.graves.iter().map(grave)).collect();
        regions.sort_unstable_by_key(|region| region.start);
        regions
    }

    fn release(&mut self, start: usize) -> Option<Range<usize>> {
        let block = self.blocks.remove(&start)?;
        let bytes = start..start + block.bytes;
        let grave = self.bury(bytes.clone());
        if let Some(arena) = self.arenas.iter().find(|arena| arena.contains(start)) {
            arena.give_back(bytes.clone(), grave);
        }
        Some(bytes)
    }

    /// Remembers where a buffer was. Graves of one arena with no buffer between them are one, which comes
    /// back.
    fn bury(&mut self, bytes: Range<usize>) -> Range<usize> {
        let Range { mut start, mut end } = bytes;
        let arena = self.arenas.iter().find(|arena| arena.contains(start));
        let is_here = |address: usize| arena.is_some_and(|arena| arena.contains(address));
        if let Some((&before, _)) = self.graves.range(..start).next_back()
            && is_here(before)
            && self.blocks.range(before..start).next().is_none()
        {
            start = before;
        }
        if let Some((&next, &last)) = self.graves.range(end..).next()
            && is_here(next)
            && self.blocks.range(end..next).next().is_none()
        {
            self.graves.remove(&next);
            end = last;
        }
        self.graves.insert(start, end);
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_stays_recognisable() {
        let mut memory = Memory::new(1 << 40);
        let (first, kept) = (memory.allocate(100).unwrap(), memory.allocate(100).unwrap());
        memory.free(first);
        // Far more than the quarantine holds.
        for _ in 0..40 {
            let start = memory.allocate(8 << 20).unwrap();
            memory.free(start);
            assert!(!memory.holds(start, 1));
        }
        let regions = memory.regions();
        let state = |address| regions.iter().find(|region| (region.start..region.end).contains(&address));
        assert_eq!(state(first).map(|region| region.state), Some(RegionState::Freed));
        assert_eq!(state(kept).map(|region| region.state), Some(RegionState::Buffer));
        assert!(regions.is_sorted_by_key(|region| region.start));
        assert!(regions.len() < 16, "graves side by side are one: {}", regions.len());
        assert!(memory.held == 100 && memory.quarantined <= QUARANTINE);
    }
}
