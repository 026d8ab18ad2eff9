//! GKR and multilinear extensions, operation by operation, against stwo's two backends.

mod support;

use std::borrow::Cow;

use gatework_stark::CudaBackend;
use itertools::Itertools as _;
use num_traits::One as _;
use stwo::core::channel::Blake2sChannel;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::{Column as _, CpuBackend};
use stwo::prover::lookups::gkr_prover::{EqEvals, GkrMultivariatePolyOracle, GkrOps, Layer, prove_batch};
use stwo::prover::lookups::gkr_verifier::{Gate, GkrArtifact, GkrBatchProof, partially_verify_batch};
use stwo::prover::lookups::mle::{Mle, MleOps};

use support::{Random, on_device};

const KINDS: usize = 4;

/// A layer of each kind, by number, from a seed.
fn layer<B: GkrOps>(kind: usize, log_size: u32, seed: u64) -> Layer<B> {
    let mut random = Random::new(1000 * seed + 10 * u64::from(log_size) + kind as u64);
    let len = 1 << log_size;
    let mut mle = || Mle::<B, SecureField>::new(random.secures(len).into_iter().collect());
    match kind {
        0 => Layer::GrandProduct(mle()),
        1 => Layer::LogUpGeneric { numerators: mle(), denominators: mle() },
        2 => {
            let numerators = Random::new(seed).bases(len).into_iter().collect();
            Layer::LogUpMultiplicities { numerators: Mle::new(numerators), denominators: mle() }
        }
        _ => Layer::LogUpSingles { denominators: mle() },
    }
}

/// The kind of a layer and its values.
fn values<B: GkrOps>(layer: &Layer<B>) -> (usize, Vec<SecureField>, Vec<SecureField>) {
    match layer.to_cpu() {
        Layer::GrandProduct(values) => (0, values.to_cpu(), vec![]),
        Layer::LogUpGeneric { numerators, denominators } => (1, numerators.to_cpu(), denominators.to_cpu()),
        Layer::LogUpMultiplicities { numerators, denominators } => {
            (2, numerators.to_cpu().into_iter().map(SecureField::from).collect(), denominators.to_cpu())
        }
        Layer::LogUpSingles { denominators } => (3, vec![], denominators.to_cpu()),
    }
}

#[test]
fn next_layers_of_every_kind_are_the_same() {
    on_device(|| {
        for (kind, log_size, seed) in itertools::iproduct!(0..KINDS, [1, 2, 3, 4, 5, 7, 10], 0..2) {
            let found = CudaBackend::next_layer(&layer(kind, log_size, seed));
            let cpu = CpuBackend::next_layer(&layer(kind, log_size, seed));
            let simd = SimdBackend::next_layer(&layer(kind, log_size, seed));
            assert!(values(&found) == values(&cpu), "kind {kind}, 2^{log_size}");
            assert!(values(&found) == values(&simd), "kind {kind}, 2^{log_size}");
        }
    });
}

/// The sum in the first variable, after `fixed` variables were fixed.
fn sum<B: GkrOps>(kind: usize, log_size: u32, fixed: u32, seed: u64) -> Vec<SecureField> {
    let mut random = Random::new(seed + 77);
    let y = random.secures(log_size as usize - 1);
    let (lambda, claim, correction) = (random.secure(), random.secure(), random.secure());
    let mut oracle = GkrMultivariatePolyOracle {
        eq_evals: Cow::Owned(EqEvals::<B>::generate(&y)),
        input_layer: layer(kind, log_size, seed),
        eq_fixed_var_correction: correction,
        lambda,
    };
    use stwo::prover::lookups::sumcheck::MultivariatePolyOracle as _;
    for _ in 0..fixed {
        oracle = oracle.fix_first_variable(random.secure());
    }
    B::sum_as_poly_in_first_variable(&oracle, claim).to_vec()
}

#[test]
fn sums_in_the_first_variable_of_every_kind_are_the_same() {
    on_device(|| {
        for (kind, log_size, seed) in itertools::iproduct!(0..KINDS, [2, 3, 4, 6, 9, 11], 0..2) {
            for fixed in [0, 1, log_size - 2].into_iter().filter(|&fixed| fixed + 2 <= log_size).unique() {
                let found = sum::<CudaBackend>(kind, log_size, fixed, seed);
                let message = format!("kind {kind}, 2^{log_size}, {fixed} fixed, seed {seed}");
                assert!(found == sum::<CpuBackend>(kind, log_size, fixed, seed), "{message}");
                assert!(found == sum::<SimdBackend>(kind, log_size, fixed, seed), "{message}");
            }
        }
    });
}

#[test]
fn variables_are_fixed_as_by_simd() {
    fn fixed<B: GkrOps>(log_size: u32, seed: u64) -> [Vec<SecureField>; 3] {
        let mut random = Random::new(seed);
        let len = 1 << log_size;
        let (bases, secures, x) = (random.bases(len), random.secures(len), random.secure());
        let base = <B as MleOps<BaseField>>::fix_first_variable(Mle::new(bases.into_iter().collect()), x);
        let secure =
            <B as MleOps<SecureField>>::fix_first_variable(Mle::new(secures.into_iter().collect()), x);
        let eq = B::gen_eq_evals(&random.secures(log_size as usize), x);
        [base, secure, eq].map(|mle| mle.to_cpu())
    }
    on_device(|| {
        for (log_size, seed) in itertools::iproduct!([1, 2, 3, 4, 5, 8, 11], 0..3) {
            let found = fixed::<CudaBackend>(log_size, seed);
            assert!(found == fixed::<CpuBackend>(log_size, seed), "2^{log_size}, seed {seed}");
            assert!(found == fixed::<SimdBackend>(log_size, seed), "2^{log_size}, seed {seed}");
        }
    });
}

/// All of a proof.
fn flat(proof: &GkrBatchProof, artifact: &GkrArtifact) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?}",
        proof.sumcheck_proofs,
        proof.layer_masks_by_instance,
        proof.output_claims_by_instance,
        artifact.ood_point,
        artifact.claims_to_verify_by_instance,
        artifact.n_variables_by_instance
    )
}

/// The value of a multilinear polynomial at a point, one variable after the other.
fn value_at(values: Vec<SecureField>, point: &[SecureField]) -> SecureField {
    let fix = |values: Vec<SecureField>, &x: &SecureField| {
        let (at_0, at_1) = values.split_at(values.len() / 2);
        at_0.iter().zip(at_1).map(|(&at_0, &at_1)| at_0 + x * (at_1 - at_0)).collect()
    };
    point.iter().fold(values, fix)[0]
}

/// Layers with these kinds and sizes through stwo's prover.
fn prove<B: GkrOps>(layers: &[(usize, u32)], seed: u64) -> (GkrBatchProof, GkrArtifact) {
    let layers = layers.iter().map(|&(kind, log_size)| layer::<B>(kind, log_size, seed)).collect_vec();
    prove_batch(&mut Blake2sChannel::default(), layers)
}

#[test]
fn batches_of_every_kind_and_of_mixed_sizes_are_proved_and_verified() {
    // stwo has no masks for multiplicities in one variable.
    let batches: [&[(usize, u32)]; 7] = [
        &[(0, 1)],
        &[(1, 1), (3, 1)],
        &[(2, 2)],
        &[(0, 5), (1, 5), (2, 5), (3, 5)],
        &[(3, 7), (0, 2), (2, 4)],
        &[(1, 3), (1, 6), (0, 6)],
        &[(0, 9), (3, 1), (2, 8), (1, 4)],
    ];
    on_device(|| {
        for (layers, seed) in itertools::iproduct!(batches, 0..2) {
            let (mut proof, artifact) = prove::<CudaBackend>(layers, seed);
            let found = flat(&proof, &artifact);
            let same = |(proof, artifact): (GkrBatchProof, GkrArtifact)| flat(&proof, &artifact) == found;
            assert!(same(prove::<CpuBackend>(layers, seed)), "{layers:?}");
            assert!(same(prove::<SimdBackend>(layers, seed)), "{layers:?}");

            let gate = |&(kind, _): &(usize, u32)| if kind == 0 { Gate::GrandProduct } else { Gate::LogUp };
            let gates = layers.iter().map(gate).collect_vec();
            let verify = |proof: &GkrBatchProof| {
                partially_verify_batch(gates.clone(), proof, &mut Blake2sChannel::default())
            };
            let verified = verify(&proof).unwrap_or_else(|error| panic!("{layers:?}: {error}"));
            assert_eq!(verified.ood_point, artifact.ood_point);
            assert_eq!(verified.claims_to_verify_by_instance, artifact.claims_to_verify_by_instance);
            // The claims are the values of the layers at the point.
            for (place, &(kind, log_size)) in layers.iter().enumerate() {
                let (_, numerators, denominators) = values(&layer::<CpuBackend>(kind, log_size, seed));
                let point = &verified.ood_point[verified.ood_point.len() - log_size as usize..];
                let at_point = |values| value_at(values, point);
                let columns = [numerators, denominators].into_iter().filter(|column| !column.is_empty());
                let mut expected = columns.map(at_point).collect_vec();
                if kind == 3 {
                    expected.insert(0, SecureField::one());
                }
                assert_eq!(verified.claims_to_verify_by_instance[place], expected, "{layers:?}, {place}");
            }
            // A control: another output is refused.
            proof.output_claims_by_instance[0][0] += SecureField::one();
            assert!(verify(&proof).is_err(), "{layers:?}");
        }
    });
}
