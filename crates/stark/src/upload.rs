//! Columns of the host to the device, and on the way to coefficients.

use std::ops::Range;

use gatework_gpu::Stream;
use itertools::Itertools as _;
use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::ParallelSliceMut as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::poly::circle::{CanonicCoset, CircleDomain};
use stwo::prover::poly::circle::CircleCoefficients;
use stwo::prover::poly::twiddles::TwiddleTree;

use crate::backend::CudaBackend;
use crate::column::{ALIGNMENT, DeviceColumn};
use crate::cuda::circle_fft::{Direction, transform};
use crate::cuda::{DeviceTwiddles, interpolate_streamed};
use crate::element::reduced;
use crate::error::{OrRaise as _, raise};
use crate::pages::Pages;
use crate::queue::Queue;
use crate::ranks::{Ranks, dealt};
use crate::staging::{PIECE, SHARE, Staging};
use crate::streaming::Streams;
use crate::{Error, Streaming};

/// Bytes of columns that are interpolated together while the next are on their way.
const GROUP: usize = 32 << 20;

/// Columns of the host, and where they will lie one after the other in one allocation. Many of them, or
/// pieces of them, are staged at once.
struct Batch<'a> {
    columns: Vec<&'a [BaseField]>,
    /// Where each column starts, in words, and where the last ends.
    starts: Vec<usize>,
}

impl<'a> Batch<'a> {
    fn new(columns: Vec<&'a [BaseField]>) -> Self {
        let ends = columns.iter().scan(0, |end, column| {
            *end += column.len().next_multiple_of(ALIGNMENT);
            Some(*end)
        });
        let starts = std::iter::once(0).chain(ends).collect();
        Self { columns, starts }
    }

    fn words(&self) -> usize {
        self.starts[self.columns.len()]
    }

    /// Uninitialised memory for all of them.
    fn allocate(&self, queue: &Queue) -> DeviceColumn<BaseField> {
        DeviceColumn::new(queue, self.words())
    }

    /// The columns in `whole`, which [`Batch::allocate`] made.
    fn parts(&self, whole: &DeviceColumn<BaseField>) -> Vec<DeviceColumn<BaseField>> {
        let places = self.starts.iter().zip(&self.columns);
        places.map(|(&start, column)| whole.part(start, column.len())).collect()
    }

    /// Queues copies of the columns with these numbers on `stream`, by way of page-locked memory.
    fn send(
        &self,
        columns: Range<usize>,
        staging: &mut Staging<u32>,
        stream: &Stream,
        whole: &mut DeviceColumn<BaseField>,
    ) {
        let (piece_words, share) = (PIECE / size_of::<u32>(), SHARE / size_of::<u32>());
        let last = self.starts[columns.end];
        for first in (self.starts[columns.start]..last).step_by(piece_words) {
            let end = last.min(first + piece_words);
            let piece = staging.piece(stream, end - first);
            piece
                .write()
                .or_raise()
                .par_chunks_mut(share)
                .enumerate()
                .for_each(|(index, words)| self.fill(first + index * share, words));
            let mut target = whole.words_mut();
            stream.copy_from_pinned(piece, &mut target.slice_mut(first..end)).or_raise();
        }
    }

    /// Writes the words from `first` on, each less than P.
    fn fill(&self, first: usize, to: &mut [u32]) {
        let mut column = self.starts.partition_point(|&start| start <= first) - 1;
        let mut done = 0;
        while done < to.len() {
            let within = first + done - self.starts[column];
            let values: &[u32] = bytemuck::cast_slice(self.columns[column]);
            let room = (self.starts[column + 1] - first - done).min(to.len() - done);
            let given = values.get(within..).unwrap_or_default();
            let count = given.len().min(room);
            let (values, padding) = to[done..done + room].split_at_mut(count);
            values.iter_mut().zip(given).for_each(|(to, &word)| *to = reduced(word));
            // Between columns nothing is read.
            padding.fill(0);
            done += room;
            column += 1;
        }
    }
}

/// Columns with these values, in the context of the scope this is called in. Where it has several devices,
/// the columns are dealt out to them.
///
/// Columns of [`SimdBackend`](stwo::prover::backend::simd::SimdBackend) have [`ToDevice`](crate::ToDevice).
pub fn upload(columns: &[&[BaseField]]) -> Vec<DeviceColumn<BaseField>> {
    let queue = Queue::current();
    if let Some(streaming) = Streams::of(&queue).get() {
        return columns.iter().map(|values| streamed(&queue, values, streaming)).collect();
    }
    let lens = columns.iter().map(|values| values.len()).collect_vec();
    dealt(&queue, &lens, |owner, numbers| {
        let batch = Batch::new(numbers.iter().map(|&number| columns[number]).collect());
        let mut whole = batch.allocate(owner);
        batch.send(0..numbers.len(), &mut Staging::new(), owner.stream(), &mut whole);
        batch.parts(&whole).iter().map(|column| column.seen_from(&queue)).collect()
    })
}

/// A column with these values that is kept on the host.
fn streamed(queue: &Queue, values: &[BaseField], streaming: Streaming) -> DeviceColumn<BaseField> {
    Ranks::require_one(queue, "columns that are streamed from the host's memory").or_raise();
    DeviceColumn::streamed(queue, Pages::with(queue, bytemuck::cast_slice(values), streaming, reduced))
}

impl DeviceColumn<BaseField> {
    /// A column with these values, in the context of the scope this is called in.
    pub fn upload(values: &[BaseField]) -> Self {
        let Some(column) = upload(&[values]).pop() else { unreachable!("one column for one") };
        column
    }
}

/// Brings columns of values on canonic domains to the device and interpolates them, some while the next are
/// on their way: for `TreeBuilder::extend_polys`, instead of uploading and `extend_evals`.
///
/// Inside of a [`Context::scope`](crate::Context::scope).
pub fn upload_and_interpolate(
    columns: &[&[BaseField]],
    twiddles: &TwiddleTree<CudaBackend>,
) -> Vec<CircleCoefficients<CudaBackend>> {
    let on_domain = |column: &&'_ [BaseField]| {
        let len = column.len();
        if len < 2 || !len.is_power_of_two() {
            raise(Error::Unsupported {
                what: format!(
                    "a column of {len} values; as many as a domain has can be interpolated, 2, 4, 8 and so on"
                ),
            })
        }
        CanonicCoset::new(len.ilog2()).circle_domain()
    };
    let domains = columns.iter().map(on_domain).collect_vec();
    interpolate_on(&domains, columns, twiddles)
}

/// The same for columns on domains of their own, each as long as its domain.
pub(crate) fn interpolate_on(
    domains: &[CircleDomain],
    columns: &[&[BaseField]],
    twiddles: &TwiddleTree<CudaBackend>,
) -> Vec<CircleCoefficients<CudaBackend>> {
    let queue = Queue::current();
    if let Some(streaming) = Streams::of(&queue).get() {
        let columns = columns.iter().map(|values| streamed(&queue, values, streaming)).collect_vec();
        return interpolate_streamed(domains, columns, twiddles);
    }
    let lens = columns.iter().map(|values| values.len()).collect_vec();
    dealt(&queue, &lens, |owner, numbers| {
        let domains = numbers.iter().map(|&number| domains[number]).collect_vec();
        let columns = numbers.iter().map(|&number| columns[number]).collect_vec();
        let arrived = interpolate_for(owner, &domains, &columns, &twiddles.itwiddles.on(owner));
        arrived.iter().map(|column| CircleCoefficients::new(column.seen_from(&queue))).collect()
    })
}

/// The coefficients of columns on domains of their own, on one device.
fn interpolate_for(
    queue: &Queue,
    domains: &[CircleDomain],
    columns: &[&[BaseField]],
    inverses: &DeviceTwiddles,
) -> Vec<DeviceColumn<BaseField>> {
    // Columns of one domain lie together, whatever order they came in.
    let kinds = domains.iter().copied().dedup().fold(Vec::new(), |mut kinds, domain| {
        if !kinds.contains(&domain) {
            kinds.push(domain);
        }
        kinds
    });
    let kind = |&number: &usize| kinds.iter().position(|&kind| kind == domains[number]);
    let order = (0..columns.len()).sorted_by_key(kind).collect_vec();
    let batch = Batch::new(order.iter().map(|&number| columns[number]).collect());

    let mut whole = batch.allocate(queue);
    let targets = batch.parts(&whole);
    let copies = queue.stream().device().stream().or_raise();
    copies.wait(&queue.stream().record().or_raise()).or_raise();
    let mut staging = Staging::new();
    let mut first = 0;
    while first < order.len() {
        let domain = domains[order[first]];
        // As many of one domain as make a group.
        let most = (GROUP / size_of::<u32>() / domain.size()).max(1);
        let same = order[first..].iter().take(most).take_while(|&&number| domains[number] == domain);
        let group = first..first + same.count();
        first = group.end;
        batch.send(group.clone(), &mut staging, &copies, &mut whole);
        queue.stream().wait(&copies.record().or_raise()).or_raise();
        let (direction, group) = (Direction::Inverse, &targets[group]);
        transform(queue, direction, domain, inverses, group, domain.size(), group);
    }
    let arrived = order.into_iter().zip(targets).sorted_by_key(|&(number, _)| number);
    arrived.map(|(_, column)| column).collect()
}
