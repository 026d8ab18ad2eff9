//! `FriOps`: folds.

use gatework_gpu::{Buffer, ByValue, Grid, args};
use stwo::core::circle::Coset;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::poly::line::LineDomain;
use stwo::core::utils::bit_reverse_index;
use stwo::prover::backend::Column as _;
use stwo::prover::fri::FriOps;
use stwo::prover::line::LineEvaluation;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::SecureEvaluation;
use stwo::prover::poly::twiddles::TwiddleTree;

use super::{THREADS, one_thread_each, words};
use crate::backend::CudaBackend;
use crate::column::{coordinates, secure_column};
use crate::element::Element as _;
use crate::error::OrRaise as _;
use crate::kernels;
use crate::shared::Leaves;

/// Blocks that a sum over a column is cut into.
const SUM_BLOCKS: u32 = 264;

impl FriOps for CudaBackend {
    fn fold_line(
        evaluation: &LineEvaluation<Self>,
        alpha: SecureField,
        twiddles: &TwiddleTree<Self>,
        fold_step: u32,
    ) -> LineEvaluation<Self> {
        let alpha = evaluation.values.columns[0].queue().upload(&[words(alpha)]);
        fold_line_by(evaluation, &alpha, 0, twiddles, fold_step)
    }

    fn fold_circle_into_line(
        evaluation: &SecureEvaluation<Self, BitReversedOrder>,
        alpha: SecureField,
        twiddles: &TwiddleTree<Self>,
    ) -> LineEvaluation<Self> {
        let alpha = evaluation.values.columns[0].queue().upload(&[words(alpha)]);
        fold_circle_by(evaluation, &alpha, twiddles, Leaves::default())
    }

    fn decompose(
        evaluation: &SecureEvaluation<Self, BitReversedOrder>,
    ) -> (SecureEvaluation<Self, BitReversedOrder>, SecureField) {
        let values = &evaluation.values;
        let queue = values.columns[0].queue();
        let rows = values.columns[0].len();
        let blocks = (rows as u32).div_ceil(THREADS).min(SUM_BLOCKS);
        let mut partials = queue.alloc::<[u32; 4]>(blocks as usize);
        let grid = Grid::new([blocks, 1, 1], [THREADS, 1, 1]).shared(THREADS / 32 * 16);
        let arguments =
            args![ByValue(&coordinates(queue, values)), rows as u64, rows as u64 / 2, &mut partials];
        queue.launch(&kernels::COLUMNS, "sum_signed", &grid, &arguments);
        let partials = queue.stream().download(&partials).or_raise();
        let sum: SecureField = partials.iter().map(|words| SecureField::read(words)).sum();
        let lambda = sum / BaseField::from_u32_unchecked(rows as u32);
        let rest = secure_column(queue, rows);
        let arguments = args![
            ByValue(&coordinates(queue, values)),
            ByValue(&coordinates(queue, &rest)),
            ByValue(&words(lambda)),
            rows as u64
        ];
        queue.launch(&kernels::FRI, "decompose", &one_thread_each(rows), &arguments);
        (SecureEvaluation::new(evaluation.domain, rest), lambda)
    }
}

/// A challenge in device memory.
pub(crate) type Challenge = Buffer<[u32; 4]>;

/// Folds a circle polynomial into one of the line.
pub(crate) fn fold_circle_by(
    evaluation: &SecureEvaluation<CudaBackend, BitReversedOrder>,
    alpha: &Challenge,
    twiddles: &TwiddleTree<CudaBackend>,
    leaves: Leaves,
) -> LineEvaluation<CudaBackend> {
    let values = &evaluation.values;
    let queue = values.columns[0].queue();
    let log_domain = evaluation.domain.log_size();
    let pairs = values.columns[0].len() / 2;
    assert_eq!(2 * pairs, evaluation.domain.size(), "a column on a domain has as many values");
    let folded = secure_column(queue, pairs);
    let few = [0, 1].map(|pair: usize| {
        let index = bit_reverse_index(2 * pair % evaluation.domain.size(), log_domain);
        if log_domain < 3 { evaluation.domain.at(index).y.inverse().0 << 1 } else { 0 }
    });
    let inverses = &twiddles.itwiddles;
    let arguments = args![
        ByValue(&coordinates(queue, values)),
        ByValue(&coordinates(queue, &folded)),
        inverses.table(queue),
        inverses.log_table_for(evaluation.domain.half_coset),
        log_domain,
        ByValue(&few),
        alpha,
        ByValue(&leaves),
    ];
    queue.launch(&kernels::FRI, "fold_circle", &one_thread_each(pairs).early(), &arguments);
    LineEvaluation::new(LineDomain::new(Coset::half_odds(log_domain - 1)), folded)
}

/// Folds a polynomial of the line `fold_step` times, by alpha^(2^squarings) and then by its squares.
pub(crate) fn fold_line_by(
    evaluation: &LineEvaluation<CudaBackend>,
    alpha: &Challenge,
    squarings: u32,
    twiddles: &TwiddleTree<CudaBackend>,
    fold_step: u32,
) -> LineEvaluation<CudaBackend> {
    assert!(fold_step >= 1, "a fold halves the domain once at least");
    let once = |line: &_, step| fold_line_once(line, alpha, squarings + step, twiddles, Leaves::default());
    (1..fold_step).fold(once(evaluation, 0), |folded, step| once(&folded, step))
}

/// Folds a polynomial of the line by alpha^(2^squarings).
pub(crate) fn fold_line_once(
    evaluation: &LineEvaluation<CudaBackend>,
    alpha: &Challenge,
    squarings: u32,
    twiddles: &TwiddleTree<CudaBackend>,
    leaves: Leaves,
) -> LineEvaluation<CudaBackend> {
    let values = &evaluation.values;
    let queue = values.columns[0].queue();
    let len = values.columns[0].len();
    assert!(len >= 2, "a line of {len} points cannot be folded");
    assert_eq!(len, evaluation.len(), "a column on a line has as many values");
    let folded = secure_column(queue, len / 2);
    let inverses = &twiddles.itwiddles;
    let arguments = args![
        ByValue(&coordinates(queue, values)),
        ByValue(&coordinates(queue, &folded)),
        inverses.table(queue),
        inverses.log_table_for(evaluation.domain().coset()),
        len.ilog2(),
        alpha,
        squarings,
        ByValue(&leaves),
    ];
    queue.launch(&kernels::FRI, "fold_line", &one_thread_each(len / 2).early(), &arguments);
    LineEvaluation::new(evaluation.domain().double(), folded)
}
