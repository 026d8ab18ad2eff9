//! Poseidon252: trees, nonces and proofs against `CpuBackend` and `SimdBackend`.

mod support;

use gatework_gpu::{Device, Target};
use gatework_stark::airs::{self, Air, Input, Lookup, StateMachine, VerifyError, WideFibonacci};
use gatework_stark::{Context, CudaBackend, DeviceColumn, Element as _, Error, Felt252, Prover};
use itertools::Itertools as _;
use stwo::core::channel::{Channel as _, Poseidon252Channel};
use stwo::core::fields::m31::BaseField;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::proof_of_work::GrindOps as _;
use stwo::core::vcs_lifted::poseidon252_merkle::{Poseidon252MerkleChannel, Poseidon252MerkleHasher};
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::{BackendForChannel, Column as _, CpuBackend};
use stwo::prover::poly::circle::CircleEvaluation;
use stwo::prover::vcs_lifted::ops::MerkleOpsLifted;
use stwo::prover::vcs_lifted::prover::MerkleProverLifted;
use stwo::prover::{CommitmentSchemeProver, ComponentProver};
use stwo_constraint_framework::{FrameworkComponent, TraceLocationAllocator};

use support::{Random, on_device};

type Hasher = Poseidon252MerkleHasher;
type Tree<B> = MerkleProverLifted<B, Hasher>;

fn columns(log_sizes: &[u32], seed: u64) -> Vec<Vec<BaseField>> {
    let column = |(at, log_size): (usize, &u32)| Random::new(seed + at as u64).bases(1 << log_size);
    log_sizes.iter().enumerate().map(column).collect()
}

fn up(columns: &[Vec<BaseField>]) -> Vec<DeviceColumn<BaseField>> {
    columns.iter().map(|values| DeviceColumn::upload(values)).collect()
}

/// All layers are those of `CpuBackend`.
fn tree_matches(log_sizes: &[u32], log_leaves: u32, seed: u64) {
    let columns = columns(log_sizes, seed);
    let device = up(&columns);
    let found = Tree::<CudaBackend>::commit(device.iter().collect(), log_leaves, 0);
    let expected = Tree::<CpuBackend>::commit(columns.iter().collect(), log_leaves, 0);
    assert_eq!(found.layers.len(), expected.layers.len());
    for (found, expected) in found.layers.iter().zip(&expected.layers) {
        assert!(found.to_cpu() == *expected, "{log_sizes:?} lifted to 2^{log_leaves}, seed {seed}");
    }
}

#[test]
fn leaves_of_any_number_of_columns_match_cpu() {
    on_device(|| {
        for count in (1..=18).chain([23, 24, 25, 31, 32, 33, 40, 48]) {
            tree_matches(&vec![1; count], 1, count as u64);
        }
    });
}

#[test]
fn trees_of_mixed_and_lifted_columns_match_cpu() {
    on_device(|| {
        let many = (0..40).map(|column| 1 + column / 7).collect_vec();
        let two_runs = [vec![2; 16], vec![4; 5]].concat();
        let cases: [(&[u32], u32); 10] = [
            (&[3], 3),
            (&[3], 5),
            (&[1, 2, 5], 5),
            (&[2, 3, 3, 4], 6),
            (&two_runs, 4),
            (&two_runs, 6),
            (&many, 6),
            (&many, 7),
            (&[4; 16], 5),
            (&[2; 33], 2),
        ];
        for (log_sizes, log_leaves) in cases {
            tree_matches(log_sizes, log_leaves, 7);
        }
        // More than a block.
        tree_matches(&[8], 8, 3);
    });
}

/// There `CpuBackend` takes the hash of nothing, and `SimdBackend`, whose proofs are ours, zero.
#[test]
fn a_tree_without_columns_matches_simd() {
    let expected = Tree::<SimdBackend>::commit(vec![], 0, 0).root();
    assert_eq!(on_device(|| Tree::<CudaBackend>::commit(vec![], 0, 0).root()), expected);
}

#[test]
fn a_layer_that_was_changed_is_hashed_anew() {
    on_device(|| {
        let values = up(&columns(&[3], 3));
        let mut leaves = <CudaBackend as MerkleOpsLifted<Hasher>>::build_leaves(&[&values[0]], 3);
        assert_eq!(leaves.at(5), leaves.to_cpu()[5]);
        let other = leaves.at(5);
        leaves.set(0, other);
        let found = <CudaBackend as MerkleOpsLifted<Hasher>>::build_next_layer(&leaves).to_cpu();
        let expected = <CpuBackend as MerkleOpsLifted<Hasher>>::build_next_layer(&leaves.to_cpu());
        assert_eq!(found, expected);
    });
}

#[test]
fn felts_keep_their_words() {
    for felt in [Felt252::ZERO, Felt252::ONE, Felt252::MAX, Felt252::from(u128::MAX)] {
        let mut words = Vec::new();
        felt.write(&mut words);
        assert_eq!((words.len(), Felt252::read(&words)), (Felt252::WORDS, felt));
    }
}

#[test]
fn columns_of_two_contexts_are_refused() {
    let device = Device::emulated(8).unwrap();
    let [ours, theirs] = [(); 2].map(|()| Context::new(&device).unwrap());
    let values = columns(&[3, 3], 1);
    let foreign = theirs.scope(|| DeviceColumn::upload(&values[1])).unwrap();
    let refused = ours.scope(|| {
        let own = DeviceColumn::upload(&values[0]);
        drop(<CudaBackend as MerkleOpsLifted<Hasher>>::build_leaves(&[&own, &foreign], 3));
    });
    assert!(matches!(refused, Err(Error::TwoContexts)), "{refused:?}");
}

#[test]
fn nonces_are_those_of_simd() {
    on_device(|| {
        let mut channel = Poseidon252Channel::default();
        for (turn, bits) in [0, 1, 3, 6, 7].into_iter().enumerate() {
            channel.mix_u64(turn as u64);
            let nonce = CudaBackend::grind(&channel, bits);
            assert_eq!(nonce, SimdBackend::grind(&channel, bits));
            assert!(channel.verify_pow_nonce(bits, nonce));
        }
    });
    let refused = support::context().scope(|| CudaBackend::grind(&Poseidon252Channel::default(), 33));
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
}

fn config(pow_bits: u32, fri_config: FriConfig) -> PcsConfig {
    PcsConfig { pow_bits, fri_config, lifting_log_size: None }
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap()
}

/// By our prover and by `SimdBackend` the same bytes, which stwo's verifier takes; changed ones it does not.
fn matches_simd<A: Air>(air: &A, config: PcsConfig)
where
    FrameworkComponent<A::Eval>: ComponentProver<SimdBackend> + ComponentProver<CudaBackend>,
{
    type Channel = Poseidon252MerkleChannel;
    let simd = Input::<SimdBackend>::new(air, config);
    let simd = airs::prove_with::<Channel, _, _>(air, config, simd).unwrap();
    let ours = on_device(|| {
        airs::prove_with::<Channel, _, _>(air, config, Input::<CudaBackend>::new(air, config)).unwrap()
    });
    assert!(json(&ours) == json(&simd), "{config:?}");
    let mut changed = ours.clone();
    changed.proof.0.commitments.0[1] += Felt252::ONE;
    airs::verify_with::<Channel, _>(air, config, ours).unwrap();
    let refused = airs::verify_with::<Channel, _>(air, config, changed);
    assert!(
        matches!(refused, Err(VerifyError::Refused(_) | VerifyError::Stopped | VerifyError::Sums)),
        "{refused:?}"
    );
}

#[test]
fn proofs_match_simd() {
    matches_simd(&WideFibonacci { log_rows: 5, columns: 17 }, config(3, FriConfig::new(0, 1, 5, 1)));
    matches_simd(&WideFibonacci { log_rows: 5, columns: 8 }, config(2, FriConfig::new(1, 2, 3, 2)));
    matches_simd(&Lookup { log_rows: 4, salt: 3 }, config(0, FriConfig::new(0, 1, 3, 1)));
    matches_simd(&StateMachine { log_rows: 5 }, config(1, FriConfig::new(0, 1, 3, 1)));
}

/// stwo's own prover on either backend, as JSON.
fn prove_by_stwo<B: BackendForChannel<Poseidon252MerkleChannel>>(
    air: WideFibonacci,
    config: PcsConfig,
) -> String
where
    FrameworkComponent<WideFibonacci>: ComponentProver<B>,
{
    let log_largest = air.log_rows + 1 + config.fri_config.log_blowup_factor;
    let twiddles = B::precompute_twiddles(CanonicCoset::new(log_largest).circle_domain().half_coset);
    let channel = &mut Poseidon252Channel::default();
    let mut scheme = CommitmentSchemeProver::<B, Poseidon252MerkleChannel>::new(config, &twiddles);
    scheme.tree_builder().commit(channel);
    let domain = CanonicCoset::new(air.log_rows).circle_domain();
    let columns = air.traces().remove(0).into_iter();
    let columns = columns.map(|column| CircleEvaluation::new(domain, column.into_iter().collect()));
    let mut tree = scheme.tree_builder();
    tree.extend_evals(columns.collect());
    tree.commit(channel);
    let component = FrameworkComponent::new(&mut TraceLocationAllocator::default(), air, Default::default());
    json(&stwo::prover::prove(&[&component], channel, scheme).unwrap())
}

#[test]
fn stwos_own_prover_gives_the_same_proof() {
    let air = WideFibonacci { log_rows: 4, columns: 5 };
    for config in [config(2, FriConfig::new(0, 1, 3, 1)), config(1, FriConfig::new(0, 2, 2, 2))] {
        let found = on_device(|| prove_by_stwo::<CudaBackend>(air, config));
        assert!(found == prove_by_stwo::<SimdBackend>(air, config), "{config:?}");
    }
}

#[test]
fn every_target_proves_with_every_channel() {
    let (air, config) = (WideFibonacci { log_rows: 4, columns: 4 }, config(1, FriConfig::new(0, 1, 3, 1)));
    let prove = |target: Target| {
        let prover = Prover::builder().build(&target).unwrap();
        json(&prover.prove_with::<Poseidon252MerkleChannel, _>(&air, config).unwrap())
    };
    assert!(prove(Device::emulated(3).unwrap().into()) == prove(Target::Cpu));
}
