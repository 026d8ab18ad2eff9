//! Quotients of constraints against `CpuBackend`, on every kind of domain and by both tiers.

mod support;

use gatework_gpu::Device;
use gatework_stark::airs::{Air, Lookup, Plonk, StateMachine, WideFibonacci};
use gatework_stark::{Context, CudaBackend, Tier};
use itertools::Itertools as _;
use stwo::core::air::Component as _;
use stwo::core::channel::Blake2sChannel;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::TreeVec;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::{Backend, CpuBackend};
use stwo::prover::poly::circle::CircleCoefficients;
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::{ComponentProver, DomainEvaluationAccumulator, EvaluationMode, Poly, Trace};
use stwo_constraint_framework::{EvalAtRow, FrameworkComponent, FrameworkEval, TraceLocationAllocator};

use support::Random;

/// Ways that columns may lie.
const MODES: [EvaluationMode; 3] = [
    EvaluationMode::SubDomain { log_expansion: 0 },
    EvaluationMode::SubDomain { log_expansion: 2 },
    EvaluationMode::ExtendToEvalDomain,
];

/// The sums of a component's quotients over random columns, which satisfy nothing: whatever is computed shows.
fn quotients<E: FrameworkEval, B: Backend>(eval: E, mode: EvaluationMode) -> SecureColumnByCoords<CpuBackend>
where
    FrameworkComponent<E>: ComponentProver<B>,
{
    let mut places = TraceLocationAllocator::default();
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

/// By some tier, as by `CpuBackend`.
fn matches_cpu<E: FrameworkEval + Send + Sync>(
    eval: impl Fn() -> E + Send + Sync,
    tier: Tier,
    mode: EvaluationMode,
) where
    FrameworkComponent<E>: ComponentProver<CudaBackend> + ComponentProver<CpuBackend>,
{
    let context = Context::new(&Device::emulated(11).unwrap()).unwrap();
    context.set_tier(tier);
    let found = context.scope(|| quotients::<E, CudaBackend>(eval(), mode)).unwrap();
    let expected = quotients::<E, CpuBackend>(eval(), mode);
    assert!(found.to_vec() == expected.to_vec(), "{tier:?}, {mode:?}");
}

fn match_cpu<A: Air>(air: &A)
where
    FrameworkComponent<A::Eval>: ComponentProver<CudaBackend> + ComponentProver<CpuBackend>,
{
    let eval = || air.evals(&mut Blake2sChannel::default()).remove(0);
    for (tier, mode) in [Tier::Interpreted, Tier::Generated].into_iter().cartesian_product(MODES) {
        matches_cpu(eval, tier, mode);
    }
}

#[test]
fn quotients_match_cpu() {
    match_cpu(&WideFibonacci { log_rows: 4, columns: 6 });
    match_cpu(&Lookup { log_rows: 5, salt: 0 });
    match_cpu(&Plonk { log_rows: 3 });
    match_cpu(&StateMachine { log_rows: 4 });
}

/// Constraints for more than one kernel; `constraints/generate.rs` tests that they are.
#[test]
fn constraints_of_several_kernels_match_cpu() {
    for tier in [Tier::Interpreted, Tier::Generated] {
        matches_cpu(|| WideFibonacci { log_rows: 3, columns: 700 }, tier, MODES[0]);
    }
}

/// Values that are all computed for the first constraint and needed again for the others.
struct ManyLive {
    values: u32,
}

impl FrameworkEval for ManyLive {
    /// Rows for more than one block of the interpreter.
    fn log_size(&self) -> u32 {
        8
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        9
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let (a, b) = (eval.next_trace_mask(), eval.next_trace_mask());
        let value = |number| a.clone() * b.clone() + E::F::from(BaseField::from(number));
        let values = (0..self.values).map(value).collect_vec();
        let sum = values.iter().cloned().reduce(|sum, value| sum + value).expect("there are some");
        eval.add_constraint(sum);
        for (value, next) in values.iter().tuple_windows() {
            eval.add_constraint(value.clone() * next.clone());
        }
        eval
    }
}

#[test]
fn constraints_with_more_live_values_than_shared_memory_has_room_for_match_cpu() {
    let properties = Device::emulated(11).unwrap().properties().clone();
    // Of the smallest block of the interpreter, a word for each value and thread.
    let values = properties.shared_memory_per_block / (32 * 4) + 10;
    matches_cpu(|| ManyLive { values }, Tier::Interpreted, MODES[0]);
    matches_cpu(|| ManyLive { values }, Tier::Interpreted, MODES[2]);
}
