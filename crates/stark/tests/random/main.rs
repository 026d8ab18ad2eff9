//! AIRs and configurations from seeds, on both backends, byte for byte. A seed that fails is all that a
//! report needs.

mod air;
mod draw;
#[path = "../support/mod.rs"]
mod support;

use gatework_gpu::Device;
use gatework_stark::{
    Context, CudaBackend, DeviceChannel, DeviceColumn, Digest, Error, Streaming, Tier, ToDevice as _,
    interaction_trace,
};
use itertools::Itertools as _;
use stwo::core::air::Component as _;
use stwo::core::channel::{Channel as _, MerkleChannel};
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::{CommitmentSchemeVerifier, PcsConfig};
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::proof::StarkProof;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sM31MerkleChannel, Blake2sMerkleChannel};
use stwo::core::vcs_lifted::poseidon252_merkle::Poseidon252MerkleChannel;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::{BackendForChannel, ColumnOps};
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::CircleEvaluation;
use stwo::prover::{CommitmentSchemeProver, ComponentProver};
use stwo_constraint_framework::preprocessed_columns::PreProcessedColumnId;
use stwo_constraint_framework::{FrameworkComponent, TraceLocationAllocator};

use air::{Entries, RandomAir, RandomEval};
use draw::Draw;

type Evaluation<B> = CircleEvaluation<B, BaseField, BitReversedOrder>;
type Simd = Evaluation<SimdBackend>;

/// The channel of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Blake2s,
    Blake2sM31,
    Poseidon252,
}

/// Who proves on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// `gatework_stark::prove`.
    Batches,
    /// `stwo::prover::prove`.
    Stwo,
}

/// Where interaction traces are made for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interactions {
    OnDevice,
    /// By `LogupTraceGenerator`, and then moved.
    OnHost,
}

/// What a seed stands for. Each field is a choice of its own.
#[derive(Debug)]
struct Configuration {
    air: RandomAir,
    pcs: PcsConfig,
    hash: Hash,
    tier: Tier,
    by: By,
    interactions: Interactions,
    keeps_coefficients: bool,
    /// How columns are streamed from the host's memory, where they are.
    streaming: Option<Streaming>,
    /// The place of the context in [`contexts`].
    context: usize,
}

impl Configuration {
    fn of(seed: u64) -> Self {
        let air = RandomAir::draw(seed);
        Self {
            pcs: Self::pcs(seed, &air),
            air,
            // A permutation of Poseidon252 takes the emulated device as long as a hundred compressions.
            hash: match Draw::new(seed, "channel").number(0..=9) {
                0 => Hash::Poseidon252,
                1..=4 => Hash::Blake2sM31,
                _ => Hash::Blake2s,
            },
            // Kernels of an AIR's own are compiled, which takes longer than all else.
            tier: match Draw::new(seed, "tier").number(0..=19) {
                0 => Tier::Generated,
                1 => Tier::Adaptive,
                _ => Tier::Interpreted,
            },
            by: if Draw::new(seed, "prover").one_in(4) { By::Stwo } else { By::Batches },
            interactions: Draw::new(seed, "interactions")
                .one_of(&[Interactions::OnDevice, Interactions::OnHost]),
            keeps_coefficients: Draw::new(seed, "coefficients").one_in(4),
            streaming: Self::streaming(seed),
            context: Self::context(seed),
        }
    }

    /// Columns that are streamed are on one device alone.
    fn context(seed: u64) -> usize {
        let drawn = Draw::new(seed, "devices").number(0..=DEVICES.len() as u32 - 1);
        if Self::streaming(seed).is_some() { 0 } else { drawn as usize }
    }

    /// In windows from none, which holds one column or sixteen at a time, to one that holds all; in pages
    /// shorter than columns, and as long.
    fn streaming(seed: u64) -> Option<Streaming> {
        let draw = &mut Draw::new(seed, "streaming");
        let streams = draw.one_in(3);
        let (window, log_page) = (draw.one_of(&[0, 1 << 12, 1 << 14, 1 << 20]), draw.number(4..=7));
        streams.then(|| Streaming::new(window, log_page))
    }

    fn pcs(seed: u64, air: &RandomAir) -> PcsConfig {
        let draw = &mut Draw::new(seed, "pcs");
        let (fold_step, log_blowup) = (draw.number(1..=3), draw.number(1..=2));
        let log_last_degree = draw.number(0..=2.min(4 - fold_step));
        let queries = draw.number(1..=12) as usize;
        // Of lifted proofs stwo verifies those that have preprocessed columns.
        let may_lift = !air.preprocessed.is_empty();
        let log_longest = log_longest(air) + log_blowup;
        PcsConfig {
            pow_bits: draw.number(0..=4),
            fri_config: FriConfig::new(log_last_degree, log_blowup, queries, fold_step),
            lifting_log_size: (may_lift && draw.one_in(3)).then(|| log_longest + draw.number(0..=1)),
        }
    }
}

fn log_longest(air: &RandomAir) -> u32 {
    let traces = air.parts.iter().map(|part| part.log_rows);
    traces.chain(air.preprocessed.iter().copied()).max().unwrap_or(1)
}

/// What the backends differ in.
trait Side<MC: MerkleChannel>: BackendForChannel<MC> {
    fn moved(columns: Vec<Simd>) -> Vec<Evaluation<Self>>;

    /// The interaction trace of a component from its columns, which were moved; none where the host makes it.
    fn interaction(
        configuration: &Configuration,
        eval: &RandomEval,
        preprocessed: &[&Simd],
        trace: &[Simd],
    ) -> Option<(Vec<Evaluation<Self>>, SecureField)>;

    fn prove(
        by: By,
        components: &[&dyn ComponentProver<Self>],
        channel: &mut MC::C,
        scheme: CommitmentSchemeProver<'_, Self, MC>,
    ) -> Result<StarkProof<MC::H>, Error>;
}

impl<MC: MerkleChannel> Side<MC> for SimdBackend
where
    SimdBackend: BackendForChannel<MC>,
{
    fn moved(columns: Vec<Simd>) -> Vec<Simd> {
        columns
    }

    fn interaction(
        _: &Configuration,
        _: &RandomEval,
        _: &[&Simd],
        _: &[Simd],
    ) -> Option<(Vec<Simd>, SecureField)> {
        None
    }

    fn prove(
        _: By,
        components: &[&dyn ComponentProver<Self>],
        channel: &mut MC::C,
        scheme: CommitmentSchemeProver<'_, Self, MC>,
    ) -> Result<StarkProof<MC::H>, Error> {
        Ok(stwo::prover::prove(components, channel, scheme)?)
    }
}

impl<MC: DeviceChannel> Side<MC> for CudaBackend
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    fn moved(columns: Vec<Simd>) -> Vec<Evaluation<Self>> {
        columns.to_device()
    }

    fn interaction(
        configuration: &Configuration,
        eval: &RandomEval,
        preprocessed: &[&Simd],
        trace: &[Simd],
    ) -> Option<(Vec<Evaluation<Self>>, SecureField)> {
        (configuration.interactions == Interactions::OnDevice).then(|| {
            let preprocessed = preprocessed.iter().map(|&column| column.clone()).collect_vec().to_device();
            let trace = trace.to_device();
            interaction_trace(eval, &preprocessed.iter().collect_vec(), &trace.iter().collect_vec())
        })
    }

    fn prove(
        by: By,
        components: &[&dyn ComponentProver<Self>],
        channel: &mut MC::C,
        scheme: CommitmentSchemeProver<'_, Self, MC>,
    ) -> Result<StarkProof<MC::H>, Error> {
        match by {
            By::Batches => gatework_stark::prove(components, channel, scheme),
            By::Stwo => Ok(stwo::prover::prove(components, channel, scheme)?),
        }
    }
}

fn evaluation(values: impl AsRef<[BaseField]>) -> Simd {
    let values = values.as_ref();
    let domain = CanonicCoset::new(values.len().ilog2()).circle_domain();
    CircleEvaluation::new(domain, values.iter().copied().collect())
}

fn components(
    air: &RandomAir,
    entries: &Entries,
    sums: &[SecureField],
) -> Vec<FrameworkComponent<RandomEval>> {
    let ids = (0..air.preprocessed.len()).map(|number| PreProcessedColumnId { id: number.to_string() });
    let mut places = TraceLocationAllocator::new_with_preprocessed_columns(&ids.collect_vec());
    let eval = |part: &air::Part| RandomEval { part: part.clone(), entries: entries.clone() };
    let parts = air.parts.iter().zip(sums);
    parts.map(|(part, &sum)| FrameworkComponent::new(&mut places, eval(part), sum)).collect()
}

type Proved<H> = (Vec<SecureField>, StarkProof<H>);

fn prove<B: Side<MC>, MC: MerkleChannel>(configuration: &Configuration) -> Result<Proved<MC::H>, Error>
where
    FrameworkComponent<RandomEval>: ComponentProver<B>,
{
    let (air, pcs) = (&configuration.air, configuration.pcs);
    let log_largest =
        (log_longest(air) + pcs.fri_config.log_blowup_factor).max(pcs.lifting_log_size.unwrap_or(0));
    let twiddles = B::precompute_twiddles(CanonicCoset::new(log_largest).circle_domain().half_coset);
    let channel = &mut MC::C::default();
    let mut scheme = CommitmentSchemeProver::<B, MC>::new(pcs, &twiddles);
    if configuration.keeps_coefficients {
        scheme.set_store_polynomials_coefficients();
    }
    let (preprocessed, traces) = air.columns();
    let tables = preprocessed.iter().map(evaluation).collect_vec();
    let mut tree = scheme.tree_builder();
    tree.extend_evals(B::moved(tables.clone()));
    tree.commit(channel);
    let mut tree = scheme.tree_builder();
    tree.extend_evals(B::moved(traces.iter().flatten().map(evaluation).collect()));
    tree.commit(channel);

    let entries = Entries::draw(channel);
    let mut sums = vec![SecureField::default(); air.parts.len()];
    if air.interacts() {
        let mut columns = Vec::new();
        for (number, (part, trace)) in air.parts.iter().zip(&traces).enumerate() {
            let eval = RandomEval { part: part.clone(), entries: entries.clone() };
            let used = part.preprocessed.iter().map(|&number| &tables[number]).collect_vec();
            let on_device =
                B::interaction(configuration, &eval, &used, &trace.iter().map(evaluation).collect_vec());
            let (interaction, sum) = on_device.unwrap_or_else(|| {
                let (columns, sum) = part.interaction(&entries, &preprocessed, trace);
                (B::moved(columns), sum)
            });
            columns.extend(interaction);
            sums[number] = sum;
        }
        channel.mix_felts(&sums);
        let mut tree = scheme.tree_builder();
        tree.extend_evals(columns);
        tree.commit(channel);
    }
    let components = components(air, &entries, &sums);
    let components = components.iter().map(|component| component as _).collect_vec();
    let proof = B::prove(configuration.by, &components, channel, scheme)?;
    Ok((sums, proof))
}

/// Whether stwo's verifier takes a proof.
fn holds<MC: MerkleChannel>(configuration: &Configuration, (sums, proof): Proved<MC::H>) -> bool {
    let air = &configuration.air;
    let channel = &mut MC::C::default();
    let mut scheme = CommitmentSchemeVerifier::<MC>::new(configuration.pcs);
    let bounds = components(air, &Entries::dummy(), &sums);
    let bounds = bounds.iter().map(|component| component.trace_log_degree_bounds()).collect_vec();
    let sizes = |tree: usize| {
        bounds.iter().flat_map(|bound| bound.get(tree).cloned().unwrap_or_default()).collect_vec()
    };
    scheme.commit(proof.commitments[0], &air.preprocessed, channel);
    scheme.commit(proof.commitments[1], &sizes(1), channel);
    let entries = Entries::draw(channel);
    if air.interacts() {
        channel.mix_felts(&sums);
        scheme.commit(proof.commitments[2], &sizes(2), channel);
    }
    let components = components(air, &entries, &sums);
    let components = components.iter().map(|component| component as _).collect_vec();
    stwo::core::verifier::verify(&components, channel, &mut scheme, proof).is_ok()
}

/// Why the proofs of a seed are not as they should be, if they are not.
fn difference<MC: DeviceChannel>(context: &Context, configuration: &Configuration) -> Option<String>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
    SimdBackend: BackendForChannel<MC>,
    MC::H: serde::Serialize,
{
    let expected = match prove::<SimdBackend, MC>(configuration) {
        Ok(expected) => expected,
        Err(error) => return Some(format!("SimdBackend: {error}")),
    };
    context.set_tier(configuration.tier);
    context.set_streaming(configuration.streaming);
    let found = match context.scope(|| prove::<CudaBackend, MC>(configuration)).flatten() {
        Ok(found) => found,
        Err(error) => return Some(format!("CudaBackend: {error}")),
    };
    let json = |proved: &Proved<MC::H>| serde_json::to_string(proved).expect("a proof is JSON");
    if json(&found) != json(&expected) {
        return Some("the proofs differ".into());
    }
    (!holds::<MC>(configuration, found)).then(|| "the verifier refuses the proof".into())
}

/// How many devices prove together.
const DEVICES: [usize; 4] = [1, 2, 4, 8];

/// A context for each number of devices: those of one on the device of all tests, the others on emulated
/// devices that know each other, or on virtual ones of the device that the tests are told.
fn contexts() -> Vec<Context> {
    let one = support::context().device();
    let devices = |count: usize| match count {
        1 => vec![one.clone()],
        _ if one.is_emulated() => Device::emulated_group(count as u64, count).unwrap(),
        _ => one.split(count).unwrap(),
    };
    DEVICES.iter().map(|&count| Context::over(&devices(count)).unwrap()).collect()
}

fn check(contexts: &[Context], seed: u64) {
    let configuration = Configuration::of(seed);
    let context = &contexts[configuration.context];
    let difference = match configuration.hash {
        Hash::Blake2s => difference::<Blake2sMerkleChannel>(context, &configuration),
        Hash::Blake2sM31 => difference::<Blake2sM31MerkleChannel>(context, &configuration),
        Hash::Poseidon252 => difference::<Poseidon252MerkleChannel>(context, &configuration),
    };
    if let Some(difference) = difference {
        panic!("seed {seed}: {difference}\n{configuration:#?}");
    }
}

const SEEDS: u64 = 200;

/// How many seeds are tried: `GATEWORK_SEEDS` of them for a longer search.
fn seeds() -> u64 {
    std::env::var("GATEWORK_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

#[test]
fn random_airs_are_proved_as_by_simd() {
    let threads = 2;
    std::thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || {
                let contexts = contexts();
                (first..seeds()).step_by(threads as usize).for_each(|seed| check(&contexts, seed));
            });
        }
    });
}

/// The seeds reach all that they are to reach; a seed always stands for the same.
#[test]
fn seeds_reach_every_choice() {
    let all = (0..SEEDS).map(Configuration::of).collect_vec();
    let count =
        |is: &dyn Fn(&Configuration) -> bool| all.iter().filter(|configuration| is(configuration)).count();
    for hash in [Hash::Blake2s, Hash::Blake2sM31] {
        assert!(count(&|configuration| configuration.hash == hash) > 50, "{hash:?}");
    }
    assert!(count(&|configuration| configuration.hash == Hash::Poseidon252) > 10);
    for tier in [Tier::Interpreted, Tier::Generated, Tier::Adaptive] {
        assert!(count(&|configuration| configuration.tier == tier) > 3, "{tier:?}");
    }
    for by in [By::Batches, By::Stwo] {
        assert!(count(&|configuration| configuration.by == by) > 20, "{by:?}");
    }
    for interactions in [Interactions::OnDevice, Interactions::OnHost] {
        assert!(count(&|configuration| configuration.interactions == interactions) > 50, "{interactions:?}");
    }
    assert!(count(&|configuration| configuration.pcs.lifting_log_size.is_some()) > 20);
    assert!(count(&|configuration| configuration.streaming.is_some()) > 50);
    for hash in [Hash::Blake2s, Hash::Blake2sM31, Hash::Poseidon252] {
        let streams =
            |configuration: &Configuration| configuration.streaming.is_some() && configuration.hash == hash;
        assert!(count(&streams) > 2, "{hash:?}");
    }
    for (context, devices) in DEVICES.into_iter().enumerate() {
        for by in [By::Batches, By::Stwo] {
            let has =
                |configuration: &Configuration| configuration.context == context && configuration.by == by;
            assert!(count(&has) > 3, "{devices} devices, {by:?}");
        }
        let interacts =
            |configuration: &Configuration| configuration.context == context && configuration.air.interacts();
        assert!(count(&interacts) > 10, "{devices} devices");
    }
    for hash in [Hash::Blake2s, Hash::Blake2sM31, Hash::Poseidon252] {
        let on_several =
            |configuration: &Configuration| configuration.context > 0 && configuration.hash == hash;
        assert!(count(&on_several) > 2, "{hash:?}");
    }
    assert!(count(&|configuration| configuration.keeps_coefficients) > 20);
    assert!(count(&|configuration| configuration.air.preprocessed.is_empty()) > 20);
    assert!(count(&|configuration| configuration.air.interacts()) > 50);
    assert!(
        count(&|configuration| configuration.air.parts.iter().map(|part| part.log_rows).unique().count() > 1)
            > 50
    );
    assert!(
        (0..20).all(|seed| format!("{:?}", Configuration::of(seed)) == format!("{:?}", all[seed as usize]))
    );
    // Choices of a seed are drawn apart from each other.
    assert_ne!(
        Draw::new(1, "channel").number(0..=u32::MAX - 1),
        Draw::new(1, "tier").number(0..=u32::MAX - 1)
    );
}

/// A control: a proof with one value that is another, and a seed that is another.
#[test]
fn a_proof_of_a_random_air_with_another_value_is_refused() {
    let seed = (0..SEEDS).find(|&seed| Configuration::of(seed).by == By::Batches).unwrap();
    let configuration = Configuration::of(seed);
    let other = Configuration { air: RandomAir::draw(seed + 1000), ..Configuration::of(seed) };
    let proved = prove::<SimdBackend, Blake2sMerkleChannel>(&configuration).unwrap();
    assert!(holds::<Blake2sMerkleChannel>(&configuration, proved.clone()));
    let (sums, mut proof) = proved;
    proof.0.sampled_values[1][0][0] += SecureField::from(BaseField::from(1));
    assert!(!holds::<Blake2sMerkleChannel>(&configuration, (sums, proof)));
    assert_ne!(format!("{:?}", other.air), format!("{:?}", configuration.air));
}
