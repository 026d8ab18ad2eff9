//! Blocks of device memory that a stream has freed and may have again without the driver: its calls cost more
//! than small kernels, and large blocks are put together anew from pieces where others were taken between.

use std::collections::{HashMap, VecDeque};

use crate::driver::{Pointer, StreamId};

/// The driver's own unit.
const UNIT: usize = 512;
/// Largest block that is small.
const SMALL: usize = 4 << 20;

/// Blocks by stream. What a stream freed it may use at once: its work is in order.
pub(super) struct Blocks {
    /// Most bytes that are kept in all.
    most: u64,
    idle: HashMap<StreamId, Idle>,
    /// Sizes of those that are lent.
    lent: HashMap<Pointer, usize>,
    idle_bytes: u64,
    /// Blocks that were kept so far.
    kept: u64,
}

/// Blocks of one stream by size, those of a size in the order in which they were freed, with their numbers in
/// it.
type Idle = HashMap<usize, VecDeque<(u64, Pointer)>>;

/// Whether a block comes from the pool for small ones: kept ones would keep the memory between them from
/// being had in one piece.
pub(super) fn is_small(size: usize) -> bool {
    size <= SMALL
}

/// What is asked of the driver for `bytes`.
pub(super) fn rounded(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(UNIT).unwrap_or(bytes)
}

impl Blocks {
    /// None yet, and never more than so many bytes.
    pub(super) fn new(most: u64) -> Self {
        Self { most, idle: HashMap::new(), lent: HashMap::new(), idle_bytes: 0, kept: 0 }
    }

    /// From now on keeps blocks of this stream, whose end will be told. (Nobody tells of the end of somebody
    /// else's stream.)
    pub(super) fn open(&mut self, stream: StreamId) {
        self.idle.insert(stream, Idle::new());
    }

    /// A block of that rounded size.
    pub(super) fn take(&mut self, stream: StreamId, size: usize) -> Option<Pointer> {
        let (_, pointer) = self.idle.get_mut(&stream)?.get_mut(&size)?.pop_back()?;
        self.idle_bytes -= size as u64;
        self.lent.insert(pointer, size);
        Some(pointer)
    }

    /// Notes a block that the driver has lent.
    pub(super) fn lend(&mut self, pointer: Pointer, size: usize) {
        self.lent.insert(pointer, size);
    }

    /// Keeps a block. What is to be freed comes back: those of the stream that have been idle the longest
    /// where there are too many, or the block itself.
    pub(super) fn put(&mut self, stream: StreamId, pointer: Pointer) -> Vec<Pointer> {
        let size = self.lent.remove(&pointer);
        let (Some(size), Some(of_stream)) = (size, self.idle.get_mut(&stream)) else { return vec![pointer] };
        self.kept += 1;
        of_stream.entry(size).or_default().push_back((self.kept, pointer));
        self.idle_bytes += size as u64;
        let mut freed = Vec::new();
        while self.idle_bytes > self.most
            && let Some((size, pointer)) = idle_longest(of_stream)
        {
            self.idle_bytes -= size as u64;
            freed.push(pointer);
        }
        freed
    }

    /// No longer keeps blocks of this stream, and gives those it has.
    pub(super) fn close(&mut self, stream: StreamId) -> Vec<Pointer> {
        let blocks = self.drain(stream);
        self.idle.remove(&stream);
        blocks
    }

    /// All blocks that are kept of this stream.
    pub(super) fn drain(&mut self, stream: StreamId) -> Vec<Pointer> {
        let of_stream = self.idle.get_mut(&stream).map(std::mem::take).unwrap_or_default();
        self.idle_bytes -= of_stream.iter().map(|(&size, blocks)| (size * blocks.len()) as u64).sum::<u64>();
        of_stream.into_values().flatten().map(|(_, pointer)| pointer).collect()
    }

    /// Streams that have blocks.
    pub(super) fn streams(&self) -> Vec<StreamId> {
        let some = |blocks: &Idle| blocks.values().any(|of_size| !of_size.is_empty());
        self.idle.iter().filter(|(_, blocks)| some(blocks)).map(|(&stream, _)| stream).collect()
    }

    /// Bytes that are lent to nobody.
    pub(super) fn idle_bytes(&self) -> u64 {
        self.idle_bytes
    }
}

/// Takes the block that was freed before all others.
fn idle_longest(of_stream: &mut Idle) -> Option<(usize, Pointer)> {
    let first = |(&size, blocks): (&usize, &VecDeque<(u64, Pointer)>)| Some((blocks.front()?.0, size));
    let (_, size) = of_stream.iter().filter_map(first).min()?;
    let (_, pointer) = of_stream.get_mut(&size)?.pop_front()?;
    Some((size, pointer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_gets_back_what_it_freed_and_no_other_does() {
        let (first, second) = (StreamId(1), StreamId(2));
        let mut blocks = Blocks::new(1 << 20);
        blocks.open(first);
        let size = rounded(1000);
        assert_eq!(size, 1024);
        blocks.lend(Pointer(64), size);
        assert!(blocks.put(first, Pointer(64)).is_empty());
        assert_eq!((blocks.idle_bytes(), blocks.streams()), (1024, vec![first]));
        assert!(blocks.take(second, size).is_none());
        assert!(blocks.take(first, rounded(2000)).is_none());
        assert_eq!(blocks.take(first, size), Some(Pointer(64)));
        assert_eq!((blocks.idle_bytes(), blocks.take(first, size)), (0, None));
        blocks.lend(Pointer(32), size);
        assert_eq!(blocks.put(second, Pointer(32)), [Pointer(32)], "it is not our stream");
    }

    #[test]
    fn those_idle_longest_are_freed_where_there_are_too_many() {
        let stream = StreamId(1);
        let mut blocks = Blocks::new(10 * 1024);
        blocks.open(stream);
        for block in 0..11 {
            blocks.lend(Pointer(block), 1024);
        }
        blocks.lend(Pointer(99), 11 * 1024);
        let freed: Vec<Pointer> = (0..11).flat_map(|block| blocks.put(stream, Pointer(block))).collect();
        assert_eq!((freed, blocks.idle_bytes()), (vec![Pointer(0)], 10 * 1024));
        assert_eq!(blocks.take(stream, 1024), Some(Pointer(10)), "the one freed last");
        assert_eq!(blocks.put(stream, Pointer(10)), []);
        let freed = blocks.put(stream, Pointer(99));
        assert_eq!((freed.len(), freed.last(), blocks.idle_bytes()), (11, Some(&Pointer(99)), 0));
        assert_eq!(blocks.close(stream), []);
    }
}
