//! Small blocks of device memory that a stream has freed and may have again without the driver, whose calls cost more than small
//! kernels.

use std::collections::HashMap;

use crate::driver::{Pointer, StreamId};

/// The driver's own unit.
const UNIT: usize = 512;
/// Largest block that is kept.
const LARGEST: usize = 4 << 20;
/// Most bytes that are kept in all.
const MOST: u64 = 256 << 20;

/// Blocks by stream and size. What a stream freed it may use at once: its work is in order.
#[derive(Default)]
pub(super) struct Blocks {
    idle: HashMap<StreamId, HashMap<usize, Vec<Pointer>>>,
    /// Sizes of those that are lent.
    lent: HashMap<Pointer, usize>,
    idle_bytes: u64,
}

/// What is asked of the driver for `bytes`.
pub(super) fn rounded(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(UNIT).unwrap_or(bytes)
}

impl Blocks {
    /// From now on keeps blocks of this stream, whose end will be told. (Nobody tells of the end of somebody else's stream.)
    pub(super) fn open(&mut self, stream: StreamId) {
        self.idle.insert(stream, HashMap::new());
    }

    /// A block of that rounded size.
    pub(super) fn take(&mut self, stream: StreamId, size: usize) -> Option<Pointer> {
        let pointer = self.idle.get_mut(&stream)?.get_mut(&size)?.pop()?;
        self.idle_bytes -= size as u64;
        self.lent.insert(pointer, size);
        Some(pointer)
    }

    /// Whether blocks of that size are kept.
    pub(super) fn keeps(size: usize) -> bool {
        size <= LARGEST
    }

    /// Notes a block that the driver has lent.
    pub(super) fn lend(&mut self, pointer: Pointer, size: usize) {
        if Self::keeps(size) {
            self.lent.insert(pointer, size);
        }
    }

    /// Keeps a block, or gives it back to be freed.
    pub(super) fn put(&mut self, stream: StreamId, pointer: Pointer) -> Option<Pointer> {
        let size = self.lent.remove(&pointer);
        let (Some(size), Some(of_stream)) = (size, self.idle.get_mut(&stream)) else { return Some(pointer) };
        if self.idle_bytes + size as u64 > MOST {
            return Some(pointer);
        }
        self.idle_bytes += size as u64;
        of_stream.entry(size).or_default().push(pointer);
        None
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
        let bytes: u64 = of_stream.iter().map(|(size, blocks)| (size * blocks.len()) as u64).sum();
        self.idle_bytes -= bytes;
        of_stream.into_values().flatten().collect()
    }

    /// Streams that have blocks.
    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.idle.keys().copied().collect()
    }

    /// Bytes that are lent to nobody.
    pub(super) fn idle_bytes(&self) -> u64 {
        self.idle_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_gets_back_what_it_freed_and_no_other_does() {
        let (first, second) = (StreamId(1), StreamId(2));
        let mut blocks = Blocks::default();
        blocks.open(first);
        let size = rounded(1000);
        assert_eq!(size, 1024);
        blocks.lend(Pointer(64), size);
        assert!(blocks.put(first, Pointer(64)).is_none());
        assert_eq!(blocks.idle_bytes(), 1024);
        assert!(blocks.take(second, size).is_none());
        assert!(blocks.take(first, rounded(2000)).is_none());
        assert_eq!(blocks.take(first, size), Some(Pointer(64)));
        assert_eq!((blocks.idle_bytes(), blocks.take(first, size)), (0, None));
        blocks.lend(Pointer(32), size);
        assert_eq!(blocks.put(second, Pointer(32)), Some(Pointer(32)), "it is not our stream");
    }

    #[test]
    fn large_blocks_and_too_many_go_back_to_the_driver() {
        let stream = StreamId(1);
        let mut blocks = Blocks::default();
        blocks.open(stream);
        blocks.lend(Pointer(1), LARGEST + UNIT);
        assert_eq!(blocks.put(stream, Pointer(1)), Some(Pointer(1)));
        let most = MOST / LARGEST as u64;
        for block in 0..=most {
            blocks.lend(Pointer(block), LARGEST);
        }
        let kept = (0..=most).filter(|&block| blocks.put(stream, Pointer(block)).is_none()).count() as u64;
        assert_eq!((kept, blocks.idle_bytes()), (most, MOST));
        assert_eq!(blocks.close(stream).len() as u64, most);
        assert_eq!(blocks.idle_bytes(), 0);
    }
}
