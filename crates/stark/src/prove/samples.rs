//! Values of all columns at their points.

use std::collections::HashMap;

use stwo::core::ColumnVec;
use stwo::core::channel::MerkleChannel;
use stwo::core::circle::CirclePoint;
use stwo::core::fields::qm31::{SECURE_EXTENSION_DEGREE, SecureField};
use stwo::core::pcs::TreeVec;
use stwo::core::pcs::quotients::PointSample;
use stwo::prover::CommitmentSchemeProver;
use stwo::prover::backend::BackendForChannel;
use stwo::prover::poly::twiddles::TwiddleBuffer as _;

use crate::backend::CudaBackend;
use crate::cuda::oods;
use crate::queue::Queue;

/// The device that a column lies on, its size, and where it is sampled.
type HomeSizeAndPoint = (usize, u32, CirclePoint<SecureField>);
type Points = TreeVec<ColumnVec<Vec<CirclePoint<SecureField>>>>;

/// Samples every column at its points.
///
/// A polynomial of n coefficients is known by its first n values, so that weights and sums are over those
/// alone, and columns of one size and one device are sampled at a point together.
pub(super) fn at_points<MC: MerkleChannel>(
    queue: &Queue,
    scheme: &CommitmentSchemeProver<'_, CudaBackend, MC>,
    points: &Points,
    lifting_log_size: u32,
) -> TreeVec<ColumnVec<Vec<PointSample>>>
where
    CudaBackend: BackendForChannel<MC>,
{
    let log_blowup = scheme.config.fri_config.log_blowup_factor;
    let polynomials = scheme.polynomials();
    let wanted = || {
        let columns = polynomials.iter().flatten().zip(points.iter().flatten());
        columns.flat_map(|(polynomial, points)| points.iter().map(move |&point| (&polynomial.evals, point)))
    };
    // Which samples each device, size and point has, in the order of their first.
    let mut groups: Vec<(HomeSizeAndPoint, Vec<usize>)> = Vec::new();
    let mut group_of = HashMap::new();
    for (number, (evaluation, point)) in wanted().enumerate() {
        let home = evaluation.values.there().unwrap_or(&evaluation.values).queue();
        queue.require_beside(home);
        let rank = home.rank();
        let key = (rank, evaluation.domain.log_size(), point);
        let group = *group_of.entry(key).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(number);
    }
    let evaluations: Vec<_> = wanted().map(|(evaluation, _)| evaluation).collect();
    // All devices are asked before the first is waited for.
    let mut asked = Vec::with_capacity(groups.len());
    for ((_, log_size, point), numbers) in groups {
        let subdomain = evaluations[numbers[0]].domain.split(log_blowup).0;
        let inverses = scheme.twiddles.itwiddles.extract_subdomain_twiddles(log_size, subdomain.log_size());
        let folded = point.repeated_double(lifting_log_size - log_size);
        let columns: Vec<_> = numbers.iter().map(|&number| evaluations[number].values.at_home()).collect();
        let queue = columns[0].queue();
        let weights = oods::weights(queue, subdomain, &inverses.on(queue), folded);
        asked.push((numbers, oods::dot_products(queue, &columns, &weights)));
    }
    let mut values = vec![SecureField::default(); evaluations.len()];
    for (numbers, products) in asked {
        for (number, value) in numbers.into_iter().zip(products.read()) {
            values[number] = value;
        }
    }
    let mut values = values.into_iter();
    points.as_cols_ref().map_cols(|points| {
        let samples = points.iter().zip(&mut values);
        samples.map(|(&point, value)| PointSample { point, value }).collect()
    })
}

/// The value of the composition polynomial at `point`, from the samples of its halves: left + pi^(n - 1)(x)
/// right.
pub(super) fn composition(
    sampled_values: &TreeVec<ColumnVec<Vec<SecureField>>>,
    point: CirclePoint<SecureField>,
    log_degree: u32,
) -> SecureField {
    let halves = sampled_values.last().expect("the composition polynomial is the last tree");
    let half = |first: usize| {
        SecureField::from_partial_evals(std::array::from_fn::<_, SECURE_EXTENSION_DEGREE, _>(|coordinate| {
            halves[first + coordinate][0]
        }))
    };
    half(0) + point.repeated_double(log_degree - 1).x * half(SECURE_EXTENSION_DEGREE)
}
