//! `PolyOps`: interpolation, evaluation, and single values.

use itertools::Itertools as _;
use stwo::core::ColumnVec;
use stwo::core::circle::{CirclePoint, Coset};
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::poly::circle::{CanonicCoset, CircleDomain};
use stwo::prover::Poly;
use stwo::prover::backend::{Col, Column as _};
use stwo::prover::mempool::BaseColumnPool;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleCoefficients, CircleEvaluation, PolyOps};
use stwo::prover::poly::twiddles::TwiddleTree;

use super::circle_fft::{Direction, transform};
use super::oods;
use super::twiddles::{self, DeviceTwiddles};
use crate::backend::CudaBackend;
use crate::column::DeviceColumn;
use crate::error::OrRaise as _;
use crate::queue::Queue;
use crate::stages::Stage;

type Evaluation = CircleEvaluation<CudaBackend, BaseField, BitReversedOrder>;
type Coefficients = CircleCoefficients<CudaBackend>;

impl PolyOps for CudaBackend {
    type Twiddles = DeviceTwiddles;

    fn interpolate(evaluation: Evaluation, twiddles: &TwiddleTree<Self>) -> Coefficients {
        // A trace is interpolated as a whole; columns come alone from the composition polynomial.
        let queue = evaluation.values.queue().clone();
        let _stage = queue.stage(Stage::Composition);
        let (domain, mut evaluation) = (evaluation.domain, evaluation);
        let together = evaluation.values.interpolated_together(domain, |values| {
            let targets = DeviceColumn::batch(&queue, values.iter().map(|values| values.len()));
            let inverses = &twiddles.itwiddles;
            transform(&queue, Direction::Inverse, domain, inverses, values, domain.size(), &targets);
            targets
        });
        if let Some(coefficients) = together {
            return CircleCoefficients::new(coefficients);
        }
        interpolate_same_domain(vec![evaluation], twiddles).pop().expect("one polynomial for one column")
    }

    fn interpolate_columns(columns: Vec<Evaluation>, twiddles: &TwiddleTree<Self>) -> Vec<Coefficients> {
        let _stage = columns.first().map(|first| first.values.queue().stage(Stage::Interpolate));
        // Columns of one domain go together; they come back in the order they were given in.
        let mut domains: Vec<CircleDomain> = Vec::new();
        for column in &columns {
            if !domains.contains(&column.domain) {
                domains.push(column.domain);
            }
        }
        let mut polynomials: Vec<Option<Coefficients>> = columns.iter().map(|_| None).collect();
        let mut columns: Vec<Option<Evaluation>> = columns.into_iter().map(Some).collect();
        for domain in domains {
            let places = (0..columns.len())
                .filter(|&place| columns[place].as_ref().is_some_and(|column| column.domain == domain))
                .collect_vec();
            let group = places.iter().filter_map(|&place| columns[place].take()).collect();
            for (place, polynomial) in places.into_iter().zip(interpolate_same_domain(group, twiddles)) {
                polynomials[place] = Some(polynomial);
            }
        }
        polynomials.into_iter().flatten().collect()
    }

    fn eval_at_point(polynomial: &Coefficients, point: CirclePoint<SecureField>) -> SecureField {
        let column = &polynomial.coeffs;
        let basis = oods::monomials(column.queue(), polynomial.log_size(), point);
        oods::dot_products(column.queue(), [column], &basis)[0]
    }

    fn barycentric_weights(coset: CanonicCoset, point: CirclePoint<SecureField>) -> Col<Self, SecureField> {
        let queue = Queue::current();
        let domain = coset.circle_domain();
        let tree = twiddles::precompute(&queue, domain.half_coset);
        oods::interleave(&queue, &oods::weights(&queue, domain, &tree.itwiddles, point))
    }

    fn barycentric_eval_at_point(evaluation: &Evaluation, weights: &Col<Self, SecureField>) -> SecureField {
        oods::dot_interleaved(&evaluation.values, weights)
    }

    fn eval_at_point_by_folding(
        evaluation: &Evaluation,
        point: CirclePoint<SecureField>,
        twiddles: &TwiddleTree<Self>,
    ) -> SecureField {
        let queue = evaluation.values.queue();
        let weights = oods::weights(queue, evaluation.domain, &twiddles.itwiddles, point);
        oods::dot_products(queue, [&evaluation.values], &weights)[0]
    }

    fn extend(polynomial: &Coefficients, log_size: u32) -> Coefficients {
        let (from, len) = (&polynomial.coeffs, 1usize << log_size);
        assert!(len >= from.len(), "{} coefficients are no extension of {}", len, from.len());
        let queue = from.queue();
        let mut column = DeviceColumn::<BaseField>::new(queue, len);
        let mut words = column.words_mut();
        queue.stream().copy(&from.words(queue), &mut words.slice_mut(..from.len())).or_raise();
        queue.stream().fill(&mut words.slice_mut(from.len()..), 0).or_raise();
        CircleCoefficients::new(column)
    }

    fn evaluate(polynomial: &Coefficients, domain: CircleDomain, twiddles: &TwiddleTree<Self>) -> Evaluation {
        let buffer = DeviceColumn::new(polynomial.coeffs.queue(), domain.size());
        Self::evaluate_into(polynomial, domain, twiddles, buffer)
    }

    fn evaluate_into(
        polynomial: &Coefficients,
        domain: CircleDomain,
        twiddles: &TwiddleTree<Self>,
        buffer: Col<Self, BaseField>,
    ) -> Evaluation {
        evaluate_same_size(&[polynomial], domain, twiddles, &[&buffer]);
        CircleEvaluation::new(domain, buffer)
    }

    fn evaluate_polynomials(
        polynomials: ColumnVec<Coefficients>,
        log_blowup_factor: u32,
        twiddles: &TwiddleTree<Self>,
        store_polynomials_coefficients: bool,
        pool: &BaseColumnPool<Self>,
    ) -> Vec<Poly<Self>> {
        let _stage = polynomials.first().map(|first| first.coeffs.queue().stage(Stage::Extend));
        let log_size = |polynomial: &Coefficients| polynomial.log_size() + log_blowup_factor;
        let values = columns_from(pool, &polynomials.iter().map(log_size).collect_vec());
        for size in polynomials.iter().map(log_size).unique().collect_vec() {
            let domain = CanonicCoset::new(size).circle_domain();
            let (group, targets): (Vec<_>, Vec<_>) = polynomials
                .iter()
                .zip(&values)
                .filter(|(polynomial, _)| log_size(polynomial) == size)
                .unzip();
            evaluate_same_size(&group, domain, twiddles, &targets);
        }
        polynomials
            .into_iter()
            .zip(values)
            .map(|(polynomial, values)| {
                let domain = CanonicCoset::new(log_size(&polynomial)).circle_domain();
                let kept = store_polynomials_coefficients.then_some(polynomial);
                Poly::new(kept, CircleEvaluation::new(domain, values))
            })
            .collect()
    }

    fn precompute_twiddles(coset: Coset) -> TwiddleTree<Self> {
        twiddles::precompute(&Queue::current(), coset)
    }

    fn split_at_mid(polynomial: Coefficients) -> (Coefficients, Coefficients) {
        let (left, right) = polynomial.coeffs.split_at_mid();
        (CircleCoefficients::new(left), CircleCoefficients::new(right))
    }
}

/// Columns of these sizes: from the pool as long as it has some, then all others in one allocation.
fn columns_from(pool: &BaseColumnPool<CudaBackend>, log_sizes: &[u32]) -> Vec<DeviceColumn<BaseField>> {
    let queue = Queue::current();
    let mut columns = Vec::with_capacity(log_sizes.len());
    for &log_size in log_sizes {
        let before = queue.allocations();
        columns.push(pool.take_or_alloc(log_size));
        // The pool does not tell what it has; an allocation does.
        if queue.allocations() > before {
            break;
        }
    }
    let rest = &log_sizes[columns.len()..];
    if !rest.is_empty() {
        columns.extend(DeviceColumn::batch(&queue, rest.iter().map(|&log_size| 1usize << log_size)));
    }
    columns
}

/// Interpolates columns and keeps their values.
pub fn interpolate_kept(columns: &[&Evaluation], twiddles: &TwiddleTree<CudaBackend>) -> Vec<Coefficients> {
    let Some(first) = columns.first() else { return Vec::new() };
    let all = || columns.iter().map(|column| &column.values);
    let queue = first.values.queue();
    let _stage = queue.stage(Stage::Interpolate);
    let targets = DeviceColumn::batch(queue, all().map(|values| values.len()));
    let pairs = columns.iter().zip(&targets);
    for (domain, group) in &pairs.chunk_by(|(column, _)| column.domain) {
        let (sources, targets): (Vec<_>, Vec<_>) =
            group.map(|(column, target)| (&column.values, target)).unzip();
        let (direction, inverses) = (Direction::Inverse, &twiddles.itwiddles);
        transform(queue, direction, domain, inverses, sources, domain.size(), targets);
    }
    targets.into_iter().map(CircleCoefficients::new).collect()
}

/// Interpolates evaluations on one domain, in place.
fn interpolate_same_domain(
    columns: Vec<Evaluation>,
    twiddles: &TwiddleTree<CudaBackend>,
) -> Vec<Coefficients> {
    let Some(first) = columns.first() else { return Vec::new() };
    let domain = first.domain;
    let columns = columns.into_iter().map(|column| column.values).collect_vec();
    let queue = columns[0].queue();
    transform(queue, Direction::Inverse, domain, &twiddles.itwiddles, &columns, domain.size(), &columns);
    columns.into_iter().map(CircleCoefficients::new).collect()
}

/// Evaluates polynomials on one domain, into columns of its size.
fn evaluate_same_size(
    polynomials: &[&Coefficients],
    domain: CircleDomain,
    twiddles: &TwiddleTree<CudaBackend>,
    targets: &[&DeviceColumn<BaseField>],
) {
    for (len, group) in &polynomials.iter().zip(targets).chunk_by(|(polynomial, _)| polynomial.coeffs.len()) {
        let (sources, targets): (Vec<_>, Vec<_>) =
            group.map(|(polynomial, target)| (&polynomial.coeffs, *target)).unzip();
        let queue = sources[0].queue();
        transform(queue, Direction::Forward, domain, &twiddles.twiddles, sources, len, targets);
    }
}
