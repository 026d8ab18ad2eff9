//! Memory of two contexts in one operation: refused by every operation that takes more than one piece of it.

mod support;

use std::borrow::Cow;

use gatework_gpu::Device;
use gatework_stark::airs::{self, Air as _, Input, Lookup, WideFibonacci};
use gatework_stark::{
    Context, CudaBackend, DeviceColumn, Error, interaction_trace, interpolate_kept, upload_and_interpolate,
};
use itertools::Itertools as _;
use stwo::core::air::Component as _;
use stwo::core::channel::Blake2sChannel;
use stwo::core::circle::{CirclePoint, Coset};
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::quotients::{ColumnSampleBatch, NumeratorData};
use stwo::core::pcs::{PcsConfig, TreeVec};
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::poly::line::LineDomain;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sMerkleChannel, Blake2sMerkleHasher};
use stwo::prover::backend::Col;
use stwo::prover::fri::FriOps as _;
use stwo::prover::line::LineEvaluation;
use stwo::prover::lookups::gkr_prover::{EqEvals, GkrMultivariatePolyOracle, GkrOps as _, Layer};
use stwo::prover::lookups::mle::Mle;
use stwo::prover::mempool::BaseColumnPool;
use stwo::prover::pcs::quotient_ops::AccumulatedNumerators;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleCoefficients, CircleEvaluation, PolyOps as _, SecureEvaluation};
use stwo::prover::poly::twiddles::TwiddleTree;
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::vcs_lifted::ops::{MerkleOpsLifted, PackLeavesOps as _};
use stwo::prover::{
    AccumulationOps as _, CommitmentSchemeProver, ComponentProver as _, DomainEvaluationAccumulator,
    EvaluationMode, Poly, QuotientOps as _, Trace,
};
use stwo_constraint_framework::{FrameworkComponent, TraceLocationAllocator};

use support::Random;

const LOG_SIZE: u32 = 4;

type Evaluation = CircleEvaluation<CudaBackend, BaseField, BitReversedOrder>;
type Base = Col<CudaBackend, BaseField>;
type Secure = Col<CudaBackend, SecureField>;

/// What one context has of everything, of one size.
struct Things {
    context: Context,
    twiddles: TwiddleTree<CudaBackend>,
}

impl Things {
    fn new(device: &Device) -> Self {
        let context = Context::new(device).unwrap();
        let root = CanonicCoset::new(LOG_SIZE + 2).circle_domain().half_coset;
        let twiddles = context.scope(|| CudaBackend::precompute_twiddles(root)).unwrap();
        Self { context, twiddles }
    }

    fn base(&self) -> Base {
        self.context.scope(|| Random::new(1).bases(1 << LOG_SIZE).into_iter().collect()).unwrap()
    }

    fn secure(&self) -> Secure {
        self.context.scope(|| Random::new(2).secures(1 << LOG_SIZE).into_iter().collect()).unwrap()
    }

    fn evaluation(&self) -> Evaluation {
        CircleEvaluation::new(CanonicCoset::new(LOG_SIZE).circle_domain(), self.base())
    }

    fn polynomial(&self) -> CircleCoefficients<CudaBackend> {
        CircleCoefficients::new(self.base())
    }

    fn by_coordinates(&self) -> SecureColumnByCoords<CudaBackend> {
        SecureColumnByCoords { columns: [(); 4].map(|()| self.base()) }
    }

    fn secure_evaluation(&self) -> SecureEvaluation<CudaBackend, BitReversedOrder> {
        SecureEvaluation::new(CanonicCoset::new(LOG_SIZE).circle_domain(), self.by_coordinates())
    }

    fn numerators(&self) -> AccumulatedNumerators<CudaBackend> {
        AccumulatedNumerators {
            sample_point: CirclePoint::get_point(3),
            partial_numerators_acc: self.by_coordinates(),
            first_linear_term_acc: SecureField::default(),
        }
    }

    /// Runs `operation` here and asserts that it was refused for what it was given.
    fn refuses<R: Send>(&self, name: &str, operation: impl FnOnce() -> R + Send) {
        match self.context.scope(|| drop(operation())) {
            Err(Error::TwoContexts) => (),
            other => panic!("{name}: {other:?}"),
        }
    }
}

fn two() -> [Things; 2] {
    let device = Device::emulated(8).unwrap();
    [(); 2].map(|()| Things::new(&device))
}

#[test]
fn polynomials_are_of_the_context_of_their_twiddles_and_targets() {
    let [ours, theirs] = two();
    let domain = CanonicCoset::new(LOG_SIZE).circle_domain();
    let (foreign, own) = (&theirs.twiddles, &ours.twiddles);
    let point = CirclePoint::get_point(7);
    let (evaluation, other) = (ours.evaluation(), theirs.evaluation());
    let polynomial = ours.polynomial();
    let values = Random::new(1).bases(1 << LOG_SIZE);

    ours.refuses("interpolate", || CudaBackend::interpolate(evaluation.clone(), foreign));
    let columns = vec![evaluation.clone(), other.clone()];
    ours.refuses("interpolate_columns", || CudaBackend::interpolate_columns(columns, own));
    ours.refuses("interpolate_kept", || interpolate_kept(&[&evaluation], foreign));
    ours.refuses("interpolate_kept", || interpolate_kept(&[&evaluation, &other], own));
    ours.refuses("upload_and_interpolate", || upload_and_interpolate(&[&values], foreign));
    ours.refuses("evaluate", || CudaBackend::evaluate(&polynomial, domain, foreign));
    let target = theirs.base();
    ours.refuses("evaluate_into", || CudaBackend::evaluate_into(&polynomial, domain, own, target));
    let polynomials = vec![ours.polynomial(), theirs.polynomial()];
    ours.refuses("evaluate_polynomials", || {
        CudaBackend::evaluate_polynomials(polynomials, 1, own, false, &BaseColumnPool::new())
    });
    ours.refuses("eval_at_point_by_folding", || {
        CudaBackend::eval_at_point_by_folding(&evaluation, point, foreign)
    });
    let weights = theirs.secure();
    ours.refuses("barycentric_eval_at_point", || {
        CudaBackend::barycentric_eval_at_point(&evaluation, &weights)
    });
}

#[test]
fn small_polynomials_too() {
    let [ours, theirs] = two();
    let domain = CanonicCoset::new(2).circle_domain();
    let values = || Random::new(1).bases(4).into_iter().collect::<Base>();
    let values = ours.context.scope(values).unwrap();
    let evaluation = Evaluation::new(domain, values);
    ours.refuses("interpolate", || CudaBackend::interpolate(evaluation, &theirs.twiddles));
}

#[test]
fn folds_are_of_the_context_of_their_twiddles() {
    let [ours, theirs] = two();
    let alpha = SecureField::from_u32_unchecked(1, 2, 3, 4);
    let circle = ours.secure_evaluation();
    let line = LineEvaluation::new(LineDomain::new(Coset::half_odds(LOG_SIZE)), ours.by_coordinates());
    ours.refuses("fold_line", || CudaBackend::fold_line(&line, alpha, &theirs.twiddles, 1));
    ours.refuses("fold_circle", || CudaBackend::fold_circle_into_line(&circle, alpha, &theirs.twiddles));
    let mut mixed = ours.secure_evaluation();
    mixed.values.columns[2] = theirs.base();
    ours.refuses("decompose", || CudaBackend::decompose(&mixed));
}

#[test]
fn sums_are_of_one_context() {
    let [ours, theirs] = two();
    let (mut sum, other) = (ours.by_coordinates(), theirs.by_coordinates());
    ours.refuses("accumulate", || CudaBackend::accumulate(&mut sum, &other));
    ours.refuses("lift_and_accumulate", || CudaBackend::lift_and_accumulate(vec![other, sum]));
}

#[test]
fn quotients_are_of_one_context() {
    let [ours, theirs] = two();
    let sample = |column_index| NumeratorData {
        column_index,
        sample_value: SecureField::default(),
        random_coeff: SecureField::from_u32_unchecked(1, 0, 0, 0),
    };
    let batch = ColumnSampleBatch {
        point: CirclePoint::get_point(3),
        cols_vals_randpows: vec![sample(0), sample(1)],
    };
    let (evaluation, other) = (ours.evaluation(), theirs.evaluation());
    ours.refuses("accumulate_numerators", || {
        CudaBackend::accumulate_numerators(&[&evaluation, &other], &[batch], &mut Vec::new(), 1);
    });
    let combine = |numerators, twiddles| {
        CudaBackend::compute_quotients_and_combine(numerators, LOG_SIZE + 1, 1, twiddles)
    };
    let mixed = vec![ours.numerators(), theirs.numerators()];
    ours.refuses("compute_quotients_and_combine", || combine(mixed, &ours.twiddles));
    let own = vec![ours.numerators()];
    ours.refuses("compute_quotients_and_combine", || combine(own, &theirs.twiddles));
}

#[test]
fn trees_are_of_one_context() {
    let [ours, theirs] = two();
    let (column, other) = (ours.base(), theirs.base());
    for columns in [2, 20] {
        let mixed = (1..columns).map(|_| &column).chain([&other]).collect_vec();
        ours.refuses("build_leaves", || {
            <CudaBackend as MerkleOpsLifted<Blake2sMerkleHasher>>::build_leaves(&mixed, LOG_SIZE)
        });
    }
    ours.refuses("pack_leaves_input", || {
        CudaBackend::pack_leaves_input(&[&column, &column, &column, &other])
    });
}

#[test]
fn lookups_are_of_one_context() {
    let [ours, theirs] = two();
    let mle = |column: Secure| Mle::<CudaBackend, SecureField>::new(column);
    let generic = Layer::LogUpGeneric { numerators: mle(theirs.secure()), denominators: mle(ours.secure()) };
    ours.refuses("next_layer", || CudaBackend::next_layer(&generic));
    let counted =
        Layer::LogUpMultiplicities { numerators: Mle::new(theirs.base()), denominators: mle(ours.secure()) };
    ours.refuses("next_layer", || CudaBackend::next_layer(&counted));
    let y = Random::new(5).secures(LOG_SIZE as usize);
    let eq_evals = theirs.context.scope(|| EqEvals::<CudaBackend>::generate(&y)).unwrap();
    let oracle = GkrMultivariatePolyOracle {
        eq_evals: Cow::Borrowed(&eq_evals),
        input_layer: Layer::GrandProduct(mle(ours.secure())),
        eq_fixed_var_correction: SecureField::default(),
        lambda: SecureField::default(),
    };
    ours.refuses("sum_as_poly_in_first_variable", || {
        CudaBackend::sum_as_poly_in_first_variable(&oracle, SecureField::default())
    });
}

#[test]
fn an_interaction_trace_is_of_one_context() {
    let [ours, theirs] = two();
    let eval = Lookup { log_rows: LOG_SIZE, salt: 1 }.evals(&mut Blake2sChannel::default()).remove(0);
    let (table, trace) = (theirs.evaluation(), [(); 3].map(|()| ours.evaluation()));
    ours.refuses("interaction_trace", || interaction_trace(&eval, &[&table], &trace.each_ref()));
}

fn component(air: WideFibonacci) -> FrameworkComponent<WideFibonacci> {
    FrameworkComponent::new(&mut TraceLocationAllocator::default(), air, SecureField::default())
}

#[test]
fn constraints_are_of_one_context() {
    let [ours, theirs] = two();
    let air = WideFibonacci { log_rows: LOG_SIZE, columns: 4 };
    let domain = CanonicCoset::new(LOG_SIZE + 1).circle_domain();
    let committed = |things: &Things| {
        let polynomial = things.polynomial();
        let values = things.context.scope(|| polynomial.evaluate_with_twiddles(domain, &things.twiddles));
        Poly::new(Some(polynomial), values.unwrap())
    };
    let polynomials = [&ours, &ours, &ours, &theirs].map(committed);
    for mode in [EvaluationMode::SubDomain { log_expansion: 0 }, EvaluationMode::ExtendToEvalDomain] {
        let trace = Trace { polys: TreeVec(vec![vec![], polynomials.iter().collect()]) };
        ours.refuses("evaluate_constraint_quotients_on_domain", || {
            let component = component(air);
            let bound = component.max_constraint_log_degree_bound();
            let alpha = SecureField::from_u32_unchecked(1, 2, 3, 4);
            let mut sums = DomainEvaluationAccumulator::<CudaBackend>::new(
                alpha,
                bound,
                component.n_constraints(),
                mode,
            );
            component.evaluate_constraint_quotients_on_domain(&trace, &mut sums);
        });
    }
}

#[test]
fn a_proof_is_of_one_context() {
    let [ours, theirs] = two();
    let (air, config) = (WideFibonacci { log_rows: LOG_SIZE, columns: 4 }, PcsConfig::default());
    let input = theirs.context.scope(|| Input::<CudaBackend>::new(&air, config)).unwrap();
    ours.refuses("proof of another context's columns", || airs::prove(&air, config, input).map(drop));

    // All is committed to in one context, and proved in another.
    let channel = &mut Blake2sChannel::default();
    let mut scheme =
        CommitmentSchemeProver::<CudaBackend, Blake2sMerkleChannel>::new(config, &theirs.twiddles);
    let columns = air.traces().remove(0);
    let commit = || {
        scheme.tree_builder().commit(channel);
        let domain = CanonicCoset::new(LOG_SIZE).circle_domain();
        let columns = columns.iter().map(|column| Evaluation::new(domain, DeviceColumn::upload(column)));
        let mut tree = scheme.tree_builder();
        tree.extend_evals(columns.collect());
        tree.commit(channel);
    };
    theirs.context.scope(commit).unwrap();
    let proved = ours.context.scope(|| gatework_stark::prove(&[&component(air)], channel, scheme)).unwrap();
    assert!(matches!(proved, Err(Error::TwoContexts)), "{:?}", proved.map(|_| "a proof"));
}
