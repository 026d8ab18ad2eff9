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
use stwo_constraint_framework::{FrameworkEval, ORIGINAL_TRACE_IDX, PREPROCESSED_TRACE_IDX};

use super::cache::{Prepared, Workshop};
use super::graph::Node;
use super::inputs::Inputs;
use super::program::Roots;
use super::record::record;
use super::tape::Tape;
use crate::backend::CudaBackend;
use crate::column::{DeviceColumn, Element as _, table};
use crate::cuda::{one_thread_each, words};
use crate::error::{OrRaise as _, raise};
use crate::queue::Queue;
use crate::shared::{Rows, SCAN_ROWS};
use crate::{Error, kernels};

type Evaluation = CircleEvaluation<CudaBackend, BaseField, BitReversedOrder>;

const THREADS: u32 = 256;

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
    let (rows, count) = (1usize << log_size, tape.batches.len());
    // Numerators become sums where they are.
    let mut sums = DeviceColumn::<BaseField>::batch(&queue, vec![rows; 4 * count]);
    let denominators = DeviceColumn::<BaseField>::batch(&queue, vec![rows; 4 * count]);

    let own_first = preprocessed.len() as u32;
    let column = |interaction: u32, column: u32| match interaction as usize {
        PREPROCESSED_TRACE_IDX => column,
        ORIGINAL_TRACE_IDX => own_first + column,
        _ => unreachable!("fractions are made of the trace and preprocessed columns"),
    };
    let workshop = Workshop::of(&queue);
    let tier = workshop.tier();
    let depends_on = ("fractions", tier, *tape.key().as_bytes(), own_first);
    let prepared = workshop.get(depends_on, || {
        let graph = tape.graph();
        Prepared::new(&queue, tier, &graph, &Roots::fractions(&graph), column)
    });
    let inputs = Inputs {
        columns: all.iter().map(|column| column.address(&queue)).collect(),
        parameters: tape.parameters,
    };
    let coordinates_of =
        |column: usize| sums[4 * column..][..4].iter().chain(&denominators[4 * column..][..4]);
    let outputs = table(&queue, (0..count).flat_map(coordinates_of));
    let component = Rows {
        // Who launches has those of `inputs` on the device.
        columns: 0,
        parameters: 0,
        // No constraint is evaluated.
        coefficients: 0,
        denominators: 0,
        sums: [0; 4],
        log_trace: log_size,
        log_rows: log_size,
    };
    prepared.or_raise().launch(&queue, &inputs, &component, Some(&outputs));

    let grid = Grid::covering(rows, THREADS).shared(THREADS / 32 * 16);
    let mut partials = queue.alloc::<[u32; 4]>(grid.blocks[0] as usize);
    let arguments = args![&outputs, count as u32, rows as u32, &mut partials];
    queue.launch(&kernels::LOGUP, "sum_fractions", &grid, &arguments);
    let partials = queue.stream().download(&partials).or_raise();
    let claimed_sum: SecureField = partials.iter().map(|words| SecureField::read(words)).sum();
    sum_over_rows(&queue, &mut sums[4 * count - 4..], log_size, claimed_sum);

    let domain = CanonicCoset::new(log_size).circle_domain();
    (sums.into_iter().map(|column| CircleEvaluation::new(domain, column)).collect(), claimed_sum)
}

/// Panics unless `columns`, preprocessed ones and those of the trace, are all that the fractions ask for, of the trace's length.
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

/// Sums a column of QM31 up over the rows in the order of the coset, less a shift that brings the end back to zero.
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
