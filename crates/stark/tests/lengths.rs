//! Lengths and domains that a caller chooses and that do not fit: refused with a sentence before anything is
//! launched.

mod support;

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gatework_stark::airs::{Air as _, Lookup, WideFibonacci};
use gatework_stark::{CudaBackend, Error, interaction_trace, upload, upload_and_interpolate};
use itertools::Itertools as _;
use stwo::core::air::Component as _;
use stwo::core::channel::Blake2sChannel;
use stwo::core::circle::{CirclePoint, CirclePointIndex, Coset};
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::TreeVec;
use stwo::core::pcs::quotients::{ColumnSampleBatch, NumeratorData};
use stwo::core::poly::circle::{CanonicCoset, CircleDomain};
use stwo::core::poly::line::LineDomain;
use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleHasher;
use stwo::prover::backend::{Col, Column as _};
use stwo::prover::fri::FriOps as _;
use stwo::prover::line::LineEvaluation;
use stwo::prover::lookups::gkr_prover::{EqEvals, GkrMultivariatePolyOracle, GkrOps as _, Layer};
use stwo::prover::lookups::mle::{Mle, MleOps as _};
use stwo::prover::pcs::quotient_ops::AccumulatedNumerators;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleCoefficients, CircleEvaluation, PolyOps as _, SecureEvaluation};
use stwo::prover::poly::twiddles::{TwiddleBuffer as _, TwiddleTree};
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::vcs_lifted::ops::{MerkleOpsLifted, PackLeavesOps as _};
use stwo::prover::{
    AccumulationOps as _, ComponentProver as _, DomainEvaluationAccumulator, EvaluationMode, Poly,
    QuotientOps as _, Trace,
};
use stwo_constraint_framework::{FrameworkComponent, TraceLocationAllocator};

use support::{Random, context};

type Base = Col<CudaBackend, BaseField>;
type Evaluation = CircleEvaluation<CudaBackend, BaseField, BitReversedOrder>;

/// Runs `operation` on the device; it must panic with a sentence that has `part` in it.
fn refused<R>(part: &str, operation: impl FnOnce() -> R + Send) {
    let ended = catch_unwind(AssertUnwindSafe(|| context().scope(|| drop(operation()))));
    let panic = ended.expect_err(part);
    let sentence = panic.downcast_ref::<String>().map(String::as_str);
    let sentence = sentence.or(panic.downcast_ref::<&str>().copied()).expect("a panic has a message");
    assert!(sentence.contains(part), "{sentence:?} is not about {part:?}");
}

fn base(len: usize) -> Base {
    Random::new(1).bases(len).into_iter().collect()
}

fn secure(lens: [usize; 4]) -> SecureColumnByCoords<CudaBackend> {
    SecureColumnByCoords { columns: lens.map(base) }
}

fn mle(len: usize) -> Mle<CudaBackend, SecureField> {
    Mle::new(Random::new(2).secures(len).into_iter().collect())
}

fn evaluation(log_size: u32) -> Evaluation {
    CircleEvaluation::new(canonic(log_size), base(1 << log_size))
}

fn canonic(log_size: u32) -> CircleDomain {
    CanonicCoset::new(log_size).circle_domain()
}

fn twiddles(log_size: u32) -> TwiddleTree<CudaBackend> {
    CudaBackend::precompute_twiddles(canonic(log_size).half_coset)
}

/// A domain of 2^5 points that is in no tower of canonic ones.
fn shifted() -> CircleDomain {
    CircleDomain::new(Coset::new(CirclePointIndex::generator() * 12_345, 4))
}

#[test]
fn transforms_are_of_columns_as_long_as_their_domain() {
    let polynomial = |len| CircleCoefficients::<CudaBackend>::new(base(len));
    refused("a column of 16 values stands for one of 32", || {
        CudaBackend::evaluate_into(&polynomial(8), canonic(5), &twiddles(6), base(16))
    });
    refused("64 values are not transformed to 32", || {
        CudaBackend::evaluate(&polynomial(64), canonic(5), &twiddles(6))
    });
    refused("a column of 8 values stands for one of 32", || {
        let mut evaluation = evaluation(5);
        evaluation.values = base(8);
        CudaBackend::interpolate(evaluation, &twiddles(6))
    });
}

#[test]
fn transforms_are_on_domains_of_their_twiddles() {
    refused("are not in the table", || CudaBackend::interpolate(evaluation(6), &twiddles(5)));
    refused("those of another domain", || {
        CudaBackend::interpolate(CircleEvaluation::new(shifted(), base(32)), &twiddles(6))
    });
    refused("those of another domain", || {
        CudaBackend::evaluate(&CircleCoefficients::new(base(8)), shifted(), &twiddles(6))
    });
    // A subdomain's twiddles are not its tower's.
    refused("those of another domain", || {
        let itwiddles = twiddles(6).itwiddles.extract_subdomain_twiddles(6, 5);
        let whole = canonic(5);
        let tree = TwiddleTree { root_coset: whole.half_coset, twiddles: itwiddles.clone(), itwiddles };
        CudaBackend::interpolate(evaluation(5), &tree)
    });
    refused("there are none", || {
        let empty = gatework_stark::DeviceTwiddles::empty;
        let tree = TwiddleTree { root_coset: canonic(5).half_coset, twiddles: empty(), itwiddles: empty() };
        CudaBackend::interpolate(evaluation(5), &tree)
    });
}

#[test]
fn points_are_evaluated_with_as_many_weights_as_values() {
    refused("every value has a weight", || {
        let weights = CudaBackend::barycentric_weights(CanonicCoset::new(4), CirclePoint::get_point(3));
        CudaBackend::barycentric_eval_at_point(&evaluation(5), &weights)
    });
    refused("32 weights are not those of 8 values", || {
        let mut evaluation = evaluation(5);
        evaluation.values = base(8);
        CudaBackend::eval_at_point_by_folding(&evaluation, CirclePoint::get_point(3), &twiddles(6))
    });
}

#[test]
fn folds_are_on_domains_of_their_twiddles() {
    let alpha = SecureField::from_u32_unchecked(1, 2, 3, 4);
    let circle = |domain: CircleDomain| SecureEvaluation::new(domain, secure([domain.size(); 4]));
    let line = |log_size| {
        LineEvaluation::new(LineDomain::new(Coset::half_odds(log_size)), secure([1 << log_size; 4]))
    };
    refused("those of another domain", || {
        CudaBackend::fold_circle_into_line(&circle(canonic(6)), alpha, &twiddles(5))
    });
    refused("those of another domain", || {
        CudaBackend::fold_circle_into_line(&circle(shifted()), alpha, &twiddles(6))
    });
    refused("those of another domain", || CudaBackend::fold_line(&line(5), alpha, &twiddles(5), 1));
    refused("a column on a line has as many values", || {
        let mut line = line(4);
        line.values = secure([8; 4]);
        CudaBackend::fold_line(&line, alpha, &twiddles(6), 1)
    });
    refused("a column on a domain has as many values", || {
        let mut circle = circle(canonic(5));
        circle.values = secure([8; 4]);
        CudaBackend::fold_circle_into_line(&circle, alpha, &twiddles(6))
    });
    refused("are of no column", || {
        let mut circle = circle(canonic(5));
        circle.values = secure([32, 32, 8, 32]);
        CudaBackend::fold_circle_into_line(&circle, alpha, &twiddles(6))
    });
}

#[test]
fn sums_are_of_columns_that_fit() {
    refused("one length", || CudaBackend::accumulate(&mut secure([16; 4]), &secure([8; 4])));
    refused("are of no column", || CudaBackend::accumulate(&mut secure([16; 4]), &secure([16, 16, 16, 8])));
    refused("a column of 16 rows is not lifted to 8", || {
        CudaBackend::lift_and_accumulate(vec![secure([16; 4]), secure([8; 4])])
    });
}

#[test]
fn quotients_are_of_columns_that_fit() {
    refused("one length", || {
        let sample = |column_index| NumeratorData {
            column_index,
            sample_value: SecureField::default(),
            random_coeff: SecureField::from_u32_unchecked(1, 0, 0, 0),
        };
        let point = CirclePoint::get_point(3);
        let batch = ColumnSampleBatch { point, cols_vals_randpows: vec![sample(0), sample(1)] };
        let (long, short) = (evaluation(5), evaluation(3));
        CudaBackend::accumulate_numerators(&[&long, &short], &[batch], &mut Vec::new(), 1);
    });
    let combine = |rows, log_twiddles| {
        let numerators = AccumulatedNumerators {
            sample_point: CirclePoint::get_point(3),
            partial_numerators_acc: secure([rows; 4]),
            first_linear_term_acc: SecureField::default(),
        };
        CudaBackend::compute_quotients_and_combine(vec![numerators], 5, 1, &twiddles(log_twiddles))
    };
    refused("32 numerators are not lifted to 16", || combine(32, 6));
    refused("are not in the table", || combine(16, 4));
}

#[test]
fn trees_are_of_columns_that_fit() {
    type Hasher = Blake2sMerkleHasher;
    let leaves = |lens: &[usize], log_leaves| {
        let columns = lens.iter().map(|&len| base(len)).collect_vec();
        <CudaBackend as MerkleOpsLifted<Hasher>>::build_leaves(&columns.iter().collect_vec(), log_leaves)
    };
    refused("a column of 32 values is not lifted to 2^4", || leaves(&[8, 32], 4));
    refused("in ascending order", || leaves(&[32, 8], 5));
    refused("powers of two", || leaves(&[8, 12], 5));
    refused("1 nodes have no layer above", || {
        let root = leaves(&[], 0);
        <CudaBackend as MerkleOpsLifted<Hasher>>::build_next_layer(&root)
    });
    refused("coordinates have one length", || {
        let columns = [16, 16, 8, 16].map(base);
        CudaBackend::pack_leaves_input(&columns.each_ref())
    });
}

#[test]
fn lookups_are_of_columns_that_fit() {
    let layer = || Layer::LogUpGeneric { numerators: mle(8), denominators: mle(16) };
    refused("8 numerators have 16 denominators", || CudaBackend::next_layer(&layer()));
    let counted = || Layer::LogUpMultiplicities { numerators: Mle::new(base(8)), denominators: mle(16) };
    refused("8 numerators have 16 denominators", || CudaBackend::next_layer(&counted()));
    refused("a constant has no variable", || CudaBackend::next_layer(&Layer::GrandProduct(mle(1))));
    let x = SecureField::from_u32_unchecked(1, 2, 3, 4);
    refused("a constant has no variable", || CudaBackend::fix_first_variable(mle(1), x));
    refused("a constant has no variable", || {
        CudaBackend::fix_first_variable(Mle::<CudaBackend, BaseField>::new(base(1)), x)
    });
    let sum = |input_layer, variables| {
        let oracle = GkrMultivariatePolyOracle {
            eq_evals: Cow::Owned(EqEvals::<CudaBackend>::generate(&Random::new(5).secures(variables))),
            input_layer,
            eq_fixed_var_correction: SecureField::default(),
            lambda: SecureField::default(),
        };
        CudaBackend::sum_as_poly_in_first_variable(&oracle, SecureField::default())
    };
    refused("4 terms have 2 values of eq", || sum(Layer::GrandProduct(mle(16)), 2));
    refused("8 numerators have 16 denominators", || sum(layer(), 4));
    refused("a layer of one value", || sum(Layer::GrandProduct(mle(1)), 2));
}

#[test]
fn an_interaction_trace_is_of_the_columns_that_fractions_ask_for() {
    let trace = |log_table, log_trace, count| {
        let eval = Lookup { log_rows: 5, salt: 1 }.evals(&mut Blake2sChannel::default()).remove(0);
        let table = evaluation(log_table);
        let columns = (0..count).map(|_| evaluation(log_trace)).collect_vec();
        interaction_trace(&eval, &[&table], &columns.iter().collect_vec())
    };
    refused("column 2 of tree 1 is asked for, of 2", || trace(5, 5, 2));
    refused("no column of 8 values", || trace(5, 3, 3));
    refused("no column of 8 values", || trace(3, 5, 3));
}

#[test]
fn constraints_are_on_columns_of_the_length_of_their_component() {
    refused("a component on 2^5 rows has no column of 8 values", || {
        let air = WideFibonacci { log_rows: 4, columns: 4 };
        let component =
            FrameworkComponent::new(&mut TraceLocationAllocator::default(), air, SecureField::default());
        let polynomials = [5, 5, 3, 5].map(|log_size| Poly::new(None, evaluation(log_size)));
        let trace = Trace { polys: TreeVec(vec![vec![], polynomials.iter().collect()]) };
        let mode = EvaluationMode::SubDomain { log_expansion: 0 };
        let alpha = SecureField::from_u32_unchecked(1, 2, 3, 4);
        let bound = component.max_constraint_log_degree_bound();
        let mut sums =
            DomainEvaluationAccumulator::<CudaBackend>::new(alpha, bound, component.n_constraints(), mode);
        component.evaluate_constraint_quotients_on_domain(&trace, &mut sums);
    });
}

#[test]
fn elements_past_the_end_are_refused() {
    for len in [0, 1, 8] {
        let sentence = format!("element {len} of a column of {len}");
        refused(&sentence, || base(len).at(len));
        refused(&sentence, || base(len).set(len, BaseField::from(1)));
        // The half of a column does not go on into the other.
        refused(&sentence, || base(2 * len).split_at_mid().0.at(len));
    }
}

/// Half cosets of 2^30 and 2^31 points are of no domain.
#[test]
fn twiddles_of_domains_that_are_too_large_are_an_error() {
    for log_size in [30, 31] {
        let coset = Coset::new(CirclePointIndex::generator(), log_size);
        let error = context().scope(|| CudaBackend::precompute_twiddles(coset).root_coset).unwrap_err();
        assert!(
            matches!(&error, Error::Unsupported { what } if what.contains("2^30 is the largest")),
            "{error}"
        );
    }
}

#[test]
fn columns_that_are_on_no_domain_are_not_interpolated() {
    for len in [0, 1, 3] {
        let values = Random::new(1).bases(8);
        let interpolate = || upload_and_interpolate(&[&values, &values[..len]], &twiddles(6)).len();
        let error = context().scope(interpolate).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(&format!("a column of {len} values")), "{error}");
    }
}

#[test]
fn empty_columns_are_columns() {
    context()
        .scope(|| {
            let empty: Vec<BaseField> = Vec::new();
            assert!(upload(&[]).is_empty());
            assert_eq!(
                upload(&[&empty, &empty]).iter().map(|column| column.to_cpu().len()).sum::<usize>(),
                0
            );
            let values = Random::new(1).bases(5);
            let columns = upload(&[&empty, &values, &empty]);
            assert_eq!(columns.iter().map(|column| column.to_cpu()).collect_vec(), [vec![], values, vec![]]);
            let zeros = Base::zeros(0);
            assert_eq!([zeros.clone(), zeros].map(|column| column.to_cpu()), [vec![], vec![]]);
        })
        .unwrap();
}
