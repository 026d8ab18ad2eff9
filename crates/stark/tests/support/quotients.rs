//! Sums of quotients of constraints on any backend.

use itertools::Itertools as _;
use stwo::core::air::Component as _;
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::TreeVec;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::{Backend, CpuBackend};
use stwo::prover::poly::circle::CircleCoefficients;
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::{ComponentProver, DomainEvaluationAccumulator, EvaluationMode, Poly, Trace};
use stwo_constraint_framework::preprocessed_columns::PreProcessedColumnId;
use stwo_constraint_framework::{FrameworkComponent, FrameworkEval, TraceLocationAllocator};

use super::Random;

/// The sums of a component's quotients over random columns, which satisfy nothing: whatever is computed
/// shows.
pub fn quotients<E: FrameworkEval, B: Backend>(
    preprocessed: &[PreProcessedColumnId],
    eval: E,
    mode: EvaluationMode,
) -> SecureColumnByCoords<CpuBackend>
where
    FrameworkComponent<E>: ComponentProver<B>,
{
    let mut places = TraceLocationAllocator::new_with_preprocessed_columns(preprocessed);
    let sum = SecureField::from_u32_unchecked(5, 4, 3, 2);
    let component = FrameworkComponent::new(&mut places, eval, sum);
    let bound = component.max_constraint_log_degree_bound();
    let log_committed = match mode {
        EvaluationMode::SubDomain { log_expansion } => bound + log_expansion,
        EvaluationMode::ExtendToEvalDomain => bound,
    };
    let twiddles = B::precompute_twiddles(CanonicCoset::new(log_committed + 1).circle_domain().half_coset);
    let mut seed = 0;
    let mut polynomial = |log_size: u32| {
        seed += 1;
        let coefficients = Random::new(seed).bases(1 << log_size).into_iter().collect();
        let polynomial = CircleCoefficients::<B>::new(coefficients);
        let domain = CanonicCoset::new(log_committed).circle_domain();
        let values = polynomial.evaluate_with_twiddles(domain, &twiddles);
        Poly::new(Some(polynomial), values)
    };
    let bounds = component.trace_log_degree_bounds();
    let polynomials =
        bounds.iter().map(|tree| tree.iter().map(|&log| polynomial(log)).collect_vec()).collect_vec();
    let trace = Trace { polys: TreeVec(polynomials.iter().map(|tree| tree.iter().collect()).collect()) };
    let alpha = SecureField::from_u32_unchecked(1, 6, 1, 8);
    let mut sums = DomainEvaluationAccumulator::<B>::new(alpha, bound, component.n_constraints(), mode);
    component.evaluate_constraint_quotients_on_domain(&trace, &mut sums);
    let [sums] = sums.columns([(bound, 0)]);
    sums.col.to_cpu()
}
