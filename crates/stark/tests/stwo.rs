//! stwo's own prover on `CudaBackend`, and what of stwo's tests compares backends.

mod support;

use gatework_stark::airs::{Air as _, Lookup, WideFibonacci};
use gatework_stark::{CudaBackend, DeviceChannel, interaction_trace};
use itertools::Itertools as _;
use stwo::core::channel::{Blake2sChannel, Channel, MerkleChannel};
use stwo::core::circle::CirclePoint;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::{CommitmentSchemeVerifier, PcsConfig, TreeVec};
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::proof::StarkProof;
use stwo::core::vcs::blake2_hash::Blake2sHash;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sM31MerkleChannel, Blake2sMerkleChannel};
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::{BackendForChannel, Column as _, CpuBackend};
use stwo::prover::channel::logging_channel::LoggingMerkleChannel;
use stwo::prover::fri::FriProver;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleCoefficients, CircleEvaluation, SecureEvaluation};
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::{CommitmentSchemeProver, ComponentProver};
use stwo_constraint_framework::{FrameworkComponent, TraceLocationAllocator};

use support::{Random, on_device};

fn configurations() -> [PcsConfig; 2] {
    let with = |pow_bits, fri_config| PcsConfig { pow_bits, fri_config, lifting_log_size: None };
    [with(3, FriConfig::new(0, 1, 10, 1)), with(2, FriConfig::new(2, 2, 5, 2))]
}

/// A proof of wide Fibonacci on any backend and channel, by a prover, as JSON.
fn prove_by<B: BackendForChannel<MC>, MC: MerkleChannel>(
    air: WideFibonacci,
    config: PcsConfig,
    keeps: bool,
    prover: impl FnOnce(
        &FrameworkComponent<WideFibonacci>,
        &mut MC::C,
        CommitmentSchemeProver<'_, B, MC>,
    ) -> StarkProof<MC::H>,
) -> String
where
    MC::H: serde::Serialize,
{
    let log_largest = air.log_rows + 1 + config.fri_config.log_blowup_factor;
    let twiddles = B::precompute_twiddles(CanonicCoset::new(log_largest).circle_domain().half_coset);
    let channel = &mut MC::C::default();
    let mut scheme = CommitmentSchemeProver::<B, MC>::new(config, &twiddles);
    if keeps {
        scheme.set_store_polynomials_coefficients();
    }
    scheme.tree_builder().commit(channel);
    let domain = CanonicCoset::new(air.log_rows).circle_domain();
    let columns = air.traces().remove(0).into_iter();
    let columns = columns.map(|column| CircleEvaluation::new(domain, column.into_iter().collect()));
    let mut tree = scheme.tree_builder();
    tree.extend_evals(columns.collect());
    tree.commit(channel);
    let component =
        FrameworkComponent::new(&mut TraceLocationAllocator::default(), air, SecureField::default());
    serde_json::to_string(&prover(&component, channel, scheme)).unwrap()
}

/// By stwo's own prover.
fn prove<B: BackendForChannel<MC>, MC: MerkleChannel>(
    air: WideFibonacci,
    config: PcsConfig,
    keeps: bool,
) -> String
where
    FrameworkComponent<WideFibonacci>: ComponentProver<B>,
    MC::H: serde::Serialize,
{
    prove_by::<B, MC>(air, config, keeps, |component, channel, scheme| {
        stwo::prover::prove(&[component], channel, scheme).unwrap()
    })
}

#[test]
fn stwos_own_prover_gives_the_same_proof() {
    let air = WideFibonacci { log_rows: 5, columns: 8 };
    for (config, keeps) in configurations().into_iter().cartesian_product([false, true]) {
        let found = on_device(|| prove::<CudaBackend, Blake2sMerkleChannel>(air, config, keeps));
        assert!(found == prove::<SimdBackend, Blake2sMerkleChannel>(air, config, keeps), "{config:?}");
        let found = on_device(|| prove::<CudaBackend, Blake2sM31MerkleChannel>(air, config, keeps));
        assert!(found == prove::<SimdBackend, Blake2sM31MerkleChannel>(air, config, keeps), "{config:?}");
    }
}

#[test]
fn both_channels_give_the_same_proof_with_batched_reads() {
    fn same<MC: DeviceChannel>(air: WideFibonacci, config: PcsConfig)
    where
        CudaBackend: BackendForChannel<MC>,
        SimdBackend: BackendForChannel<MC>,
        MC::H: MerkleHasherLifted<Hash = Blake2sHash> + serde::Serialize,
    {
        let found = on_device(|| {
            prove_by::<CudaBackend, MC>(air, config, false, |component, channel, scheme| {
                gatework_stark::prove(&[component], channel, scheme).unwrap()
            })
        });
        assert!(found == prove::<SimdBackend, MC>(air, config, false), "{config:?}");
    }
    // Large enough for leaves that folds write.
    let large = WideFibonacci { log_rows: 11, columns: 2 };
    same::<Blake2sMerkleChannel>(large, configurations()[0]);
    same::<Blake2sM31MerkleChannel>(large, configurations()[0]);
    let air = WideFibonacci { log_rows: 6, columns: 5 };
    for config in configurations() {
        same::<Blake2sMerkleChannel>(air, config);
        same::<Blake2sM31MerkleChannel>(air, config);
    }
}

/// stwo's channel that writes down what goes in and out is a channel of this backend too.
#[test]
fn logging_channels_give_the_same_proof() {
    type Logging = LoggingMerkleChannel<Blake2sMerkleChannel>;
    let (air, config) = (WideFibonacci { log_rows: 5, columns: 4 }, configurations()[0]);
    let expected = prove::<SimdBackend, Logging>(air, config, false);
    assert!(expected == prove::<SimdBackend, Blake2sMerkleChannel>(air, config, false));
    assert!(on_device(|| prove::<CudaBackend, Logging>(air, config, false)) == expected);
    let found = on_device(|| {
        prove_by::<CudaBackend, Logging>(air, config, false, |component, channel, scheme| {
            gatework_stark::prove(&[component], channel, scheme).unwrap()
        })
    });
    assert!(found == expected);
}

#[test]
fn interaction_traces_are_those_of_stwos_generator() {
    for log_rows in [4, 5, 9, 12] {
        let air = Lookup { log_rows, salt: 3 };
        let (preprocessed, traces) = (air.preprocessed(), air.traces());
        let channel = &mut Blake2sChannel::default();
        channel.mix_u64(log_rows.into());
        let eval = air.evals(channel).remove(0);
        let table = preprocessed.into_iter().map(|(_, column)| column).collect_vec();
        let (expected, expected_sum) = air.simd_interaction(&eval, &table, &traces[0]);
        let (found, sum) = on_device(|| {
            let domain = CanonicCoset::new(log_rows).circle_domain();
            let up = |columns: &[Vec<BaseField>]| {
                let column =
                    |values: &Vec<BaseField>| CircleEvaluation::new(domain, values.iter().copied().collect());
                columns.iter().map(column).collect_vec()
            };
            let (table, trace) = (up(&table), up(&traces[0]));
            let (columns, sum) =
                interaction_trace(&eval, &table.iter().collect_vec(), &trace.iter().collect_vec());
            (columns.iter().map(|column| column.values.to_cpu()).collect_vec(), sum)
        });
        assert_eq!(sum, expected_sum);
        let expected = expected.iter().map(|column| column.values.to_cpu()).collect_vec();
        assert!(found == expected, "2^{log_rows} rows");
    }
}

/// A proof of values of polynomials of mixed sizes at one or two points, which the verifier takes, as JSON.
fn prove_values<B: BackendForChannel<Blake2sMerkleChannel>>(keeps: bool) -> String {
    let config = PcsConfig { pow_bits: 4, ..PcsConfig::default() };
    let log_sizes = [4, 6, 5, 4, 6, 8];
    let twiddles = B::precompute_twiddles(CanonicCoset::new(9).half_coset());
    let mut scheme = CommitmentSchemeProver::<B, Blake2sMerkleChannel>::new(config, &twiddles);
    if keeps {
        scheme.set_store_polynomials_coefficients();
    }
    let polynomials = log_sizes.map(|log_size| {
        CircleCoefficients::<B>::new(Random::new(log_size).bases(1 << log_size).into_iter().collect())
    });
    let channel = &mut Blake2sChannel::default();
    let mut tree = scheme.tree_builder();
    tree.extend_polys(polynomials);
    tree.commit(channel);
    let points = [11, 13].map(CirclePoint::<SecureField>::get_point);
    let points = (0..log_sizes.len()).map(|column| points[..1 + column % 2].to_vec()).collect_vec();
    let proof = scheme.prove_values(TreeVec(vec![points.clone()]), channel).proof;

    let channel = &mut Blake2sChannel::default();
    let mut verifier = CommitmentSchemeVerifier::<Blake2sMerkleChannel>::new(config);
    verifier.commit(proof.commitments[0], &log_sizes.map(|log_size| log_size as u32), channel);
    let json = serde_json::to_string(&proof).unwrap();
    verifier.verify_values(TreeVec(vec![points]), proof, channel).unwrap();
    json
}

#[test]
fn the_commitment_scheme_proves_values_as_on_the_cpu() {
    for keeps in [false, true] {
        let found = on_device(|| prove_values::<CudaBackend>(keeps));
        assert!(found == prove_values::<CpuBackend>(keeps), "coefficients kept: {keeps}");
    }
}

/// A proof of stwo's own FRI prover, as JSON.
fn prove_low_degree<B: BackendForChannel<Blake2sMerkleChannel>>(
    config: FriConfig,
    log_degree: u32,
) -> String {
    let domain = CanonicCoset::new(log_degree + config.log_blowup_factor).circle_domain();
    let twiddles = B::precompute_twiddles(domain.half_coset);
    let column = |seed: u64| {
        let coefficients = Random::new(seed).bases(1 << log_degree).into_iter().collect();
        CircleCoefficients::<B>::new(coefficients).evaluate_with_twiddles(domain, &twiddles).values
    };
    let values = SecureColumnByCoords { columns: [1, 2, 3, 4].map(column) };
    let evaluation = SecureEvaluation::<B, BitReversedOrder>::new(domain, values);
    let channel = &mut Blake2sChannel::default();
    let prover = FriProver::<B, Blake2sMerkleChannel>::commit(channel, config, &evaluation, &twiddles);
    serde_json::to_string(&prover.decommit(channel).fri_proof.proof).unwrap()
}

#[test]
fn fri_with_jumps_and_packed_leaves_is_as_on_the_cpu() {
    for (config, log_degree) in [
        (FriConfig::new(0, 1, 3, 1), 5),
        (FriConfig::new(2, 2, 5, 2), 6),
        (FriConfig::new(1, 1, 4, 3), 7),
        (FriConfig::new(0, 3, 2, 4), 5),
    ] {
        let found = on_device(|| prove_low_degree::<CudaBackend>(config, log_degree));
        assert!(found == prove_low_degree::<CpuBackend>(config, log_degree), "{config:?}, 2^{log_degree}");
    }
}
