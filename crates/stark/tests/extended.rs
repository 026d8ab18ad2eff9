//! `prove_ex`: proofs with their auxiliary data, whole, against stwo's own.

mod support;

use gatework_gpu::Device;
use gatework_stark::{Context, CudaBackend, DeviceChannel, DeviceColumn, Error, Streaming};
use itertools::Itertools as _;
use serde_json::Value;
use stwo::core::air::Component as _;
use stwo::core::channel::MerkleChannel;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::{CommitmentSchemeVerifier, PcsConfig};
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::proof::ExtendedStarkProof;
use stwo::core::vcs::blake2_hash::Blake2sHash;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sM31MerkleChannel, Blake2sMerkleChannel};
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::core::verifier::verify_ex;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::{BackendForChannel, Col, CpuBackend};
use stwo::prover::poly::circle::CircleEvaluation;
use stwo::prover::{CommitmentSchemeProver, ComponentProver};
use stwo_constraint_framework::preprocessed_columns::PreProcessedColumnId;
use stwo_constraint_framework::{EvalAtRow, FrameworkComponent, FrameworkEval, TraceLocationAllocator};

use support::{Random, context, on_device};

/// Products of the row before with a preprocessed column.
#[derive(Clone, Copy)]
struct Products {
    log_rows: u32,
    /// How many preprocessed columns are used, of two.
    used: usize,
    /// The logarithm of the length of the last preprocessed column.
    log_last: u32,
}

impl FrameworkEval for Products {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let (from, to) = (eval.next_trace_mask(), eval.next_trace_mask());
        let names = ["first", "second"].into_iter().take(self.used);
        let factors = names
            .map(|id| eval.get_preprocessed_column(PreProcessedColumnId { id: id.into() }))
            .collect_vec();
        let product = factors.into_iter().fold(from, |product, factor| product + factor);
        eval.add_constraint(to - product.clone() * product);
        eval
    }
}

fn upload(values: Vec<BaseField>) -> DeviceColumn<BaseField> {
    DeviceColumn::upload(&values)
}

impl Products {
    /// Logarithms of the lengths of the preprocessed columns; the first two may be used.
    fn preprocessed_logs(self) -> [u32; 4] {
        [self.log_rows, self.log_rows, self.log_rows - 1, self.log_last]
    }

    fn component(self) -> FrameworkComponent<Self> {
        let ids = ["first", "second", "third", "fourth"].map(|id| PreProcessedColumnId { id: id.into() });
        let mut places = TraceLocationAllocator::new_with_preprocessed_columns(&ids);
        FrameworkComponent::new(&mut places, self, SecureField::default())
    }

    fn prove<B: BackendForChannel<MC>, MC: MerkleChannel, R>(
        self,
        config: PcsConfig,
        seed: u64,
        bring: impl Fn(Vec<BaseField>) -> Col<B, BaseField>,
        prover: impl FnOnce(&FrameworkComponent<Self>, &mut MC::C, CommitmentSchemeProver<'_, B, MC>) -> R,
    ) -> R {
        let mut random = Random::new(seed);
        let preprocessed = self.preprocessed_logs().map(|log_size| random.bases(1 << log_size));
        let from = random.bases(1 << self.log_rows);
        let to = from.iter().enumerate().map(|(row, &from)| {
            let sum = preprocessed.iter().take(self.used).fold(from, |sum, column| sum + column[row]);
            sum * sum
        });
        let to = to.collect_vec();
        let log_longest = self.log_rows.max(self.log_last) + config.fri_config.log_blowup_factor;
        let log_largest = config.lifting_log_size.unwrap_or(0).max(log_longest);
        let twiddles = B::precompute_twiddles(CanonicCoset::new(log_largest).circle_domain().half_coset);
        let channel = &mut MC::C::default();
        let mut scheme = CommitmentSchemeProver::<B, MC>::new(config, &twiddles);
        for columns in [preprocessed.to_vec(), vec![from, to]] {
            let evaluation = |values: Vec<BaseField>| {
                let domain = CanonicCoset::new(values.len().ilog2()).circle_domain();
                CircleEvaluation::new(domain, bring(values))
            };
            let mut tree = scheme.tree_builder();
            tree.extend_evals(columns.into_iter().map(evaluation).collect());
            tree.commit(channel);
        }
        prover(&self.component(), channel, scheme)
    }

    /// stwo's own.
    fn expected<B: BackendForChannel<MC>, MC: MerkleChannel>(
        self,
        config: PcsConfig,
        seed: u64,
        all: bool,
    ) -> ExtendedStarkProof<MC::H>
    where
        FrameworkComponent<Self>: ComponentProver<B>,
    {
        self.prove::<B, MC, _>(
            config,
            seed,
            |values| values.into_iter().collect(),
            |component, channel, scheme| stwo::prover::prove_ex(&[component], channel, scheme, all).unwrap(),
        )
    }

    fn found<MC: DeviceChannel>(
        self,
        config: PcsConfig,
        seed: u64,
        all: bool,
    ) -> Result<ExtendedStarkProof<MC::H>, Error>
    where
        CudaBackend: BackendForChannel<MC>,
        MC::H: MerkleHasherLifted<Hash = Blake2sHash>,
    {
        self.prove::<CudaBackend, MC, _>(config, seed, upload, |component, channel, scheme| {
            gatework_stark::prove_ex(&[component], channel, scheme, all)
        })
    }

    fn is_verified<MC: MerkleChannel>(
        self,
        config: PcsConfig,
        proof: ExtendedStarkProof<MC::H>,
        all: bool,
    ) -> bool {
        let component = self.component();
        let channel = &mut MC::C::default();
        let mut scheme = CommitmentSchemeVerifier::<MC>::new(config);
        scheme.commit(proof.proof.commitments[0], &self.preprocessed_logs(), channel);
        scheme.commit(proof.proof.commitments[1], &component.trace_log_degree_bounds()[1], channel);
        verify_ex(&[&component], channel, &mut scheme, proof.proof, all).is_ok()
    }
}

/// Maps have no order of their own; those of `Value` are sorted.
fn value(proof: &impl serde::Serialize) -> Value {
    serde_json::to_value(proof).unwrap()
}

fn configurations(log_rows: u32) -> [PcsConfig; 5] {
    let with = |fri_config, lifting_log_size| PcsConfig { pow_bits: 2, fri_config, lifting_log_size };
    [
        with(FriConfig::new(0, 1, 3, 1), None),
        with(FriConfig::new(0, 1, 40, 1), None),
        with(FriConfig::new(1, 2, 20, 3), None),
        with(FriConfig::new(2, 1, 9, 2), None),
        with(FriConfig::new(0, 1, 5, 1), Some(log_rows + 3)),
    ]
}

fn same<MC: DeviceChannel>(seed: u64)
where
    CudaBackend: BackendForChannel<MC>,
    SimdBackend: BackendForChannel<MC>,
    MC::H: MerkleHasherLifted<Hash = Blake2sHash> + serde::Serialize,
{
    for (log_rows, used, all) in itertools::iproduct!([5, 6], 0..=2, [false, true]) {
        let products = Products { log_rows, used, log_last: 4 };
        for config in configurations(log_rows) {
            let found = on_device(|| products.found::<MC>(config, seed, all).unwrap());
            let expected = products.expected::<SimdBackend, MC>(config, seed, all);
            assert!(value(&found) == value(&expected), "{used} used, all: {all}, {config:?}");
            let mut other = found.clone();
            assert!(products.is_verified::<MC>(config, found, all), "{used} used, all: {all}, {config:?}");
            // A control: one sample that is another.
            other.proof.0.sampled_values[1][0][0] += SecureField::from_u32_unchecked(1, 0, 0, 0);
            assert!(!products.is_verified::<MC>(config, other, all));
        }
    }
}

#[test]
fn extended_proofs_are_those_of_stwo() {
    same::<Blake2sMerkleChannel>(1);
}

#[test]
fn extended_proofs_of_the_other_channel_are_those_of_stwo() {
    same::<Blake2sM31MerkleChannel>(2);
}

/// `SimdBackend` divides columns shorter than a vector wrongly, and its proofs of them are refused;
/// `CpuBackend` does not.
#[test]
fn columns_shorter_than_a_vector_are_those_of_the_cpu() {
    for (log_rows, log_last) in [(4, 1), (4, 2), (5, 3)] {
        let products = Products { log_rows, used: 1, log_last };
        for config in configurations(log_rows) {
            let found = on_device(|| products.found::<Blake2sMerkleChannel>(config, 6, true).unwrap());
            let expected = products.expected::<CpuBackend, Blake2sMerkleChannel>(config, 6, true);
            assert!(value(&found) == value(&expected), "2^{log_last}, {config:?}");
            assert!(
                products.is_verified::<Blake2sMerkleChannel>(config, found, true),
                "2^{log_last}, {config:?}"
            );
        }
    }
}

/// Also of columns that no component uses, which are dealt out or streamed like others.
#[test]
fn extended_proofs_over_devices_and_streamed_ones_are_those_of_stwo() {
    let products = Products { log_rows: 6, used: 1, log_last: 4 };
    let config = configurations(6)[0];
    let expected = products.expected::<SimdBackend, Blake2sMerkleChannel>(config, 7, true);
    let check = |context: &Context, place: &str| {
        let found = context.scope(|| products.found::<Blake2sMerkleChannel>(config, 7, true));
        assert!(value(&found.flatten().unwrap()) == value(&expected), "{place}");
    };
    for count in [2, 4, 8] {
        let context = Context::over(&Device::emulated_group(5, count).unwrap()).unwrap();
        check(&context, &format!("{count} devices"));
        assert!(context.traffic().total() > 0);
    }
    for streaming in [Streaming::new(0, 4), Streaming::new(1 << 14, 5)] {
        let context = Context::new(&Device::emulated(5).unwrap()).unwrap();
        context.set_streaming(Some(streaming));
        check(&context, &format!("{streaming:?}"));
    }
}

#[test]
fn the_proof_in_an_extended_one_is_the_plain_one() {
    let products = Products { log_rows: 5, used: 1, log_last: 4 };
    let config = configurations(5)[0];
    let plain = on_device(|| {
        products.prove::<CudaBackend, Blake2sMerkleChannel, _>(
            config,
            3,
            upload,
            |component, channel, scheme| gatework_stark::prove(&[component], channel, scheme).unwrap(),
        )
    });
    let extended = on_device(|| products.found::<Blake2sMerkleChannel>(config, 3, false).unwrap());
    assert!(value(&plain) == value(&extended.proof));
    let all = on_device(|| products.found::<Blake2sMerkleChannel>(config, 3, true).unwrap());
    assert!(value(&plain) != value(&all.proof), "unused columns are sampled");
}

/// stwo stops at an assertion without a sentence; the way out is one.
#[test]
fn sampling_columns_that_are_longer_than_the_trace_is_an_error() {
    let products = Products { log_rows: 5, used: 1, log_last: 7 };
    for config in [configurations(5)[0], configurations(5)[2]] {
        let by_stwo = || products.expected::<SimdBackend, Blake2sMerkleChannel>(config, 5, true);
        assert!(std::panic::catch_unwind(by_stwo).is_err());
        let error = on_device(|| products.found::<Blake2sMerkleChannel>(config, 5, true).err()).unwrap();
        let log_needed = 7 + config.fri_config.log_blowup_factor;
        assert!(error.to_string().contains(&format!("lifting_log_size to Some({log_needed})")), "{error}");
        // Used columns alone, or lifted as far.
        let lifted = PcsConfig { lifting_log_size: Some(log_needed), ..config };
        for (config, all) in [(config, false), (lifted, true)] {
            let found = on_device(|| products.found::<Blake2sMerkleChannel>(config, 5, all).unwrap());
            let expected = products.expected::<SimdBackend, Blake2sMerkleChannel>(config, 5, all);
            assert!(value(&found) == value(&expected));
            assert!(products.is_verified::<Blake2sMerkleChannel>(config, found, all));
        }
    }
}

/// Nothing is proved, and the context is used again.
#[test]
fn constraints_that_do_not_hold_are_an_error() {
    let products = Products { log_rows: 4, used: 1, log_last: 2 };
    let config = configurations(4)[0];
    let prove = || {
        products.prove::<CudaBackend, Blake2sMerkleChannel, _>(config, 4, upload, |_, channel, scheme| {
            let wrong = Products { log_rows: 4, used: 2, log_last: 2 }.component();
            gatework_stark::prove_ex(&[&wrong], channel, scheme, true).map(|_| ())
        })
    };
    assert!(matches!(context().scope(prove).unwrap(), Err(Error::ConstraintsNotSatisfied)));
    on_device(|| products.found::<Blake2sMerkleChannel>(config, 4, true).unwrap());
}
