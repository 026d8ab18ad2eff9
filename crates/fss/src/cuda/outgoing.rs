//! Key material on its way from the device to where a dealer writes it, in pieces, through a few page-locked blocks.

use std::collections::VecDeque;

use gatework_gpu::{Buffer, Slice, View as _};

use crate::error::Result;
use crate::key::KeySink;

use super::queue::Queue;
use super::staging::SecretBlock;

/// Bytes that are copied at once.
const PIECE: usize = 32 << 20;
/// Pieces that are under way: while one is written, others are copied.
const UNDER_WAY: usize = 4;

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

/// Writes all of it, in order, and returns each party's bytes.
pub(super) fn write(
    queue: &Queue,
    outgoing: Vec<Outgoing>,
    [zero, one]: &mut [&mut dyn KeySink; 2],
) -> Result<[u64; 2]> {
    let mut pieces = outgoing.iter().flat_map(|outgoing| {
        let bytes = outgoing.bytes.view();
        let starts = (0..bytes.len()).step_by(PIECE);
        starts.map(move |start| (outgoing.parties, bytes.slice(start..bytes.len().min(start + PIECE))))
    });
    let (mut under_way, mut free) = (VecDeque::new(), Vec::<SecretBlock>::new());
    let mut written = [0; 2];
    loop {
        while under_way.len() < UNDER_WAY
            && let Some((parties, piece)) = pieces.next()
        {
            let fits = free.iter().position(|block| block.len() == piece.len());
            let mut block = match fits {
                Some(place) => free.swap_remove(place),
                None => SecretBlock::take(queue.device(), piece.len())?,
            };
            block.copy_from(queue.stream(), piece)?;
            under_way.push_back((parties, block));
        }
        let Some((parties, block)) = under_way.pop_front() else { return Ok(written) };
        let bytes = block.read()?;
        let slice: &[u8] = &bytes;
        let write = |party: usize, sink: &mut dyn KeySink| match parties[party] {
            true => sink.write(slice),
            false => Ok(()),
        };
        let (zero, one) = rayon::join(|| write(0, &mut **zero), || write(1, &mut **one));
        zero.and(one)?;
        let count = slice.len() as u64;
        (0..2).filter(|&party| parties[party]).for_each(|party| written[party] += count);
        drop(bytes);
        free.truncate(UNDER_WAY);
        free.push(block);
    }
}
