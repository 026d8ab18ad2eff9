//! Columns of the device to the host.

use std::collections::VecDeque;
use std::ops::Range;

use gatework_gpu::Pinned;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};
use rayon::slice::{ParallelSlice as _, ParallelSliceMut as _};
use stwo::core::fields::m31::BaseField;
use stwo::prover::backend::Column as _;

use crate::column::{ALIGNMENT, DeviceColumn};
use crate::error::OrRaise as _;
use crate::staging::{PIECE, PIECES, SHARE};

/// Words that one thread moves.
const SHARE_WORDS: usize = SHARE / size_of::<u32>();

/// Columns that lie one after the other in one allocation: as many as can be read as if they were one.
struct Run<'a> {
    columns: &'a [&'a DeviceColumn<BaseField>],
    targets: Vec<&'a mut [u32]>,
}

/// A piece of a run on its way: words from here on.
struct Piece {
    run: usize,
    first: usize,
    words: Pinned<u32>,
}

impl<'a> Run<'a> {
    /// Where each column starts in the run.
    fn starts(&self) -> impl Iterator<Item = usize> {
        let mut end = 0;
        self.columns.iter().map(move |column| {
            let start = end;
            end += column.len().next_multiple_of(ALIGNMENT);
            start
        })
    }

    /// Words of the run, without what comes after its last column.
    fn words(&self) -> usize {
        self.starts().zip(self.columns).last().map_or(0, |(start, column)| start + column.len())
    }

    /// Writes words of the run to where they belong, on all cores.
    fn take(&mut self, first: usize, words: &[u32]) {
        let arrived = first..first + words.len();
        let starts: Vec<usize> = self.starts().collect();
        let parts: Vec<(&mut [u32], &[u32])> = starts
            .into_iter()
            .zip(&mut self.targets)
            .filter_map(|(start, target)| {
                let common = common(&arrived, &(start..start + target.len()))?;
                let from = &words[common.start - first..common.end - first];
                Some((&mut target[common.start - start..common.end - start], from))
            })
            .collect();
        parts.into_par_iter().for_each(|(to, from)| {
            let shares = to.par_chunks_mut(SHARE_WORDS).zip(from.par_chunks(SHARE_WORDS));
            shares.for_each(|(to, from)| to.copy_from_slice(from));
        });
    }
}

fn common(left: &Range<usize>, right: &Range<usize>) -> Option<Range<usize>> {
    let both = left.start.max(right.start)..left.end.min(right.end);
    (both.start < both.end).then_some(both)
}

/// Reads columns into host memory of their lengths, through page-locked memory, some while the next are on
/// their way. Each is read in the order of its own context.
pub(crate) fn download(columns: &[&DeviceColumn<BaseField>], targets: Vec<&mut [BaseField]>) {
    let targets = targets.into_iter().map(bytemuck::cast_slice_mut);
    let homes = columns.iter().map(|column| column.there().unwrap_or(column));
    let (streamed, on_device): (Vec<_>, Vec<_>) =
        homes.zip(targets).partition(|(column, _)| column.is_streamed());
    streamed.into_iter().for_each(|(column, target)| column.read_into(target));
    let (columns, targets): (Vec<_>, Vec<_>) = on_device.into_iter().unzip();
    let mut targets = targets.into_iter();
    let mut runs: Vec<Run<'_>> = columns
        .chunk_by(|before, after| after.follows(before))
        .map(|columns| Run { columns, targets: targets.by_ref().take(columns.len()).collect() })
        .collect();
    let piece_words = PIECE / size_of::<u32>();
    let mut under_way: VecDeque<Piece> = VecDeque::new();
    for run in 0..runs.len() {
        let (columns, words) = (runs[run].columns, runs[run].words());
        let stream = columns[0].queue().stream();
        for first in (0..words).step_by(piece_words) {
            if under_way.len() == PIECES {
                under_way.pop_front().into_iter().for_each(|piece| arrive(&mut runs, piece));
            }
            let end = words.min(first + piece_words);
            let mut piece = stream.device().pinned().take_as_is(end - first).or_raise();
            stream.copy_to_pinned(&columns[0].words_after(first..end), &mut piece).or_raise();
            under_way.push_back(Piece { run, first, words: piece });
        }
    }
    under_way.into_iter().for_each(|piece| arrive(&mut runs, piece));
}

/// Waits for a piece.
fn arrive(runs: &mut [Run<'_>], piece: Piece) {
    runs[piece.run].take(piece.first, &piece.words.read().or_raise());
}
