//! Shadow memory: for every word, who wrote it last and who read it since.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::clocks::{Knowledge, Slot, Space};
use super::cluster::{Clusters, Reach};
use super::streams::{self, Run};

/// Bytes that one cell stands for.
const GRAIN: usize = 4;
/// Cells of one page of the shadow of global memory.
const PAGE_CELLS: usize = 1024;
/// Groups of readers that are kept of one word, and of all words of a block or of a launch, some 250 MB.
const CROWD_OF_WORD: usize = 1024;
const CROWD: usize = 8 << 20;
/// Groups that are looked at for one like a new one, or one that gives way: blocks that run side by side come
/// in turns.
const NEAR: usize = 16;

/// How an access is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// An ordinary load or store, or a `cp.async` copy.
    Generic,
    /// A load through the read-only path: the word must not change while the kernel runs.
    ReadOnly,
    /// An atomic on so many bytes, which never races with another on the same whose scope is wide enough for
    /// both.
    Atomic(Reach, u8),
    /// By a bulk copy or a matrix product: sees ordinary writes only behind a proxy fence.
    AsyncProxy,
    /// By a bulk reduction: atomic among its like.
    Reduction,
}

impl Manner {
    fn is_async(self) -> bool {
        matches!(self, Self::AsyncProxy | Self::Reduction)
    }

    /// Whether it is atomic to kernels of other streams too.
    fn reaches_device(self) -> bool {
        matches!(self, Self::Atomic(Reach::Device, _) | Self::Reduction)
    }
}

/// The agent an access is recorded for, and where in the source it was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub(super) block: u32,
    pub(super) slot: Slot,
    pub(super) time: u32,
    /// Program counter within the kernel's image, 0 if unknown.
    pub(super) pc: u32,
}

impl Stamp {
    fn is_of(&self, other: &Stamp) -> bool {
        (self.block, self.slot, self.time) == (other.block, other.slot, other.time)
    }
}

/// One recorded access. `bytes` is a mask within the word; 0 means none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub(super) stamp: Stamp,
    bytes: u8,
    manner: Manner,
}

/// An earlier access that nothing orders with one that is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conflict {
    pub(super) access: Access,
    pub(super) wrote: bool,
    /// Whether a barrier orders the two, and only the fence of the asynchronous proxy is missing.
    pub(super) lacks_proxy_fence: bool,
}

impl Access {
    pub(super) fn is_atomic(&self) -> bool {
        matches!(self.manner, Manner::Atomic(..))
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.manner == Manner::ReadOnly
    }

    pub(super) fn is_atomic_of_another_size(&self, width: u8) -> bool {
        matches!(self.manner, Manner::Atomic(_, other) if other != width)
    }

    /// Whether a later read of the same bytes says all that this one does.
    fn gives_way_to(&self, later: &Access) -> bool {
        !self.is_read_only() || later.is_read_only()
    }
}

const NONE: Access =
    Access { stamp: Stamp { block: 0, slot: 0, time: 0, pc: 0 }, bytes: 0, manner: Manner::Generic };

/// Two of the last writes of a word's bytes, and two of the reads since; further ones are in the [`Crowd`].
/// Two writes suffice, since unordered ones are found when they are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    writes: [Access; 2],
    reads: [Access; 2],
    /// Whether the crowd has reads of this word.
    is_crowded: bool,
    /// Which bytes were used at all, four bits for each of [`USES`].
    used: u16,
}

const EMPTY: Cell = Cell { writes: [NONE; 2], reads: [NONE; 2], is_crowded: false, used: 0 };

/// Uses of a word as other streams see them, in the order of a cell's bits.
const USES: [streams::Manner; 4] = [
    streams::Manner::Write,
    streams::Manner::Read,
    streams::Manner::AtomicWrite,
    streams::Manner::AtomicRead,
];

/// Reads that the cells of some words have no room for, by word; nothing until there is one.
#[derive(Default)]
struct Crowd {
    words: Vec<Vec<Readers>>,
}

/// Agents of one block that read the same bytes of a word in the same manner, each at that time of its own:
/// of the 64 from the slot of `read` on, those whose bits are set.
struct Readers {
    read: Access,
    slots: u64,
}

impl Readers {
    fn new(read: Access) -> Self {
        let Stamp { slot, .. } = read.stamp;
        Self {
            read: Access { stamp: Stamp { slot: slot & !63, ..read.stamp }, ..read },
            slots: 1 << (slot % 64),
        }
    }

    /// Whether both are one but for the agents.
    fn is_like(&self, other: &Readers) -> bool {
        let of =
            |Access { stamp, bytes, manner }: &Access| (stamp.block, stamp.slot, stamp.time, *bytes, *manner);
        of(&self.read) == of(&other.read)
    }

    /// Each of them, as a read of its own.
    fn reads(&self) -> impl Iterator<Item = Access> {
        let slots = (0..64).filter(|bit| self.slots >> bit & 1 == 1).map(|bit| self.read.stamp.slot + bit);
        slots.map(|slot| Access { stamp: Stamp { slot, ..self.read.stamp }, ..self.read })
    }
}

impl Crowd {
    /// Keeps a read that a later one, `by` somebody else, has taken the place of. Reads that the later one
    /// follows, and says all of, are forgotten.
    fn keep(&mut self, rest: (usize, usize, &mut usize), read: Access, by: &Accessor<'_>, later: &Access) {
        let (word, words, kept) = rest;
        if self.words.is_empty() {
            self.words.resize_with(words, Vec::new);
        }
        let (all, new) = (&mut self.words[word], Readers::new(read));
        if let Some(readers) = all.iter_mut().rev().take(NEAR).find(|readers| readers.is_like(&new)) {
            readers.slots |= new.slots;
            return;
        }
        for at in (all.len().saturating_sub(NEAR)..all.len()).rev() {
            let Readers { read, .. } = &all[at];
            let is_said = read.bytes & !later.bytes == 0 && read.gives_way_to(later);
            if is_said && read.stamp.block == by.block && all[at].reads().all(|read| by.comes_after(&read)) {
                all.remove(at);
                *kept -= 1;
            }
        }
        // Beyond that, which reads are known is left to chance.
        if *kept < CROWD && all.len() < CROWD_OF_WORD {
            all.push(new);
            *kept += 1;
        }
    }

    /// A read that a write may not follow.
    fn unordered(&self, word: usize, by: &Accessor<'_>, bytes: u8) -> Option<Access> {
        let all = self.words.get(word)?.iter().filter(|readers| readers.read.bytes & bytes != 0);
        all.flat_map(Readers::reads).find(|read| !by.may_follow_read(read, bytes))
    }

    /// Forgets reads of bytes that were written; says whether others are left.
    fn forget(&mut self, word: usize, bytes: u8, kept: &mut usize) -> bool {
        let Some(all) = self.words.get_mut(word) else { return false };
        let before = all.len();
        all.retain(|readers| readers.read.bytes & !bytes != 0);
        *kept -= before - all.len();
        !all.is_empty()
    }
}

/// Hashes numbers of words and pages, which nobody chooses to collide.
#[derive(Default)]
pub(super) struct WordHasher(u64);

type WordHashing = BuildHasherDefault<WordHasher>;

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(usize::from(byte)));
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0.rotate_left(5) ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The table looks at the highest bits and at the lowest.
        self.0 ^= self.0 >> 32;
    }
}

/// A thread that makes, or issues, an access.
pub(super) struct Accessor<'a> {
    pub(super) block: u32,
    pub(super) slot: Slot,
    pub(super) knowledge: &'a Knowledge,
    pub(super) manner: Manner,
    /// What is recorded: the thread itself, or the agent that carries the access out.
    pub(super) stamp: Stamp,
    /// The block whose shared memory is touched; none for global memory.
    pub(super) home: Option<u32>,
    pub(super) clusters: &'a Clusters,
}

impl Accessor<'_> {
    /// Whether `earlier` happened before what this thread does now.
    fn comes_after(&self, earlier: &Access) -> bool {
        let Stamp { block, slot, time, .. } = earlier.stamp;
        if block == self.block && slot == self.slot {
            return true;
        }
        self.knowledge.of(block, self.block).is_some_and(|known| known.seen.get(slot) >= time)
    }

    /// Whether the two are atomic to each other: of one kind, and each in the other's scope.
    fn is_atomic_with(&self, earlier: &Access) -> bool {
        match (self.manner, earlier.manner) {
            (Manner::Reduction, Manner::Reduction) => true,
            (Manner::Atomic(mine, width), Manner::Atomic(other, others)) => {
                width == others
                    && self.clusters.includes(mine, self.block, earlier.stamp.block)
                    && self.clusters.includes(other, self.block, earlier.stamp.block)
            }
            _ => false,
        }
    }

    #[inline]
    fn may_follow_write(&self, write: &Access, bytes: u8) -> bool {
        write.bytes & bytes == 0 || self.is_ordered_with_write(write)
    }

    fn is_ordered_with_write(&self, write: &Access) -> bool {
        if self.manner == Manner::ReadOnly {
            return false;
        }
        if self.is_atomic_with(write) {
            return true;
        }
        // Copies of one block follow each other by their own means; what another block's wrote to global
        // memory passes through ordinary accesses on its way here.
        let direct = write.manner.is_async() && (write.stamp.block == self.block || self.home.is_some());
        if !self.manner.is_async() || direct {
            return self.comes_after(write);
        }
        let space = match self.home {
            None => Space::Global,
            Some(home) if home == write.stamp.block => Space::Shared,
            Some(_) => Space::Remote,
        };
        let known = self.knowledge.of(write.stamp.block, self.block);
        known.is_some_and(|known| known.proxied(space).get(write.stamp.slot) >= write.stamp.time)
    }

    fn conflict(&self, access: &Access, wrote: bool) -> Conflict {
        let lacks_proxy_fence = wrote && self.comes_after(access);
        Conflict { access: *access, wrote, lacks_proxy_fence }
    }

    fn may_follow_read(&self, read: &Access, bytes: u8) -> bool {
        if read.bytes & bytes == 0 {
            return true;
        }
        read.manner != Manner::ReadOnly && (self.is_atomic_with(read) || self.comes_after(read))
    }
}

/// A word's place among so many, and what its cell has no room for.
struct Rest<'a> {
    word: usize,
    words: usize,
    crowd: &'a mut Crowd,
    /// Groups in all crowds.
    kept: &'a mut usize,
}

impl Cell {
    fn read(&mut self, by: &Accessor<'_>, bytes: u8, coin: bool, rest: Rest<'_>) -> Result<(), Conflict> {
        if let Some(write) = self.writes.iter().find(|write| !by.may_follow_write(write, bytes)) {
            return Err(by.conflict(write, true));
        }
        self.used |= u16::from(bytes) << if by.manner.reaches_device() { 12 } else { 4 };
        let access = Access { stamp: by.stamp, bytes, manner: by.manner };
        let superseded = self.reads.iter().position(|read| {
            read.bytes == 0
                || (read.bytes & !bytes == 0 && read.gives_way_to(&access) && by.comes_after(read))
        });
        let place = superseded.unwrap_or(usize::from(coin));
        let evicted = std::mem::replace(&mut self.reads[place], access);
        if superseded.is_none() {
            self.is_crowded = true;
            rest.crowd.keep((rest.word, rest.words, rest.kept), evicted, by, &access);
        }
        Ok(())
    }

    fn write(&mut self, by: &Accessor<'_>, bytes: u8, coin: bool, rest: Rest<'_>) -> Result<(), Conflict> {
        if let Some(write) = self.writes.iter().find(|write| !by.may_follow_write(write, bytes)) {
            return Err(by.conflict(write, true));
        }
        if let Some(read) = self.reads.iter().find(|read| !by.may_follow_read(read, bytes)) {
            return Err(by.conflict(read, false));
        }
        if self.is_crowded {
            if let Some(read) = rest.crowd.unordered(rest.word, by, bytes) {
                return Err(by.conflict(&read, false));
            }
            self.is_crowded = rest.crowd.forget(rest.word, bytes, rest.kept);
        }
        self.used |= u16::from(bytes) << if by.manner.reaches_device() { 8 } else { 0 };
        let mut access = Access { stamp: by.stamp, bytes, manner: by.manner };
        for write in &mut self.writes {
            // Neighbouring bytes keep their writer; those of one agent at one time are one write.
            write.bytes &= !bytes;
            if write.stamp.is_of(&access.stamp) && write.manner == access.manner {
                access.bytes |= std::mem::take(&mut write.bytes);
            }
        }
        let superseded = self.writes.iter().position(|write| write.bytes == 0);
        self.writes[superseded.unwrap_or(usize::from(coin))] = access;
        for read in &mut self.reads {
            if read.bytes & !bytes == 0 {
                *read = NONE;
            }
        }
        Ok(())
    }
}

impl Cell {
    /// The bytes that were used in one manner, where nothing stronger hides it.
    fn used(&self, manner: usize) -> u8 {
        let bits = |manner: usize| (self.used >> (4 * manner)) as u8 & 0xF;
        match manner {
            0 => bits(0),
            _ => bits(manner) & !bits(0),
        }
    }

    /// Who used some of the bytes so, as far as that is known.
    fn user(&self, manner: usize, bytes: u8) -> Option<Stamp> {
        let is_write = matches!(USES[manner], streams::Manner::Write | streams::Manner::AtomicWrite);
        let accesses = if is_write { &self.writes } else { &self.reads };
        accesses.iter().find(|access| access.bytes & bytes != 0).map(|access| access.stamp)
    }
}

/// Visits the words of `start .. start + len` with the bytes of each that are meant.
fn words(
    start: usize,
    len: usize,
    mut visit: impl FnMut(usize, u8) -> Result<(), Conflict>,
) -> Result<(), Conflict> {
    let mut at = start;
    while at < start + len {
        let word = at / GRAIN;
        let first = at % GRAIN;
        let count = (GRAIN - first).min(start + len - at);
        visit(word, (((1u16 << count) - 1) << first) as u8)?;
        at += count;
    }
    Ok(())
}

/// Cells of neighbouring words.
#[derive(Default)]
struct Page {
    cells: Vec<Cell>,
    crowd: Crowd,
}

impl Page {
    fn new(words: usize) -> Self {
        Self { cells: vec![EMPTY; words], crowd: Crowd::default() }
    }

    fn access(
        &mut self,
        (word, bytes): (usize, u8),
        write: bool,
        by: &Accessor<'_>,
        coin: bool,
        kept: &mut usize,
    ) -> Result<(), Conflict> {
        let rest = Rest { word, words: self.cells.len(), crowd: &mut self.crowd, kept };
        let cell = &mut self.cells[word];
        if write { cell.write(by, bytes, coin, rest) } else { cell.read(by, bytes, coin, rest) }
    }
}

/// Shadow of one block's shared memory.
#[derive(Default)]
pub(super) struct SharedShadow {
    page: Page,
    /// Groups of readers in its crowd.
    kept: usize,
}

impl SharedShadow {
    pub(super) fn new(bytes: usize) -> Self {
        Self { page: Page::new(bytes.div_ceil(GRAIN)), kept: 0 }
    }

    pub(super) fn access(
        &mut self,
        offset: usize,
        len: usize,
        write: bool,
        by: &Accessor<'_>,
        coin: bool,
    ) -> Result<(), Conflict> {
        let Self { page, kept } = self;
        words(offset, len, |word, bytes| page.access((word, bytes), write, by, coin, kept))
    }
}

/// Shadow of global memory, in pages that exist once touched.
#[derive(Default)]
pub(super) struct GlobalShadow {
    /// Where each page lies, by its number.
    places: HashMap<usize, usize, WordHashing>,
    pages: Vec<Page>,
    /// The page that was used last, and its place.
    last: Option<(usize, usize)>,
    /// Groups of readers in the crowds of all pages.
    kept: usize,
}

impl GlobalShadow {
    pub(super) fn access(
        &mut self,
        address: usize,
        len: usize,
        write: bool,
        by: &Accessor<'_>,
        coin: bool,
    ) -> Result<(), Conflict> {
        let Self { places, pages, last, kept } = self;
        words(address, len, |word, bytes| {
            let number = word / PAGE_CELLS;
            let place = match *last {
                Some((page, place)) if page == number => place,
                _ => *places.entry(number).or_insert_with(|| {
                    pages.push(Page::new(PAGE_CELLS));
                    pages.len() - 1
                }),
            };
            *last = Some((number, place));
            pages[place].access((word % PAGE_CELLS, bytes), write, by, coin, kept)
        })
    }
}

impl GlobalShadow {
    /// All that the launch used of global memory, in order of addresses.
    pub(super) fn runs(&self) -> Vec<Run> {
        let mut pages: Vec<(usize, usize)> =
            self.places.iter().map(|(&page, &place)| (page, place)).collect();
        pages.sort_unstable();
        let mut all: [Vec<Run>; USES.len()] = Default::default();
        for (number, place) in pages {
            let cells = self.pages[place].cells.iter().enumerate();
            for (index, cell) in cells.filter(|(_, cell)| cell.used != 0) {
                for (manner, runs) in all.iter_mut().enumerate() {
                    add_runs(runs, cell, manner, (number * PAGE_CELLS + index) * GRAIN);
                }
            }
        }
        all.concat()
    }

    /// Who used a byte in a manner, as far as that is known.
    pub(super) fn user(&self, address: usize, manner: streams::Manner) -> Option<Stamp> {
        let word = address / GRAIN;
        let cell = &self.pages[*self.places.get(&(word / PAGE_CELLS))?].cells[word % PAGE_CELLS];
        let manner = USES.iter().position(|use_| *use_ == manner)?;
        cell.user(manner, 1 << (address % GRAIN))
    }
}

/// Adds the bytes of a cell that were used in one manner to the last run, or as new ones.
fn add_runs(all: &mut Vec<Run>, cell: &Cell, manner: usize, address: usize) {
    let used = cell.used(manner);
    if used == 0 {
        return;
    }
    let code = cell.user(manner, used).map_or(0, |stamp| stamp.pc);
    for byte in (0..GRAIN).filter(|byte| used & (1 << byte) != 0) {
        let at = address + byte;
        match all.last_mut() {
            Some(run) if run.bytes.end == at && (run.manner, run.code) == (USES[manner], code) => {
                run.bytes.end = at + 1;
            }
            _ => all.push(Run { bytes: at..at + 1, manner: USES[manner], code }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Grid;

    fn stamp(slot: Slot, time: u32) -> Stamp {
        Stamp { block: 0, slot, time, pc: 0 }
    }

    fn by(knowledge: &Knowledge, slot: Slot, time: u32, manner: Manner) -> Accessor<'_> {
        let clusters =
            Box::leak(Box::new(Clusters::new(&Grid::new([4, 1, 1], [32, 1, 1]).cluster([2, 1, 1]))));
        Accessor { block: 0, slot, knowledge, manner, stamp: stamp(slot, time), home: Some(0), clusters }
    }

    #[test]
    fn unordered_accesses_race_and_ordered_ones_do_not() {
        let stranger = Knowledge::default();
        let mut informed = Knowledge::default();
        informed.own.seen.raise(0, 1);
        let mut shadow = SharedShadow::new(16);
        shadow.access(0, 4, true, &by(&stranger, 0, 1, Manner::Generic), false).unwrap();
        assert!(shadow.access(0, 4, false, &by(&stranger, 1, 1, Manner::Generic), false).is_err());
        shadow.access(0, 4, false, &by(&informed, 1, 1, Manner::Generic), false).unwrap();
        assert!(
            shadow.access(0, 4, true, &by(&informed, 0, 2, Manner::Generic), false).is_err(),
            "write after read"
        );
    }

    #[test]
    fn of_many_readers_the_one_that_is_not_ordered_is_found() {
        let stranger = Knowledge::default();
        for missed in 0..20 {
            let mut shadow = SharedShadow::new(4);
            for slot in 1..=20 {
                let coin = slot % 3 == 0;
                shadow.access(0, 4, false, &by(&stranger, slot, 1, Manner::Generic), coin).unwrap();
            }
            let mut writer = Knowledge::default();
            (1..=20).filter(|slot| *slot != missed).for_each(|slot| writer.own.seen.raise(slot, 1));
            let written = shadow.access(0, 4, true, &by(&writer, 0, 1, Manner::Generic), false);
            assert_eq!(written.is_err(), missed > 0, "reader {missed}");
        }
    }

    #[test]
    fn reads_of_other_bytes_stay_in_the_crowd() {
        let stranger = Knowledge::default();
        let mut shadow = SharedShadow::new(4);
        for slot in 1..=6 {
            let at = usize::from(slot) % 2;
            shadow.access(at, 1, false, &by(&stranger, slot, 1, Manner::Generic), false).unwrap();
        }
        let mut writer = Knowledge::default();
        [1, 3, 5].into_iter().for_each(|slot| writer.own.seen.raise(slot, 1));
        shadow.access(1, 1, true, &by(&writer, 0, 1, Manner::Generic), false).unwrap();
        assert!(shadow.access(0, 1, true, &by(&writer, 0, 1, Manner::Generic), false).is_err());
    }

    #[test]
    fn neighbouring_bytes_of_a_word_do_not_race() {
        let stranger = Knowledge::default();
        let mut shadow = SharedShadow::new(4);
        for slot in 0..4 {
            shadow
                .access(usize::from(slot), 1, true, &by(&stranger, slot, 1, Manner::Generic), false)
                .unwrap();
        }
        assert!(shadow.access(3, 1, true, &by(&stranger, 0, 1, Manner::Generic), false).is_err());
    }

    #[test]
    fn a_byte_keeps_its_writer_when_its_neighbours_are_written() {
        let stranger = Knowledge::default();
        let mut informed = Knowledge::default();
        informed.own.seen.raise(0, 1);
        let mut shadow = SharedShadow::new(4);
        for (at, time) in [(0, 1), (1, 1), (2, 2)] {
            shadow.access(at, 1, true, &by(&stranger, 0, time, Manner::Generic), false).unwrap();
        }
        for at in 0..3 {
            let read = shadow.access(at, 1, false, &by(&stranger, 1, 1, Manner::Generic), false);
            assert!(read.is_err(), "byte {at} was written by another");
        }
        for at in 0..2 {
            shadow.access(at, 1, false, &by(&informed, 1, 1, Manner::Generic), false).unwrap();
        }
        assert!(shadow.access(2, 1, false, &by(&informed, 1, 1, Manner::Generic), false).is_err());
    }

    #[test]
    fn the_async_proxy_needs_the_writer_s_fence() {
        let mut ordered = Knowledge::default();
        ordered.own.seen.raise(0, 1);
        let mut fenced = ordered.clone();
        fenced.own.proxied_mut(Space::Shared).raise(0, 1);
        let mut shadow = SharedShadow::new(16);
        shadow.access(0, 16, true, &by(&Knowledge::default(), 0, 1, Manner::Generic), false).unwrap();
        assert!(shadow.access(0, 16, false, &by(&ordered, 1, 1, Manner::AsyncProxy), false).is_err());
        shadow.access(0, 16, false, &by(&fenced, 1, 1, Manner::AsyncProxy), false).unwrap();
    }

    #[test]
    fn atomics_race_with_ordinary_accesses_only() {
        let stranger = Knowledge::default();
        let mut shadow = GlobalShadow::default();
        let atomic = Manner::Atomic(Reach::Block, 4);
        shadow.access(64, 4, true, &by(&stranger, 0, 1, atomic), false).unwrap();
        shadow.access(64, 4, true, &by(&stranger, 1, 1, atomic), false).unwrap();
        assert!(shadow.access(64, 4, false, &by(&stranger, 2, 1, Manner::Generic), false).is_err());
    }

    #[test]
    fn atomics_reach_as_far_as_the_narrower_of_their_scopes() {
        let stranger = Knowledge::default();
        let from = |block, scope| Accessor {
            block,
            stamp: Stamp { block, slot: 0, time: 1, pc: 0 },
            ..by(&stranger, 0, 1, Manner::Atomic(scope, 4))
        };
        for (first, second, block, meets) in [
            (Reach::Block, Reach::Block, 0, true),
            (Reach::Block, Reach::Device, 1, false),
            (Reach::Cluster, Reach::Device, 1, true),
            (Reach::Device, Reach::Cluster, 2, false),
            (Reach::Device, Reach::Device, 3, true),
        ] {
            let mut shadow = GlobalShadow::default();
            shadow.access(64, 4, true, &from(0, first), false).unwrap();
            let second = shadow.access(64, 4, true, &from(block, second), false);
            assert_eq!(second.is_ok(), meets, "{first:?} and block {block}");
        }
    }
}
