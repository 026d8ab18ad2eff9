//! Host memory to the device by way of page-locked memory.

use bytemuck::Pod;
use gatework_gpu::{Pinned, SliceMut, Stream};
use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::{ParallelSlice as _, ParallelSliceMut as _};

use crate::error::OrRaise as _;

/// Bytes that are staged at once.
pub(crate) const PIECE: usize = 4 << 20;
/// Pieces that are on their way while the next is staged.
pub(crate) const PIECES: usize = 4;
/// Bytes that one thread moves.
pub(crate) const SHARE: usize = 256 << 10;

/// Page-locked pieces, in turns.
pub(crate) struct Staging<T: Pod> {
    pieces: [Option<Pinned<T>>; PIECES],
    next: usize,
}

impl<T: Pod + Send + Sync> Staging<T> {
    pub(crate) fn new() -> Self {
        Self { pieces: [const { None }; PIECES], next: 0 }
    }

    /// The next piece, for `len` elements, all of which the caller writes.
    pub(crate) fn piece(&mut self, stream: &Stream, len: usize) -> &mut Pinned<T> {
        let piece = &mut self.pieces[self.next];
        self.next = (self.next + 1) % PIECES;
        if piece.as_ref().is_none_or(|piece| piece.len() != len) {
            *piece = Some(stream.device().pinned().take_as_is(len).or_raise());
        }
        let Some(piece) = piece else { unreachable!("it was just taken") };
        piece
    }

    /// Queues copies of all of `host` on `stream`.
    pub(crate) fn copy(&mut self, stream: &Stream, host: &[T], target: &mut SliceMut<'_, T>) {
        let len = (PIECE / size_of::<T>()).max(1);
        for (number, part) in host.chunks(len).enumerate() {
            let piece = self.piece(stream, part.len());
            // Waits for the copy that this piece was last used for.
            let share = (SHARE / size_of::<T>()).max(1);
            let mut staged = piece.write().or_raise();
            staged
                .par_chunks_mut(share)
                .zip(part.par_chunks(share))
                .for_each(|(to, from)| to.copy_from_slice(from));
            drop(staged);
            let first = number * len;
            stream.copy_from_pinned(piece, &mut target.slice_mut(first..first + part.len())).or_raise();
        }
    }
}
