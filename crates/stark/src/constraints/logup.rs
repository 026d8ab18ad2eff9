//! Interaction traces of LogUp, from the same recording as the constraints.

use gatework_gpu::{ByValue, Grid, args};
use itertools::Itertools as _;
use num_traits::Zero as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::Column as _;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::CircleEvaluation;
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo_constraint_framework::{FrameworkEval, ORIGINAL_TRACE_IDX, PREPROCESSED_TRACE_IDX};

use super::cache::Prepared;
use super::component::{Rows, or_some_words};
use super::graph::{Graph, Node};
use super::interpret::Interpreted;
use super::program::{Program, Root};
use super::record::record;
use crate::backend::CudaBackend;
use crate::column::{Element as _, coordinates, secure_column, table};
use crate::cuda::{flat_words, one_thread_each, words};
use crate::error::{OrRaise as _, raise};
use crate::queue::Queue;
use crate::{Error, kernels};

type Evaluation = CircleEvaluation<CudaBackend, BaseField, BitReversedOrder>;

const THREADS: u32 = 256;
/// Rows that one thread of a scan adds up, as in `kernels/logup.cuh`.
const SCAN_ROWS: usize = 8;

/// The interaction trace of a component and what its fractions sum up to, for challenges that `eval` already holds.
///
/// `preprocessed` are the preprocessed columns that the component uses, in the order in which it asks for them; `trace` are
/// its own columns, on the trace's domain. What comes back is for `TreeBuilder::extend_evals` and
/// `FrameworkComponent::new`, and the same as stwo's `LogupTraceGenerator` gives for the same fractions.
pub fn interaction_trace<E: FrameworkEval>(
    eval: &E,
    preprocessed: &[&Evaluation],
    trace: &[&Evaluation],
) -> (Vec<Evaluation>, SecureField) {
    let graph = record(eval, SecureField::zero());
    let log_size = eval.log_size();
    let Some(first) = trace.first().or(preprocessed.first()) else {
        raise(Error::Unsupported { what: "an interaction trace without columns".into() })
    };
    if graph.batches.is_empty() {
        return (Vec::new(), SecureField::zero());
    }
    require_columns(&graph, log_size, [preprocessed, trace]);
    let all = preprocessed.iter().chain(trace).map(|column| &column.values).collect_vec();
    let queue = first.values.queue().clone();
    let (rows, count) = (1usize << log_size, graph.batches.len());
    let new_columns = || (0..count).map(|_| secure_column(&queue, rows)).collect_vec();
    let (numerators, denominators, sums) = (new_columns(), new_columns(), new_columns());

    let roots = graph.batches.iter().enumerate().flat_map(|(index, batch)| {
        let index = index as u32;
        [(Root::Output(index), batch.numerator), (Root::Output(count as u32 + index), batch.denominator)]
    });
    let own_first = preprocessed.len() as u32;
    let column = |interaction: u32, column: u32| match interaction as usize {
        PREPROCESSED_TRACE_IDX => column,
        ORIGINAL_TRACE_IDX => own_first + column,
        _ => unreachable!("fractions are made of the trace and preprocessed columns"),
    };
    let depends_on = ("fractions", graph.nodes(), &graph.batches, own_first);
    let prepared = queue.constraints().get(depends_on, || {
        Ok(Prepared::Interpreted(Interpreted::new(&queue, &graph, &Program::new(&graph, roots), column)))
    });
    let prepared = prepared.or_raise();
    let Prepared::Interpreted(program) = &*prepared else { unreachable!("fractions are interpreted") };
    let outputs = flat_table(&queue, numerators.iter().chain(&denominators));
    let table = table(&queue, all);
    let parameters = queue.upload(&or_some_words(flat_words(&graph.parameters)));
    let component = Rows {
        columns: table.as_raw(),
        parameters: parameters.as_raw(),
        // No constraint is evaluated.
        coefficients: parameters.as_raw(),
        denominators: parameters.as_raw(),
        sums: coordinates(&queue, &sums[0]),
        log_trace: log_size,
        log_rows: log_size,
    };
    program.launch(&queue, &component, &outputs);

    let of_rows = flat_table(&queue, &sums);
    let grid = Grid::covering(rows, THREADS).shared(THREADS / 32 * 16);
    let mut partials = queue.alloc::<[u32; 4]>(grid.blocks[0] as usize);
    let arguments = args![
        outputs.slice(..4 * count),
        outputs.slice(4 * count..),
        &of_rows,
        count as u32,
        rows as u32,
        &mut partials
    ];
    queue.launch(&kernels::LOGUP, "sum_fractions", &grid, &arguments);
    let partials = queue.stream().download(&partials).or_raise();
    let claimed_sum: SecureField = partials.iter().map(|words| SecureField::read(words)).sum();
    sum_over_rows(&queue, &sums[count - 1], log_size, claimed_sum);

    let domain = CanonicCoset::new(log_size).circle_domain();
    let columns = sums.into_iter().flat_map(|sum| sum.columns);
    (columns.map(|column| CircleEvaluation::new(domain, column)).collect(), claimed_sum)
}

/// Panics unless `columns`, preprocessed ones and those of the trace, are all that the fractions ask for, of the trace's length.
fn require_columns(graph: &Graph, log_size: u32, columns: [&[&Evaluation]; 2]) {
    for node in graph.nodes() {
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

/// Addresses of all coordinates.
fn flat_table<'a>(
    queue: &Queue,
    columns: impl IntoIterator<Item = &'a SecureColumnByCoords<CudaBackend>>,
) -> gatework_gpu::Buffer<u64> {
    queue.upload(&columns.into_iter().flat_map(|column| coordinates(queue, column)).collect::<Vec<u64>>())
}

/// Sums a column up over the rows in the order of the coset, less a shift that brings the end back to zero.
fn sum_over_rows(
    queue: &Queue,
    column: &SecureColumnByCoords<CudaBackend>,
    log_size: u32,
    claimed_sum: SecureField,
) {
    let shift = words(claimed_sum / BaseField::from_u32_unchecked(1 << log_size));
    let rows = column.columns[0].len();
    let blocks = one_thread_each(rows.div_ceil(SCAN_ROWS)).shared(THREADS / 32 * 16);
    let mut block_sums = queue.alloc::<[u32; 4]>(blocks.blocks[0] as usize);
    let column = coordinates(queue, column);
    let arguments = args![ByValue(&column), ByValue(&shift), log_size, &mut block_sums];
    queue.launch(&kernels::LOGUP, "scan_blocks", &blocks, &arguments);
    let one = Grid::new([1, 1, 1], [THREADS, 1, 1]).shared(THREADS / 32 * 16);
    queue.launch(&kernels::LOGUP, "scan_sums", &one, &args![&mut block_sums, blocks.blocks[0]]);
    let arguments = args![ByValue(&column), ByValue(&shift), log_size, &block_sums];
    queue.launch(&kernels::LOGUP, "scan_rows", &blocks, &arguments);
}
