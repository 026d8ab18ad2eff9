//! Programs as stwo's users write them: traces by packed lanes and `LogupTraceGenerator`, proved by either
//! backend. What is added for the device is how columns get there; the proof is the same, byte for byte.

mod blake;
mod circuit;
mod fibonacci;
mod machine;
#[path = "../support/mod.rs"]
mod support;

use gatework_stark::{CudaBackend, Error, ToDevice as _};
use itertools::Itertools as _;
use num_traits::Zero as _;
use stwo::core::air::Component as _;
use stwo::core::channel::{Blake2sChannel, Channel as _};
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::{CommitmentSchemeVerifier, PcsConfig};
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::proof::StarkProof;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sMerkleChannel, Blake2sMerkleHasher};
use stwo::prover::backend::BackendForChannel;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::simd::column::BaseColumn;
use stwo::prover::backend::simd::m31::{LOG_N_LANES, N_LANES, PackedBaseField};
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::CircleEvaluation;
use stwo::prover::poly::twiddles::TwiddleTree;
use stwo::prover::{CommitmentSchemeProver, ComponentProver, TreeBuilder};
use stwo_constraint_framework::preprocessed_columns::PreProcessedColumnId;
use stwo_constraint_framework::{FrameworkComponent, FrameworkEval, TraceLocationAllocator};

use blake::Blake;
use circuit::Circuit;
use fibonacci::Fibonacci;
use machine::Machine;
use support::on_device;

type Simd = CircleEvaluation<SimdBackend, BaseField, BitReversedOrder>;
type Proof = StarkProof<Blake2sMerkleHasher>;
type Builder<'a, 'b, B> = TreeBuilder<'a, 'b, B, Blake2sMerkleChannel>;
type Scheme<'a, B> = CommitmentSchemeProver<'a, B, Blake2sMerkleChannel>;

/// A statement and its witness, in columns of `SimdBackend`.
trait Program {
    /// The constraints of a component.
    type Eval: FrameworkEval + Sync;

    /// Preprocessed columns, by name.
    fn preprocessed(&self) -> Vec<(String, Simd)>;

    /// The trace of each component.
    fn traces(&self) -> Vec<Vec<Simd>>;

    fn evals(&self, channel: &mut Blake2sChannel) -> Vec<Self::Eval>;

    /// The interaction trace and the claimed sum of each component, or nothing where there are none.
    fn interactions(&self, evals: &[Self::Eval]) -> Vec<(Vec<Simd>, SecureField)>;

    /// What all claimed sums add up to where the statement is true.
    fn total(&self, _: &[Self::Eval]) -> SecureField {
        SecureField::zero()
    }
}

/// Columns from packed lanes.
fn evaluation(lanes: Vec<PackedBaseField>) -> Simd {
    let column = BaseColumn::from_simd(lanes);
    CircleEvaluation::new(CanonicCoset::new(column.length.ilog2()).circle_domain(), column)
}

/// Columns from rows, sixteen of which are the lanes of a vector.
fn columns_of(rows: &[Vec<u32>]) -> Vec<Simd> {
    let lanes = |column: usize| {
        let lane = |row: &Vec<u32>| BaseField::from_u32_unchecked(row[column]);
        let vector = |rows: &[Vec<u32>]| PackedBaseField::from_array(std::array::from_fn(|i| lane(&rows[i])));
        rows.chunks_exact(N_LANES).map(vector).collect()
    };
    (0..rows[0].len()).map(|column| evaluation(lanes(column))).collect()
}

/// Vectors of a column of 2^`log_rows` rows.
fn vectors(log_rows: u32) -> std::ops::Range<usize> {
    0..1 << (log_rows - LOG_N_LANES)
}

/// How a program's columns get to where it is proved.
trait Destination: BackendForChannel<Blake2sMerkleChannel> {
    fn add_columns(tree: &mut Builder<'_, '_, Self>, columns: Vec<Simd>, twiddles: &TwiddleTree<Self>);

    fn prove(
        components: &[&dyn ComponentProver<Self>],
        channel: &mut Blake2sChannel,
        scheme: Scheme<'_, Self>,
    ) -> Result<Proof, Error>;
}

impl Destination for SimdBackend {
    fn add_columns(tree: &mut Builder<'_, '_, Self>, columns: Vec<Simd>, _: &TwiddleTree<Self>) {
        tree.extend_evals(columns);
    }

    fn prove(
        components: &[&dyn ComponentProver<Self>],
        channel: &mut Blake2sChannel,
        scheme: Scheme<'_, Self>,
    ) -> Result<Proof, Error> {
        Ok(stwo::prover::prove(components, channel, scheme)?)
    }
}

impl Destination for CudaBackend {
    fn add_columns(tree: &mut Builder<'_, '_, Self>, columns: Vec<Simd>, twiddles: &TwiddleTree<Self>) {
        // Both ways, in turns.
        if columns.len().is_multiple_of(2) {
            tree.extend_evals(columns.to_device());
        } else {
            tree.extend_polys(columns.interpolate_on_device(twiddles));
        }
    }

    fn prove(
        components: &[&dyn ComponentProver<Self>],
        channel: &mut Blake2sChannel,
        scheme: Scheme<'_, Self>,
    ) -> Result<Proof, Error> {
        gatework_stark::prove(components, channel, scheme)
    }
}

fn components<E: FrameworkEval>(
    evals: Vec<E>,
    names: &[String],
    sums: &[SecureField],
) -> Vec<FrameworkComponent<E>> {
    let ids = names.iter().map(|name| PreProcessedColumnId { id: name.clone() }).collect_vec();
    let mut places = TraceLocationAllocator::new_with_preprocessed_columns(&ids);
    evals.into_iter().zip(sums).map(|(eval, &sum)| FrameworkComponent::new(&mut places, eval, sum)).collect()
}

/// A proof, with the claimed sums.
fn prove<P: Program, B: Destination>(
    program: &P,
    config: PcsConfig,
) -> Result<(Vec<SecureField>, Proof), Error>
where
    FrameworkComponent<P::Eval>: ComponentProver<B>,
{
    let (names, preprocessed): (Vec<String>, Vec<Simd>) = program.preprocessed().into_iter().unzip();
    let traces = program.traces();
    let log_rows = traces.iter().flatten().map(|column| column.domain.log_size()).max().unwrap();
    let log_largest = log_rows + config.fri_config.log_blowup_factor.max(1);
    let twiddles = B::precompute_twiddles(CanonicCoset::new(log_largest).circle_domain().half_coset);
    let channel = &mut Blake2sChannel::default();
    let mut scheme = Scheme::<B>::new(config, &twiddles);

    let mut tree = scheme.tree_builder();
    B::add_columns(&mut tree, preprocessed, &twiddles);
    tree.commit(channel);
    let mut tree = scheme.tree_builder();
    for trace in traces {
        B::add_columns(&mut tree, trace, &twiddles);
    }
    tree.commit(channel);
    let evals = program.evals(channel);
    let mut sums = vec![SecureField::zero(); evals.len()];
    let interactions = program.interactions(&evals);
    if !interactions.is_empty() {
        sums = interactions.iter().map(|(_, sum)| *sum).collect();
        channel.mix_felts(&sums);
        let mut tree = scheme.tree_builder();
        for (interaction, _) in interactions {
            B::add_columns(&mut tree, interaction, &twiddles);
        }
        tree.commit(channel);
    }
    let components = components(evals, &names, &sums);
    let components = components.iter().map(|component| component as _).collect_vec();
    Ok((sums, B::prove(&components, channel, scheme)?))
}

/// By stwo's verifier.
fn verify<P: Program>(program: &P, config: PcsConfig, sums: &[SecureField], proof: Proof) -> bool {
    let (names, preprocessed): (Vec<String>, Vec<Simd>) = program.preprocessed().into_iter().unzip();
    let channel = &mut Blake2sChannel::default();
    let sizes = components(program.evals(&mut Blake2sChannel::default()), &names, sums)
        .iter()
        .map(|component| component.trace_log_degree_bounds())
        .collect_vec();
    let sizes = |tree: usize| {
        sizes.iter().flat_map(|sizes| sizes.get(tree).cloned().unwrap_or_default()).collect_vec()
    };
    let mut scheme = CommitmentSchemeVerifier::<Blake2sMerkleChannel>::new(config);
    let preprocessed = preprocessed.iter().map(|column| column.domain.log_size()).collect_vec();
    scheme.commit(proof.commitments[0], &preprocessed, channel);
    scheme.commit(proof.commitments[1], &sizes(1), channel);
    let evals = program.evals(channel);
    if sums.iter().copied().sum::<SecureField>() != program.total(&evals) {
        return false;
    }
    if proof.commitments.len() == 4 {
        channel.mix_felts(sums);
        scheme.commit(proof.commitments[2], &sizes(2), channel);
    }
    let components = components(evals, &names, sums);
    let components = components.iter().map(|component| component as _).collect_vec();
    stwo::core::verifier::verify(&components, channel, &mut scheme, proof).is_ok()
}

fn configurations() -> [PcsConfig; 2] {
    let with = |pow_bits, fri_config| PcsConfig { pow_bits, fri_config, lifting_log_size: None };
    [with(3, FriConfig::new(0, 1, 6, 1)), with(2, FriConfig::new(1, 2, 4, 2))]
}

/// Both backends give the same bytes, and stwo's verifier takes them.
fn same_on_both<P: Program + Sync>(program: &P)
where
    FrameworkComponent<P::Eval>: ComponentProver<SimdBackend> + ComponentProver<CudaBackend>,
{
    for config in configurations() {
        let (sums, expected) = prove::<P, SimdBackend>(program, config).unwrap();
        let (found_sums, found) = on_device(|| prove::<P, CudaBackend>(program, config)).unwrap();
        assert_eq!(sums, found_sums);
        let json = |proof: &Proof| serde_json::to_string(proof).unwrap();
        assert!(json(&found) == json(&expected), "the proofs differ with {config:?}");
        assert!(verify(program, config, &sums, found.clone()), "{config:?}");
        // Controls: it is none of another statement, nor with another value.
        let other = sums.iter().map(|&sum| sum + SecureField::from(BaseField::from(1))).collect_vec();
        assert!(!verify(program, config, &other, found.clone()));
        let mut changed = found;
        changed.0.sampled_values[1][0][0] += SecureField::from(BaseField::from(1));
        assert!(!verify(program, config, &sums, changed));
    }
}

#[test]
fn wide_fibonacci() {
    // Vectors of its trace hold P for zero.
    for (log_rows, columns) in [(4, 3), (5, 10), (7, 17)] {
        same_on_both(&Fibonacci::new(log_rows, columns));
    }
}

#[test]
fn a_circuit_with_wires() {
    [4, 6].into_iter().for_each(|log_rows| same_on_both(&Circuit::new(log_rows)));
}

#[test]
fn a_state_machine_of_two_components() {
    for (log_first, log_second) in [(4, 4), (6, 4), (5, 7)] {
        same_on_both(&Machine { logs: [log_first, log_second] });
    }
}

#[test]
fn blake_rounds_with_a_scheduler_and_a_table_of_xors() {
    same_on_both(&Blake::new(4, 11));
}

#[test]
fn a_wrong_hash_is_not_proved() {
    let config = configurations()[0];
    let mut blake = Blake::new(4, 12);
    blake.corrupt();
    let is_proved = |proved: Result<(Vec<SecureField>, Proof), Error>| match proved {
        Ok((sums, proof)) => verify(&blake, config, &sums, proof),
        Err(Error::ConstraintsNotSatisfied) => false,
        Err(other) => panic!("{other}"),
    };
    assert!(!is_proved(on_device(|| prove::<_, CudaBackend>(&blake, config))));
    assert!(!is_proved(prove::<_, SimdBackend>(&blake, config)));
}
