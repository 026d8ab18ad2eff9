//! Key material on its way from the device to where a dealer writes it, in pieces, through a few page-locked
//! blocks.

use std::collections::VecDeque;

use gatework_gpu::{Buffer, PinnedRead, PinnedRoom, Slice, View as _};

use crate::error::Result;
use crate::key::KeySink;
use crate::secret::{Held, SharedBytes};

use super::queue::Queue;
use super::staging::SecretBlock;

/// Bytes that are copied at once.
const PIECE: usize = 8 << 20;
/// Pieces that are under way: while one is written, others are copied, and more are made.
const UNDER_WAY: usize = 32;

/// Shorter pieces are copied out of their blocks, which are whole pages.
const LEAST_KEPT: usize = 256 << 10;

/// What one party gets, or both.
pub(super) struct Outgoing {
    pub(super) parties: [bool; 2],
    pub(super) bytes: Material,
}

/// Bytes on the device.
pub(super) enum Material {
    Packed(Buffer<u8>),
    Words(Buffer<u64>),
}

impl Material {
    fn view(&self) -> Slice<'_, u8> {
        match self {
            Self::Packed(bytes) => bytes.view(),
            Self::Words(words) => words.view().as_bytes(),
        }
    }
}

/// Key material that stays where the device wrote it.
struct HeldBlock {
    bytes: Option<PinnedRead<u8>>,
    _room: PinnedRoom,
}

impl Held for HeldBlock {
    fn bytes(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], PinnedRead::as_ref)
    }
}

impl Drop for HeldBlock {
    fn drop(&mut self) {
        drop(self.bytes.take().map(SecretBlock::from_read));
    }
}

/// Pieces whose copies are queued, in order.
pub(super) struct UnderWay {
    queue: Queue,
    pieces: VecDeque<([bool; 2], SecretBlock)>,
    /// Blocks for the next ones.
    free: Vec<SecretBlock>,
}

impl UnderWay {
    pub(super) fn new(queue: Queue) -> Self {
        Self { queue, pieces: VecDeque::new(), free: Vec::new() }
    }

    /// Queues copies of all of it. Writes the first pieces where there are too many, and returns each party's
    /// bytes.
    pub(super) fn send(
        &mut self,
        outgoing: Vec<Outgoing>,
        sinks: &mut [&mut dyn KeySink; 2],
    ) -> Result<[u64; 2]> {
        let mut written = [0; 2];
        for Outgoing { parties, bytes } in outgoing {
            let bytes = bytes.view();
            for start in (0..bytes.len()).step_by(PIECE) {
                if self.pieces.len() == UNDER_WAY {
                    self.write_first(sinks, &mut written)?;
                }
                let piece = bytes.slice(start..bytes.len().min(start + PIECE));
                let mut block = self.block(piece.len())?;
                block.copy_from(self.queue.stream(), piece)?;
                self.pieces.push_back((parties, block));
            }
        }
        Ok(written)
    }

    /// Writes all that is under way, and returns each party's bytes.
    pub(super) fn finish(&mut self, sinks: &mut [&mut dyn KeySink; 2]) -> Result<[u64; 2]> {
        let mut written = [0; 2];
        while !self.pieces.is_empty() {
            self.write_first(sinks, &mut written)?;
        }
        Ok(written)
    }

    fn block(&mut self, count: usize) -> Result<SecretBlock> {
        match self.free.iter().position(|block| block.len() == count) {
            Some(place) => Ok(self.free.swap_remove(place)),
            None => SecretBlock::take(self.queue.device(), count),
        }
    }

    /// Waits for the copy that was queued first, and writes it.
    fn write_first(&mut self, sinks: &mut [&mut dyn KeySink; 2], written: &mut [u64; 2]) -> Result<()> {
        let Some((parties, block)) = self.pieces.pop_front() else { return Ok(()) };
        let count = block.len() as u64;
        (0..2).filter(|&party| parties[party]).for_each(|party| written[party] += count);
        let mut receivers = sinks.iter().zip(parties).filter(|(_, gets)| *gets);
        if block.len() >= LEAST_KEPT && receivers.all(|(sink, _)| sink.keeps()) {
            // Blocks of a pool are powers of two.
            let room = self.queue.make_room(count.next_power_of_two());
            let bytes = SharedBytes::held(HeldBlock { bytes: Some(block.into_read()?), _room: room });
            let mut receivers = sinks.iter_mut().zip(parties).filter(|(_, gets)| *gets);
            return receivers.try_for_each(|(sink, _)| sink.keep(bytes.clone()));
        }
        let [zero, one] = sinks;
        let bytes = block.read()?;
        let slice: &[u8] = &bytes;
        let write = |party: usize, sink: &mut dyn KeySink| match parties[party] {
            true => sink.write(slice),
            false => Ok(()),
        };
        let (zero, one) = rayon::join(|| write(0, &mut **zero), || write(1, &mut **one));
        zero.and(one)?;
        drop(bytes);
        self.free.truncate(UNDER_WAY);
        self.free.push(block);
        Ok(())
    }
}
