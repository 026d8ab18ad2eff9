//! Interaction traces of LogUp, from the same recording as the constraints.

use std::ops::Range;

use gatework_gpu::{Buffer, ByValue, Grid, args};
use itertools::Itertools as _;
use num_traits::Zero as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::Column as _;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::CircleEvaluation;
use stwo_constraint_framework::{FrameworkEval, ORIGINAL_TRACE_IDX, PREPROCESSED_TRACE_IDX};

use super::cache::{Prepared, Workshop};
use super::chunks::{Chunk, Domain, Read, by_chunks, log_chunk};
use super::graph::Node;
use super::inputs::Inputs;
use super::program::Roots;
use super::record::record;
use super::tape::{self, Tape};
use crate::backend::CudaBackend;
use crate::column::{DeviceColumn, table};
use crate::cuda::{one_thread_each, words};
use crate::element::Element as _;
use crate::error::{OrRaise as _, raise};
use crate::pages::Pages;
use crate::queue::Queue;
use crate::ranks::{Ranks, column_words, deal, dealt, meet};
use crate::shared::{Rows, SCAN_ROWS};
use crate::{Error, kernels};

type Evaluation = CircleEvaluation<CudaBackend, BaseField, BitReversedOrder>;

const THREADS: u32 = 256;

/// The interaction trace of a component and what its fractions sum up to, for challenges that `eval` already
/// holds.
///
/// `preprocessed` are the preprocessed columns that the component uses, in the order in which it asks for
/// them; `trace` are its own columns, on the trace's domain. What comes back is for
/// `TreeBuilder::extend_evals` and `FrameworkComponent::new`, and the same as stwo's `LogupTraceGenerator`
/// gives for the same fractions.
pub fn interaction_trace<E: FrameworkEval>(
    eval: &E,
    preprocessed: &[&Evaluation],
    trace: &[&Evaluation],
) -> (Vec<Evaluation>, SecureField) {
    let tape = record(eval, SecureField::zero());
    let log_size = eval.log_size();
    let Some(first) = trace.first().or(preprocessed.first()) else {
        raise(Error::Unsupported { what: "an interaction trace without columns".into() })
    };
    if tape.batches.is_empty() {
        return (Vec::new(), SecureField::zero());
    }
    require_columns(&tape, log_size, [preprocessed, trace]);
    let all = preprocessed.iter().chain(trace).map(|column| &column.values).collect_vec();
    let queue = first.values.queue().clone();
    let (columns, claimed_sum) = if all.iter().any(|column| column.there().is_some()) {
        on_ranks(&queue, &tape, log_size, preprocessed.len(), &all)
    } else {
        match log_chunk(all.iter().copied(), log_size) {
            None => on_all_rows(&queue, tape, log_size, preprocessed.len(), &all),
            Some(log_chunk) => on_chunks(&queue, &tape, log_size, preprocessed.len(), &all, log_chunk),
        }
    };
    let domain = CanonicCoset::new(log_size).circle_domain();
    (columns.into_iter().map(|column| CircleEvaluation::new(domain, column)).collect(), claimed_sum)
}

/// The place of a column among those of a component, of which the first are preprocessed.
fn place(preprocessed: usize, interaction: u32, column: u32) -> u32 {
    match interaction as usize {
        PREPROCESSED_TRACE_IDX => column,
        ORIGINAL_TRACE_IDX => preprocessed as u32 + column,
        _ => unreachable!("fractions are made of the trace and preprocessed columns"),
    }
}

/// The columns and their sum, of columns in device memory.
fn on_all_rows(
    queue: &Queue,
    tape: Tape,
    log_size: u32,
    preprocessed: usize,
    all: &[&DeviceColumn<BaseField>],
) -> (Vec<DeviceColumn<BaseField>>, SecureField) {
    let (rows, count) = (1usize << log_size, tape.batches.len());
    // Numerators become sums where they are.
    let mut sums = DeviceColumn::<BaseField>::batch(queue, vec![rows; 4 * count]);
    let denominators = DeviceColumn::<BaseField>::batch(queue, vec![rows; 4 * count]);
    let workshop = Workshop::of(queue);
    let tier = workshop.tier();
    let depends_on = ("fractions", tier, *tape.key().as_bytes(), preprocessed);
    let prepared = workshop.get(depends_on, || {
        let graph = tape.graph();
        let column = |interaction, column| place(preprocessed, interaction, column);
        Prepared::new(queue, tier, &graph, &Roots::fractions(&graph), column)
    });
    let inputs = Inputs {
        columns: all.iter().map(|column| column.address(queue)).collect(),
        parameters: tape.parameters,
    };
    let outputs = outputs(queue, &sums, &denominators);
    prepared.or_raise().launch(queue, &inputs, &without_constraints(log_size, log_size), Some(&outputs));
    let claimed_sum = sum_fractions(queue, &outputs, count, rows).read();
    sum_over_rows(queue, &mut sums[4 * count - 4..], log_size, claimed_sum);
    (sums, claimed_sum)
}

/// The same of columns of which some are streamed, a chunk of 2^`log_chunk` rows at a time. What comes back
/// is streamed too. The last column alone is in device memory as a whole, since its rows are summed up.
fn on_chunks(
    queue: &Queue,
    tape: &Tape,
    log_size: u32,
    preprocessed: usize,
    all: &[&DeviceColumn<BaseField>],
    log_chunk: u32,
) -> (Vec<DeviceColumn<BaseField>>, SecureField) {
    let Some(streaming) = all.iter().find_map(|column| column.streaming()) else {
        unreachable!("chunks are of columns that are streamed")
    };
    let (rows, count) = (1usize << log_size, tape.batches.len());
    let pages = (0..4 * count).map(|_| Pages::new(queue, rows, streaming)).collect_vec();
    let mut last = DeviceColumn::<BaseField>::batch(queue, [rows; 4]);
    let mut claimed_sum = SecureField::zero();
    let all = all.iter().map(|column| column.alias()).collect_vec();
    let fractions = tape.fractions_at_own_rows();
    by_fractions(
        queue,
        &fractions,
        log_size,
        preprocessed,
        &all,
        log_chunk,
        0..rows,
        |chunk, sums, total| {
            claimed_sum += total.read();
            let (before, of_last) = sums.split_at(4 * count - 4);
            for (sums, pages) in before.iter().zip(&pages) {
                pages.store(queue.stream(), chunk.first >> log_chunk, &sums.words(queue));
            }
            for (sums, whole) in of_last.iter().zip(&last) {
                whole.part(chunk.first, sums.len()).fetch(sums);
            }
        },
    );
    sum_over_rows(queue, &mut last, log_size, claimed_sum);
    for (column, pages) in last.iter().zip(&pages[4 * count - 4..]) {
        pages.store(queue.stream(), 0, &column.words(queue));
    }
    (pages.into_iter().map(|pages| DeviceColumn::streamed(queue, pages)).collect(), claimed_sum)
}

/// The same of columns of which some lie on other devices: each device does a part of the rows. What comes
/// back is dealt out to the devices, first the coordinates of the last column, all to one, which sums its rows
/// up.
fn on_ranks(
    lead: &Queue,
    tape: &Tape,
    log_size: u32,
    preprocessed: usize,
    all: &[&DeviceColumn<BaseField>],
) -> (Vec<DeviceColumn<BaseField>>, SecureField) {
    let (rows, count) = (1usize << log_size, tape.batches.len());
    let fractions = tape.fractions_at_own_rows();
    let (ranks, log_ranks) = Ranks::for_rows(lead, log_size);
    let of_rank = rows >> log_ranks;
    let part = |(rank, queue): (usize, &Queue)| {
        let seen = all.iter().map(|column| column.seen_from(queue)).collect_vec();
        let (log_chunk, range) = (of_rank.ilog2(), rank * of_rank..(rank + 1) * of_rank);
        let mut made = None;
        by_fractions(queue, &fractions, log_size, preprocessed, &seen, log_chunk, range, |_, sums, total| {
            made = Some((sums, total));
        });
        made
    };
    let parts: Vec<_> = meet(lead, || ranks.iter().enumerate().filter_map(part).collect());
    let summing = &Ranks::all(lead)[deal([4 * rows as u64], column_words(lead))[0]];
    let last = DeviceColumn::batch(summing, [rows; 4]);
    let mut columns = dealt(lead, &vec![rows; 4 * count - 4], |queue, numbers| {
        DeviceColumn::batch(queue, vec![rows; numbers.len()])
    });
    columns.extend(last);
    let mut claimed_sum = SecureField::zero();
    for (rank, (sums, total)) in parts.into_iter().enumerate() {
        for (column, sums) in columns.iter().zip(&sums) {
            column.part(rank * of_rank, of_rank).fetch(sums);
        }
        claimed_sum += total.read();
    }
    sum_over_rows(summing, &mut columns[4 * count - 4..], log_size, claimed_sum);
    (columns.iter().map(|column| column.seen_from(lead)).collect(), claimed_sum)
}

/// Calls `visit` with what the fractions of `rows` sum up to, row by row, a chunk of 2^`log_chunk` at a time:
/// the coordinates of all columns, and the sum of all rows.
#[expect(clippy::too_many_arguments, reason = "what fractions are, and which of their rows")]
fn by_fractions(
    queue: &Queue,
    (own, reads): &(Tape, Vec<tape::Read>),
    log_size: u32,
    preprocessed: usize,
    all: &[DeviceColumn<BaseField>],
    log_chunk: u32,
    rows: Range<usize>,
    mut visit: impl FnMut(Chunk, Vec<DeviceColumn<BaseField>>, Total),
) {
    let count = own.batches.len();
    let read = |read: &tape::Read| Read {
        column: &all[place(preprocessed, read.interaction, read.column) as usize],
        offset: read.offset,
    };
    let reads = reads.iter().map(read).collect_vec();
    let workshop = Workshop::of(queue);
    let tier = workshop.tier();
    let prepared = workshop.get(("fractions of chunks", tier, *own.key().as_bytes()), || {
        let graph = own.graph();
        Prepared::new(queue, tier, &graph, &Roots::fractions(&graph), |_, column| column)
    });
    let prepared = prepared.or_raise();
    let domain = Domain { log_trace: log_size, log_rows: log_size };
    let chunks = rows.start >> log_chunk..rows.end >> log_chunk;
    by_chunks(queue, &reads, domain, log_chunk, chunks, |chunk, columns| {
        let inputs = Inputs { columns, parameters: own.parameters.clone() };
        let of_chunk = 1usize << log_chunk;
        let sums = DeviceColumn::<BaseField>::batch(queue, vec![of_chunk; 4 * count]);
        let denominators = DeviceColumn::<BaseField>::batch(queue, vec![of_chunk; 4 * count]);
        let outputs = outputs(queue, &sums, &denominators);
        prepared.launch(queue, &inputs, &without_constraints(log_size, log_chunk), Some(&outputs));
        let total = sum_fractions(queue, &outputs, count, of_chunk);
        visit(chunk, sums, total);
    });
}

/// Where numerators and denominators go: coordinates of one column after the other.
fn outputs(
    queue: &Queue,
    numerators: &[DeviceColumn<BaseField>],
    denominators: &[DeviceColumn<BaseField>],
) -> Buffer<u64> {
    let pairs = numerators.chunks(4).zip(denominators.chunks(4));
    table(queue, pairs.flat_map(|(numerator, denominator)| numerator.iter().chain(denominator)))
}

/// Rows on which no constraint is evaluated.
fn without_constraints(log_trace: u32, log_rows: u32) -> Rows {
    // Who launches has columns and parameters on the device.
    let (columns, parameters) = (0, 0);
    Rows { columns, parameters, coefficients: 0, denominators: 0, sums: [0; 4], log_trace, log_rows }
}

/// A sum over rows on its way, in parts.
struct Total {
    queue: Queue,
    parts: Buffer<[u32; 4]>,
}

impl Total {
    /// Waits for it.
    fn read(self) -> SecureField {
        let parts = self.queue.stream().download(&self.parts).or_raise();
        parts.iter().map(|words| SecureField::read(words)).sum()
    }
}

/// Sums the fractions of each row up, column by column, where the numerators are. Gives the sum of all.
fn sum_fractions(queue: &Queue, outputs: &Buffer<u64>, count: usize, rows: usize) -> Total {
    let grid = Grid::covering(rows, THREADS).shared(THREADS / 32 * 16);
    let mut parts = queue.alloc::<[u32; 4]>(grid.blocks[0] as usize);
    let arguments = args![outputs, count as u32, rows as u32, &mut parts];
    queue.launch(&kernels::LOGUP, "sum_fractions", &grid, &arguments);
    Total { queue: queue.clone(), parts }
}

/// Panics unless `columns`, preprocessed ones and those of the trace, are all that the fractions ask for, of
/// the trace's length.
fn require_columns(tape: &Tape, log_size: u32, columns: [&[&Evaluation]; 2]) {
    for node in tape.nodes() {
        if let Node::Column { interaction, column, .. } = *node
            && let Some(given) = columns.get(interaction as usize)
        {
            let count = given.len();
            assert!(
                (column as usize) < count,
                "column {column} of tree {interaction} is asked for, of {count}"
            );
        }
    }
    for column in columns.into_iter().flatten() {
        let len = column.values.len();
        assert!(len == 1 << log_size, "a component of 2^{log_size} rows has no column of {len} values");
    }
}

/// Sums a column of QM31 up over the rows in the order of the coset, less a shift that brings the end back to
/// zero.
fn sum_over_rows(
    queue: &Queue,
    coordinates: &mut [DeviceColumn<BaseField>],
    log_size: u32,
    claimed_sum: SecureField,
) {
    let shift = words(claimed_sum / BaseField::from_u32_unchecked(1 << log_size));
    let rows = coordinates[0].len();
    let blocks = one_thread_each(rows.div_ceil(SCAN_ROWS as usize)).shared(THREADS / 32 * 16);
    let mut block_sums = queue.alloc::<[u32; 4]>(blocks.blocks[0] as usize);
    let column: [u64; 4] = std::array::from_fn(|coordinate| coordinates[coordinate].address(queue));
    let arguments = args![ByValue(&column), ByValue(&shift), log_size, &mut block_sums];
    queue.launch(&kernels::LOGUP, "scan_blocks", &blocks, &arguments);
    let one = Grid::new([1, 1, 1], [THREADS, 1, 1]).shared(THREADS / 32 * 16);
    queue.launch(&kernels::LOGUP, "scan_sums", &one, &args![&mut block_sums, blocks.blocks[0]]);
    let arguments = args![ByValue(&column), ByValue(&shift), log_size, &block_sums];
    queue.launch(&kernels::LOGUP, "scan_rows", &blocks, &arguments);
}
