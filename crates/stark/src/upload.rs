//! Columns of the host to the device, and on the way to coefficients.

use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::ParallelSliceMut as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::poly::circle::CircleCoefficients;
use stwo::prover::poly::twiddles::TwiddleTree;

use crate::Error;
use crate::backend::CudaBackend;
use crate::column::{ALIGNMENT, DeviceColumn};
use crate::cuda::circle_fft::{Direction, transform};
use crate::error::{OrRaise as _, raise};
use crate::queue::Queue;
use crate::staging::{PIECE, SHARE, Staging};

/// Bytes of columns that are interpolated together while the next are on their way.
const GROUP: usize = 32 << 20;

/// Columns of the device, one after the other in one allocation, that many of them or pieces of them are staged for at once.
struct Batch<'a> {
    columns: &'a [&'a [BaseField]],
    /// Where each column starts, in words.
    starts: Vec<usize>,
    words: usize,
}

impl<'a> Batch<'a> {
    fn new(columns: &'a [&'a [BaseField]]) -> Self {
        let mut words = 0;
        let start = |column: &&[BaseField]| {
            let start = words;
            words += column.len().next_multiple_of(ALIGNMENT);
            start
        };
        let starts = columns.iter().map(start).collect();
        Self { columns, starts, words }
    }

    /// Writes the words from `first` on.
    fn fill(&self, first: usize, to: &mut [u32]) {
        let mut column = self.starts.partition_point(|&start| start <= first) - 1;
        let mut done = 0;
        while done < to.len() {
            let within = first + done - self.starts[column];
            let values: &[u32] = bytemuck::cast_slice(self.columns[column]);
            let end = self.starts.get(column + 1).copied().unwrap_or(self.words);
            let room = (end - first - done).min(to.len() - done);
            let given = values.get(within..).unwrap_or_default();
            let count = given.len().min(room);
            to[done..done + count].copy_from_slice(&given[..count]);
            // Between columns nothing is read.
            to[done + count..done + room].fill(0);
            done += room;
            column += 1;
        }
    }
}

/// Columns with these values, in the context of the scope this is called in.
pub fn upload(columns: &[&[BaseField]]) -> Vec<DeviceColumn<BaseField>> {
    let batch = Batch::new(columns);
    let queue = Queue::current();
    let mut whole = DeviceColumn::<BaseField>::new(&queue, batch.words);
    let (piece_words, share) = (PIECE / size_of::<u32>(), SHARE / size_of::<u32>());
    let mut staging = Staging::<u32>::new();
    for first in (0..batch.words).step_by(piece_words) {
        let end = batch.words.min(first + piece_words);
        let piece = staging.piece(queue.stream(), end - first);
        piece
            .write()
            .or_raise()
            .par_chunks_mut(share)
            .enumerate()
            .for_each(|(index, words)| batch.fill(first + index * share, words));
        let mut target = whole.words_mut();
        queue.stream().copy_from_pinned(piece, &mut target.slice_mut(first..end)).or_raise();
    }
    let places = batch.starts.iter().zip(columns);
    places.map(|(&start, column)| whole.part(start, column.len())).collect()
}

/// Brings columns of values to the device and interpolates them, some while the next are on their way: for
/// `TreeBuilder::extend_polys`, instead of uploading and `extend_evals`.
///
/// Inside of a [`Context::scope`](crate::Context::scope).
pub fn upload_and_interpolate(
    columns: &[&[BaseField]],
    twiddles: &TwiddleTree<CudaBackend>,
) -> Vec<CircleCoefficients<CudaBackend>> {
    if columns.is_empty() {
        return Vec::new();
    }
    for len in columns.iter().map(|column| column.len()) {
        if len < 2 || !len.is_power_of_two() {
            raise(Error::Unsupported {
                what: format!(
                    "a column of {len} values; as many as a domain has can be interpolated, 2, 4, 8 and so on"
                ),
            })
        }
    }
    let queue = Queue::current();
    let mut targets = DeviceColumn::<BaseField>::batch(&queue, columns.iter().map(|column| column.len()));
    let copies = queue.stream().device().stream().or_raise();
    copies.wait(&queue.stream().record().or_raise()).or_raise();
    let mut staging = Staging::new();
    let mut rest: (&[&[BaseField]], &mut [DeviceColumn<BaseField>]) = (columns, &mut targets);
    while let Some(first) = rest.0.first() {
        // As many of one size as make a group.
        let most = (GROUP / size_of_val(*first)).max(1);
        let count = rest.0.iter().take(most).take_while(|column| column.len() == first.len()).count();
        let (group, next) = rest.0.split_at(count);
        let (group_targets, next_targets) = std::mem::take(&mut rest.1).split_at_mut(count);
        for (column, target) in group.iter().zip(group_targets.iter_mut()) {
            staging.copy(&copies, bytemuck::cast_slice(column), &mut target.words_mut());
        }
        queue.stream().wait(&copies.record().or_raise()).or_raise();
        let domain = CanonicCoset::new(first.len().ilog2()).circle_domain();
        let (direction, inverses) = (Direction::Inverse, &twiddles.itwiddles);
        transform(&queue, direction, domain, inverses, &*group_targets, first.len(), &*group_targets);
        rest = (next, next_targets);
    }
    targets.into_iter().map(CircleCoefficients::new).collect()
}
