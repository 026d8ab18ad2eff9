//! `PolyOps`: interpolation, evaluation, and single values.

use std::sync::Arc;

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
use super::groups::{Wanted, by_groups};
use super::homes::{Home, by_home};
use super::oods;
use super::twiddles::{self, DeviceTwiddles};
use crate::backend::CudaBackend;
use crate::column::{DeviceColumn, Finish};
use crate::error::OrRaise as _;
use crate::pages::Pages;
use crate::queue::Queue;
use crate::stages::Stage;

type Evaluation = CircleEvaluation<CudaBackend, BaseField, BitReversedOrder>;
type Coefficients = CircleCoefficients<CudaBackend>;

impl PolyOps for CudaBackend {
    type Twiddles = DeviceTwiddles;

    fn interpolate(evaluation: Evaluation, twiddles: &TwiddleTree<Self>) -> Coefficients {
        if evaluation.values.is_streamed() {
            return streamed_coefficients(evaluation.values, &Interpolation::of(evaluation.domain, twiddles));
        }
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
            let (streamed, on_device): (Vec<_>, Vec<_>) = places
                .into_iter()
                .filter_map(|place| Some((place, columns[place].take()?)))
                .partition(|(_, column)| column.values.is_streamed());
            let interpolation = Interpolation::of(domain, twiddles);
            for (place, column) in streamed {
                polynomials[place] = Some(streamed_coefficients(column.values, &interpolation));
            }
            let (places, group): (Vec<_>, Vec<_>) = on_device.into_iter().unzip();
            for (place, polynomial) in places.into_iter().zip(interpolate_same_domain(group, twiddles)) {
                polynomials[place] = Some(polynomial);
            }
        }
        polynomials.into_iter().flatten().collect()
    }

    fn eval_at_point(polynomial: &Coefficients, point: CirclePoint<SecureField>) -> SecureField {
        let column = polynomial.coeffs.at_home();
        let basis = oods::monomials(column.queue(), polynomial.log_size(), point);
        oods::dot_products(column.queue(), [&column], &basis).read()[0]
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
        let column = evaluation.values.at_home();
        let queue = column.queue();
        let weights = oods::weights(queue, evaluation.domain, &twiddles.itwiddles.on(queue), point);
        oods::dot_products(queue, [&column], &weights).read()[0]
    }

    fn extend(polynomial: &Coefficients, log_size: u32) -> Coefficients {
        let (from, len) = (polynomial.coeffs.brought(), 1usize << log_size);
        assert!(len >= from.len(), "{} coefficients are no extension of {}", len, from.len());
        let queue = from.queue();
        let mut column = DeviceColumn::<BaseField>::new(queue, len);
        let mut words = column.words_mut();
        queue.stream().copy(&from.words(queue), &mut words.slice_mut(..from.len())).or_raise();
        queue.stream().fill(&mut words.slice_mut(from.len()..), 0).or_raise();
        CircleCoefficients::new(column)
    }

    fn evaluate(polynomial: &Coefficients, domain: CircleDomain, twiddles: &TwiddleTree<Self>) -> Evaluation {
        if polynomial.coeffs.is_streamed() {
            return evaluate_streamed(&[polynomial], domain, twiddles).remove(0);
        }
        let column = polynomial.coeffs.at_home();
        let buffer = DeviceColumn::new(column.queue(), domain.size());
        Self::evaluate_into(polynomial, domain, twiddles, buffer.seen_from(polynomial.coeffs.queue()))
    }

    fn evaluate_into(
        polynomial: &Coefficients,
        domain: CircleDomain,
        twiddles: &TwiddleTree<Self>,
        buffer: Col<Self, BaseField>,
    ) -> Evaluation {
        // What is away stays so, and into what is elsewhere than the polynomial nothing is written.
        let (from, to) = (polynomial.coeffs.at_home(), buffer.at_home());
        from.queue().require_beside(to.queue());
        if from.is_streamed() || to.is_streamed() || !from.queue().is(to.queue()) {
            return Self::evaluate(polynomial, domain, twiddles);
        }
        evaluate_at_home(&[from], domain, twiddles, &[to]);
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
        let mut values: Vec<Option<Evaluation>> = polynomials.iter().map(|_| None).collect();
        let (streamed, on_device): (Vec<_>, Vec<_>) =
            (0..polynomials.len()).partition(|&place| polynomials[place].coeffs.is_streamed());
        let sources = on_device.iter().map(|&place| &polynomials[place].coeffs);
        let mut buffers: Vec<Option<DeviceColumn<BaseField>>> = on_device.iter().map(|_| None).collect();
        for home in by_home(sources) {
            let sizes = home.places.iter().map(|&place| log_size(&polynomials[on_device[place]]));
            for (place, buffer) in
                home.places.iter().zip(columns_from(&home.queue, pool, &sizes.collect_vec()))
            {
                buffers[*place] = Some(buffer);
            }
        }
        for size in polynomials.iter().map(log_size).unique().collect_vec() {
            let domain = CanonicCoset::new(size).circle_domain();
            let is_of_size = |place: usize| log_size(&polynomials[place]) == size;
            let places = streamed.iter().copied().filter(|&place| is_of_size(place)).collect_vec();
            let group = places.iter().map(|&place| &polynomials[place]).collect_vec();
            for (place, evaluation) in places.into_iter().zip(evaluate_streamed(&group, domain, twiddles)) {
                values[place] = Some(evaluation);
            }
            let places = on_device.iter().copied().zip(&mut buffers).filter(|&(place, _)| is_of_size(place));
            let (places, targets): (Vec<_>, Vec<_>) =
                places.filter_map(|(place, buffer)| Some((place, buffer.take()?))).unzip();
            for home in by_home(&targets) {
                let source = |&place: &usize| polynomials[places[place]].coeffs.at_home();
                let sources = home.places.iter().map(source).collect_vec();
                evaluate_at_home(&sources, domain, twiddles, &home.columns);
            }
            for (place, target) in places.into_iter().zip(targets) {
                let target = target.seen_from(polynomials[place].coeffs.queue());
                values[place] = Some(CircleEvaluation::new(domain, target));
            }
        }
        let pairs = polynomials.into_iter().zip(values.into_iter().flatten());
        let poly =
            |(polynomial, values)| Poly::new(store_polynomials_coefficients.then_some(polynomial), values);
        pairs.map(poly).collect()
    }

    fn precompute_twiddles(coset: Coset) -> TwiddleTree<Self> {
        twiddles::precompute(&Queue::current(), coset)
    }

    fn split_at_mid(polynomial: Coefficients) -> (Coefficients, Coefficients) {
        let (left, right) = polynomial.coeffs.split_at_mid();
        (CircleCoefficients::new(left), CircleCoefficients::new(right))
    }
}

/// Columns of these sizes: those of the scope's queue from the pool as long as it has some, then all others
/// in one allocation.
fn columns_from(
    queue: &Queue,
    pool: &BaseColumnPool<CudaBackend>,
    log_sizes: &[u32],
) -> Vec<DeviceColumn<BaseField>> {
    let mut columns = Vec::with_capacity(log_sizes.len());
    let scope = Queue::current();
    scope.require_beside(queue);
    let pooled = if queue.is(&scope) { log_sizes } else { &[] };
    for &log_size in pooled {
        let before = queue.allocations();
        columns.push(pool.take_or_alloc(log_size));
        // What was away before has come back to the pool.
        if let Some(column) = columns.pop_if(|column| column.is_away()) {
            columns.push(DeviceColumn::new(queue, column.len()));
            continue;
        }
        // The pool does not tell what it has; an allocation does.
        if queue.allocations() > before {
            break;
        }
    }
    let rest = &log_sizes[columns.len()..];
    if !rest.is_empty() {
        columns.extend(DeviceColumn::batch(queue, rest.iter().map(|&log_size| 1usize << log_size)));
    }
    columns
}

/// Interpolates columns and keeps their values.
pub fn interpolate_kept(columns: &[&Evaluation], twiddles: &TwiddleTree<CudaBackend>) -> Vec<Coefficients> {
    let Some(first) = columns.first() else { return Vec::new() };
    if columns.iter().any(|column| column.values.is_streamed()) {
        // The values of columns that are streamed are kept anyway.
        let copies = columns.iter().map(|&column| column.clone()).collect();
        return CudaBackend::interpolate_columns(copies, twiddles);
    }
    let queue = first.values.queue();
    let _stage = queue.stage(Stage::Interpolate);
    let mut coefficients: Vec<Option<Coefficients>> = columns.iter().map(|_| None).collect();
    for home in by_home(columns.iter().map(|column| &column.values)) {
        let targets = DeviceColumn::batch(&home.queue, home.columns.iter().map(|values| values.len()));
        let (direction, inverses) = (Direction::Inverse, twiddles.itwiddles.on(&home.queue));
        let pairs =
            home.places.iter().map(|&place| columns[place].domain).zip(home.columns.iter().zip(&targets));
        for (domain, group) in &pairs.chunk_by(|&(domain, _)| domain) {
            let (sources, targets): (Vec<_>, Vec<_>) = group.map(|(_, pair)| pair).unzip();
            transform(&home.queue, direction, domain, &inverses, sources, domain.size(), targets);
        }
        for (place, target) in home.places.into_iter().zip(targets) {
            coefficients[place] = Some(CircleCoefficients::new(target.seen_from(queue)));
        }
    }
    coefficients.into_iter().flatten().collect()
}

/// The values of columns that are streamed are interpolated each time that they have been brought:
/// coefficients take no memory of the host beside them, and no way there and back.
struct Interpolation {
    domain: CircleDomain,
    inverses: DeviceTwiddles,
}

impl Interpolation {
    fn of(domain: CircleDomain, twiddles: &TwiddleTree<CudaBackend>) -> Arc<dyn Finish> {
        Arc::new(Self { domain, inverses: twiddles.itwiddles.clone() })
    }
}

impl Finish for Interpolation {
    fn finish(&self, queue: &Queue, columns: &[DeviceColumn<BaseField>]) {
        let (direction, size) = (Direction::Inverse, self.domain.size());
        transform(queue, direction, self.domain, &self.inverses, columns, size, columns);
    }
}

fn streamed_coefficients(values: DeviceColumn<BaseField>, interpolation: &Arc<dyn Finish>) -> Coefficients {
    CircleCoefficients::new(values.yet_to(interpolation.clone()))
}

/// The coefficients of columns that are streamed, each on a domain as long as it.
pub(crate) fn interpolate_streamed(
    domains: &[CircleDomain],
    columns: Vec<DeviceColumn<BaseField>>,
    twiddles: &TwiddleTree<CudaBackend>,
) -> Vec<Coefficients> {
    let evaluations = domains.iter().zip(columns);
    let evaluations = evaluations.map(|(&domain, values)| Evaluation::new(domain, values)).collect();
    CudaBackend::interpolate_columns(evaluations, twiddles)
}

/// Evaluates polynomials that are streamed on one domain. The values are streamed too.
fn evaluate_streamed(
    polynomials: &[&Coefficients],
    domain: CircleDomain,
    twiddles: &TwiddleTree<CudaBackend>,
) -> Vec<Evaluation> {
    let columns = polynomials.iter().map(|polynomial| &polynomial.coeffs).collect_vec();
    let beside = (domain.size() * size_of::<BaseField>()) as u64;
    let mut evaluations = Vec::with_capacity(columns.len());
    let same_length = columns.chunk_by(|before, after| before.len() == after.len());
    for columns in same_length {
        let (queue, len) = (columns[0].queue(), columns[0].len());
        by_groups(queue, columns, &Wanted { beside, ..Wanted::WHOLE }, |group, arrived| {
            let targets = DeviceColumn::batch(queue, arrived.iter().map(|_| domain.size()));
            transform(queue, Direction::Forward, domain, &twiddles.twiddles, arrived, len, &targets);
            for (column, target) in columns[group].iter().zip(&targets) {
                let Some(streaming) = column.streaming() else {
                    unreachable!("those of others are not asked for")
                };
                let pages = Pages::new(queue, domain.size(), streaming);
                pages.store(queue.stream(), 0, &target.words(queue));
                evaluations.push(CircleEvaluation::new(domain, DeviceColumn::streamed(queue, pages)));
            }
        });
    }
    evaluations
}

/// Interpolates evaluations on one domain, in place.
fn interpolate_same_domain(
    columns: Vec<Evaluation>,
    twiddles: &TwiddleTree<CudaBackend>,
) -> Vec<Coefficients> {
    let Some(first) = columns.first() else { return Vec::new() };
    let domain = first.domain;
    for Home { queue, columns, .. } in by_home(columns.iter().map(|column| &column.values)) {
        let inverses = twiddles.itwiddles.on(&queue);
        transform(&queue, Direction::Inverse, domain, &inverses, &columns, domain.size(), &columns);
    }
    columns.into_iter().map(|column| CircleCoefficients::new(column.values)).collect()
}

/// Evaluates coefficients on one domain, into columns of its size, all of which lie on one queue.
fn evaluate_at_home(
    coefficients: &[DeviceColumn<BaseField>],
    domain: CircleDomain,
    twiddles: &TwiddleTree<CudaBackend>,
    targets: &[DeviceColumn<BaseField>],
) {
    for (len, group) in &coefficients.iter().zip(targets).chunk_by(|(source, _)| source.len()) {
        let (sources, targets): (Vec<_>, Vec<_>) = group.unzip();
        let queue = sources[0].queue();
        transform(queue, Direction::Forward, domain, &twiddles.twiddles.on(queue), sources, len, targets);
    }
}
