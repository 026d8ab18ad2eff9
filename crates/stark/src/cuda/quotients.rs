//! `QuotientOps`: the quotients that FRI is run on.

use gatework_gpu::{ByValue, args};
use itertools::Itertools as _;
use stwo::core::circle::CirclePoint;
use stwo::core::fields::cm31::CM31;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::quotients::{ColumnSampleBatch, quotient_constants};
use stwo::core::poly::circle::{CanonicCoset, CircleDomain};
use stwo::core::utils::bit_reverse_index;
use stwo::prover::QuotientOps;
use stwo::prover::backend::Column as _;
use stwo::prover::pcs::quotient_ops::AccumulatedNumerators;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleEvaluation, SecureEvaluation};
use stwo::prover::poly::twiddles::{TwiddleBuffer as _, TwiddleTree};

use super::circle_fft::{Direction, transform};
use super::{flat_words, one_thread_each, words};
use crate::backend::CudaBackend;
use crate::column::{coordinates, secure_column, table};
use crate::kernels;
use crate::queue::Queue;
use crate::shared::Sampled;

impl QuotientOps for CudaBackend {
    fn accumulate_numerators(
        columns: &[&CircleEvaluation<Self, BaseField, BitReversedOrder>],
        sample_batches: &[ColumnSampleBatch],
        accumulated_numerators_vec: &mut Vec<AccumulatedNumerators<Self>>,
        log_blowup_factor: u32,
    ) {
        let rows = columns[0].values.len() >> log_blowup_factor;
        let queue = columns[0].values.queue();
        let lens = columns.iter().map(|column| column.values.len());
        assert!(lens.dedup().count() == 1, "columns that are divided together have one length");
        let constants = quotient_constants(sample_batches);
        for (batch, coefficients) in sample_batches.iter().zip(constants.line_coeffs) {
            let sampled = batch.cols_vals_randpows.iter().map(|sample| &columns[sample.column_index].values);
            let sampled = table(queue, sampled);
            let factors: Vec<SecureField> = coefficients.iter().map(|&(_, _, c)| c).collect();
            let factors = queue.upload(&flat_words(&factors));
            let constant: SecureField = coefficients.iter().map(|&(_, b, _)| b).sum();
            let numerators = secure_column(queue, rows);
            let arguments = args![
                &sampled,
                factors.slice(..).cast::<[u32; 4]>(),
                coefficients.len() as u32,
                ByValue(&words(constant)),
                ByValue(&coordinates(queue, &numerators)),
                rows as u32
            ];
            queue.launch(&kernels::QUOTIENTS, "numerators", &one_thread_each(rows), &arguments);
            accumulated_numerators_vec.push(AccumulatedNumerators {
                sample_point: batch.point,
                partial_numerators_acc: numerators,
                first_linear_term_acc: coefficients.iter().map(|&(a, _, _)| a).sum(),
            });
        }
    }

    fn compute_quotients_and_combine(
        accumulations: Vec<AccumulatedNumerators<Self>>,
        lifting_log_size: u32,
        log_blowup_factor: u32,
        twiddles: &TwiddleTree<Self>,
    ) -> SecureEvaluation<Self, BitReversedOrder> {
        let domain = CanonicCoset::new(lifting_log_size).circle_domain();
        let (subdomain, _) = domain.split(log_blowup_factor);
        let rows = subdomain.size();
        let queue = accumulations[0].partial_numerators_acc.columns[0].queue();
        let points: Vec<Sampled> = accumulations.iter().map(|sums| sampled(queue, sums, rows)).collect();
        let points = queue.upload(&points);
        let quotients = secure_column(queue, rows);
        twiddles.twiddles.require(queue, domain);
        // The table of the domain: its prefix is that of the subdomain.
        let table = &twiddles.twiddles;
        let arguments = args![
            &points,
            points.len() as u32,
            table.table(queue),
            table.log_table(),
            table.log_domain(lifting_log_size),
            ByValue(&first_points(domain)),
            ByValue(&coordinates(queue, &quotients)),
            rows as u32,
        ];
        queue.launch(&kernels::QUOTIENTS, "combine_quotients", &one_thread_each(rows), &arguments);

        let inverses = twiddles.itwiddles.extract_subdomain_twiddles(lifting_log_size, subdomain.log_size());
        let columns = &quotients.columns;
        transform(queue, Direction::Inverse, subdomain, &inverses, columns, rows, columns);
        let values = secure_column(queue, domain.size());
        let forward = Direction::Forward;
        transform(queue, forward, domain, &twiddles.twiddles, columns, rows, &values.columns);
        SecureEvaluation::new(domain, values)
    }
}

fn sampled(queue: &Queue, sums: &AccumulatedNumerators<CudaBackend>, rows: usize) -> Sampled {
    let pair = |value: CM31| [value.0.0, value.1.0];
    let CirclePoint { x, y } = sums.sample_point;
    let numerators = &sums.partial_numerators_acc;
    let len = numerators.columns[0].len();
    assert!(len.is_power_of_two() && len <= rows, "{len} numerators are not lifted to {rows}");
    Sampled {
        real_x: pair(x.0),
        real_y: pair(y.0),
        imaginary_x: pair(x.1),
        imaginary_y: pair(y.1),
        linear: words(sums.first_linear_term_acc),
        numerators: coordinates(queue, numerators),
        shift: rows.ilog2() - len.ilog2(),
        unused: 0,
    }
}

/// x and y, doubled, of the first two pairs of conjugate points of a domain that is too small for a table.
fn first_points(domain: CircleDomain) -> [u32; 4] {
    if domain.log_size() >= 3 {
        return [0; 4];
    }
    let point = |pair: usize| domain.at(bit_reverse_index(2 * pair % domain.size(), domain.log_size()));
    let (first, second) = (point(0), point(1));
    [first.x, first.y, second.x, second.y].map(|coordinate| coordinate.0 << 1)
}
