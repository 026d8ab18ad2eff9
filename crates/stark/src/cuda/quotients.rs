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
use stwo::prover::backend::Column as _;
use stwo::prover::pcs::quotient_ops::AccumulatedNumerators;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleEvaluation, SecureEvaluation};
use stwo::prover::poly::twiddles::{TwiddleBuffer as _, TwiddleTree};
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::{AccumulationOps as _, QuotientOps};

use super::circle_fft::{Direction, transform};
use super::groups::{Wanted, by_groups};
use super::homes::{Home, by_home};
use super::{flat_words, one_thread_each, words};
use crate::backend::CudaBackend;
use crate::column::{DeviceColumn, coordinates, secure_column, table};
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
        let constant = |coefficients: &Vec<Coefficients>| Some(coefficients.iter().map(|&(_, b, _)| b).sum());
        let mut sampled = Sampling {
            batches: sample_batches,
            coefficients: &constants.line_coeffs,
            constants: constants.line_coeffs.iter().map(constant).collect(),
            rows,
        };
        let mut sums: Vec<Option<SecureColumnByCoords<Self>>> = sample_batches.iter().map(|_| None).collect();
        // Each device adds up its own columns, and what comes of it travels.
        for home in by_home(columns.iter().map(|column| &column.values)) {
            for (sum, part) in sums.iter_mut().zip(sampled.numerators_of(&home)) {
                let Some(part) = part else { continue };
                if home.queue.is(queue) {
                    add(sum, part);
                } else {
                    let mut arrived = secure_column(queue, rows);
                    for (to, from) in arrived.columns.iter_mut().zip(&part.columns) {
                        to.fetch(from);
                    }
                    add(sum, arrived);
                }
            }
        }
        for ((batch, coefficients), sum) in sample_batches.iter().zip(&constants.line_coeffs).zip(sums) {
            let Some(sum) = sum else { unreachable!("a point is one of some column") };
            accumulated_numerators_vec.push(AccumulatedNumerators {
                sample_point: batch.point,
                partial_numerators_acc: sum,
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

type Coefficients = (SecureField, SecureField, SecureField);

/// What is added up of columns for each point that they are sampled at.
struct Sampling<'a> {
    batches: &'a [ColumnSampleBatch],
    coefficients: &'a [Vec<Coefficients>],
    /// What is yet to be taken off, once.
    constants: Vec<Option<SecureField>>,
    rows: usize,
}

impl Sampling<'_> {
    /// The numerators of each point over some of the columns, on their device. None where none of them is
    /// sampled.
    fn numerators_of(&mut self, home: &Home) -> Vec<Option<SecureColumnByCoords<CudaBackend>>> {
        let (queue, rows) = (&home.queue, self.rows);
        let mut sums: Vec<Option<SecureColumnByCoords<CudaBackend>>> =
            self.batches.iter().map(|_| None).collect();
        let columns = home.columns.iter().collect_vec();
        by_groups(queue, &columns, &Wanted { rows, ..Wanted::WHOLE }, |group, arrived| {
            let places = &home.places[group];
            let batches = self.batches.iter().zip(self.coefficients).zip(&mut self.constants).zip(&mut sums);
            for (((batch, coefficients), constant), sum) in batches {
                let samples = batch.cols_vals_randpows.iter().zip(coefficients);
                let of_group = samples.filter_map(|(sample, &(_, _, c))| {
                    Some((&arrived[places.binary_search(&sample.column_index).ok()?], c))
                });
                let (sampled, factors): (Vec<_>, Vec<_>) = of_group.unzip();
                if !sampled.is_empty() {
                    let constant = constant.take().unwrap_or_default();
                    add(sum, numerators(queue, &sampled, &factors, constant, rows));
                }
            }
        });
        sums
    }
}

fn add(sum: &mut Option<SecureColumnByCoords<CudaBackend>>, part: SecureColumnByCoords<CudaBackend>) {
    match sum {
        None => *sum = Some(part),
        Some(sum) => CudaBackend::accumulate(sum, &part),
    }
}

/// The sum of factor times value over columns, less `constant`.
fn numerators(
    queue: &Queue,
    columns: &[&DeviceColumn<BaseField>],
    factors: &[SecureField],
    constant: SecureField,
    rows: usize,
) -> SecureColumnByCoords<CudaBackend> {
    let (columns, count) = (table(queue, columns.iter().copied()), factors.len() as u32);
    let factors = queue.upload(&flat_words(factors));
    let numerators = secure_column(queue, rows);
    let arguments = args![
        &columns,
        factors.slice(..).cast::<[u32; 4]>(),
        count,
        ByValue(&words(constant)),
        ByValue(&coordinates(queue, &numerators)),
        rows as u32
    ];
    queue.launch(&kernels::QUOTIENTS, "numerators", &one_thread_each(rows), &arguments);
    numerators
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
