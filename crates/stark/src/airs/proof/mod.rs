//! Proofs of [`Air`]s by either backend, and their verification by stwo.

mod well_formed;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gatework_gpu::{Class, Classified};
use itertools::Itertools as _;
use stwo::core::air::Component;
use stwo::core::channel::{Blake2sChannel, Channel, MerkleChannel};
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::{CommitmentSchemeVerifier, PcsConfig};
use stwo::core::poly::circle::{CanonicCoset, CircleDomain};
use stwo::core::proof::StarkProof;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sMerkleChannel, Blake2sMerkleHasher};
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::core::verifier::VerificationError;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::{self, BackendForChannel, Column as _, ColumnOps};
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleCoefficients, CircleEvaluation, PolyOps as _};
use stwo::prover::poly::twiddles::TwiddleTree;
use stwo::prover::{CommitmentSchemeProver, ComponentProver};
use stwo_constraint_framework::preprocessed_columns::PreProcessedColumnId;
use stwo_constraint_framework::{
    FrameworkComponent, FrameworkEval, INTERACTION_TRACE_IDX, InfoEvaluator, ORIGINAL_TRACE_IDX,
    TraceLocationAllocator,
};

use super::{Air, HostColumn};
use crate::backend::CudaBackend;
use crate::constraints::{interaction_trace, program_bytes};
use crate::limits::Limits;
use crate::plan::Reads;
use crate::{DeviceChannel, DeviceColumn, Digest, Plan, Result};

type Evaluation<B> = CircleEvaluation<B, BaseField, BitReversedOrder>;

/// A proof with what the verifier is told beside it.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Proved<H: MerkleHasherLifted = Blake2sMerkleHasher> {
    /// The claimed sum of each component.
    pub claimed_sums: Vec<SecureField>,
    /// stwo's proof.
    pub proof: StarkProof<H>,
}

/// Why a proof does not hold.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// stwo's verifier refused it.
    #[error("the proof does not hold: {0}")]
    Refused(#[from] VerificationError),
    /// stwo's verifier panics at some proofs whose openings are not those that it asks for.
    #[error("the proof does not hold: stwo's verifier stopped at it")]
    Stopped,
    /// It is none that a prover makes: stwo's verifier would misread it, or take forever.
    #[error("the proof does not hold: {what}")]
    Malformed {
        /// What is wrong with it.
        what: &'static str,
    },
    /// Lookups do not balance.
    #[error("the proof does not hold: the claimed sums are not those of a true statement")]
    Sums,
    /// It is of another statement: the preprocessed columns, which are part of it, are not those that it
    /// commits to.
    #[error("the proof does not hold: it is of other preprocessed columns than the statement's")]
    Preprocessed,
    /// It is not of the shape that a proof of this statement has.
    #[error("the proof does not hold: it has {found} commitments, a proof of this statement has {needed}")]
    Shape {
        /// Commitments that it has.
        found: usize,
        /// Commitments that it should have.
        needed: usize,
    },
}

impl Classified for VerifyError {
    fn class(&self) -> Class {
        Class::Verification
    }
}

/// The differences of backends beside stwo's traits.
pub trait Backend: backend::Backend {
    /// Columns with these values.
    fn columns(values: &[&[BaseField]]) -> Vec<Evaluation<Self>>;

    /// Interpolates columns and keeps their values.
    fn interpolate_kept(
        columns: &[&Evaluation<Self>],
        twiddles: &TwiddleTree<Self>,
    ) -> Vec<CircleCoefficients<Self>>;

    /// The interaction trace of a component.
    fn interaction<A: Air>(
        air: &A,
        eval: &A::Eval,
        preprocessed: &[&Evaluation<Self>],
        trace: &[Evaluation<Self>],
    ) -> (Vec<Evaluation<Self>>, SecureField);
}

/// A backend's prover with a channel.
pub trait ProvesWith<MC: MerkleChannel>: Backend + BackendForChannel<MC> {
    /// What the channel adds to a plan.
    fn plan(plan: Plan) -> Plan {
        plan
    }

    /// Proves what `scheme` has committed to.
    fn prove(
        components: &[&dyn ComponentProver<Self>],
        channel: &mut MC::C,
        scheme: CommitmentSchemeProver<'_, Self, MC>,
    ) -> Result<StarkProof<MC::H>>;
}

/// The domain that so many values are on.
fn domain(len: usize) -> CircleDomain {
    CanonicCoset::new(len.ilog2()).circle_domain()
}

impl Backend for SimdBackend {
    fn columns(values: &[&[BaseField]]) -> Vec<Evaluation<Self>> {
        let column = |values: &&[BaseField]| {
            CircleEvaluation::new(domain(values.len()), values.iter().copied().collect())
        };
        values.iter().map(column).collect()
    }

    fn interpolate_kept(
        columns: &[&Evaluation<Self>],
        twiddles: &TwiddleTree<Self>,
    ) -> Vec<CircleCoefficients<Self>> {
        Self::interpolate_columns(columns.iter().map(|&column| column.clone()).collect(), twiddles)
    }

    fn interaction<A: Air>(
        air: &A,
        eval: &A::Eval,
        preprocessed: &[&Evaluation<Self>],
        trace: &[Evaluation<Self>],
    ) -> (Vec<Evaluation<Self>>, SecureField) {
        let preprocessed = preprocessed.iter().map(|column| column.values.to_cpu()).collect_vec();
        let trace = trace.iter().map(|column| column.values.to_cpu()).collect_vec();
        air.simd_interaction(eval, &preprocessed, &trace)
    }
}

impl<MC: MerkleChannel> ProvesWith<MC> for SimdBackend
where
    SimdBackend: BackendForChannel<MC>,
{
    fn prove(
        components: &[&dyn ComponentProver<Self>],
        channel: &mut MC::C,
        scheme: CommitmentSchemeProver<'_, Self, MC>,
    ) -> Result<StarkProof<MC::H>> {
        let provable = components.iter().map(|&component| component as &dyn Component).collect_vec();
        Limits::of(&provable, &scheme).check()?;
        Ok(stwo::prover::prove(components, channel, scheme)?)
    }
}

impl Backend for CudaBackend {
    fn columns(values: &[&[BaseField]]) -> Vec<Evaluation<Self>> {
        let columns = crate::upload(values).into_iter();
        columns.map(|column| CircleEvaluation::new(domain(column.len()), column)).collect()
    }

    fn interpolate_kept(
        columns: &[&Evaluation<Self>],
        twiddles: &TwiddleTree<Self>,
    ) -> Vec<CircleCoefficients<Self>> {
        crate::interpolate_kept(columns, twiddles)
    }

    fn interaction<A: Air>(
        _: &A,
        eval: &A::Eval,
        preprocessed: &[&Evaluation<Self>],
        trace: &[Evaluation<Self>],
    ) -> (Vec<Evaluation<Self>>, SecureField) {
        interaction_trace(eval, preprocessed, &trace.iter().collect_vec())
    }
}

impl<MC: DeviceChannel> ProvesWith<MC> for CudaBackend
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    fn plan(plan: Plan) -> Plan {
        if MC::WORDS.is_some() { plan } else { plan.hashing_felts() }
    }

    fn prove(
        components: &[&dyn ComponentProver<Self>],
        channel: &mut MC::C,
        scheme: CommitmentSchemeProver<'_, Self, MC>,
    ) -> Result<StarkProof<MC::H>> {
        crate::prove(components, channel, scheme)
    }
}

/// The input of a proof, where the backend keeps its columns. A proof consumes it.
pub struct Input<B: Backend> {
    preprocessed: Vec<(String, Evaluation<B>)>,
    traces: Vec<Vec<Evaluation<B>>>,
    /// The same for copies.
    twiddles: Arc<TwiddleTree<B>>,
}

impl<B: Backend> Clone for Input<B> {
    fn clone(&self) -> Self {
        Self {
            preprocessed: self.preprocessed.clone(),
            traces: self.traces.clone(),
            twiddles: self.twiddles.clone(),
        }
    }
}

impl<B: Backend> Input<B> {
    /// Columns of `air`, and twiddles for proofs with `config`.
    pub fn new<A: Air>(air: &A, config: PcsConfig) -> Self {
        Self::of(air.preprocessed(), &air.traces(), config)
    }

    /// As [`Input::new`], with columns that are there already.
    pub fn of(
        preprocessed: Vec<(String, HostColumn)>,
        traces: &[Vec<HostColumn>],
        config: PcsConfig,
    ) -> Self {
        let values = preprocessed.iter().map(|(_, values)| values).chain(traces.iter().flatten());
        let mut columns = B::columns(&values.map(Vec::as_slice).collect_vec()).into_iter();
        let named = preprocessed.iter().map(|(name, _)| name.clone());
        let preprocessed = named.zip(columns.by_ref()).collect_vec();
        let traces =
            traces.iter().map(|trace| columns.by_ref().take(trace.len()).collect_vec()).collect_vec();
        let all = preprocessed.iter().map(|(_, column)| column).chain(traces.iter().flatten());
        let log_rows = all.map(|column: &Evaluation<B>| column.domain.log_size()).max().unwrap_or(1);
        // Constraints are evaluated on twice the rows, which a blowup of two has too; quotients on as many as
        // trees are lifted to.
        let log_extended = log_rows + config.fri_config.log_blowup_factor.max(1);
        let log_largest = log_extended.max(config.lifting_log_size.unwrap_or(0));
        let twiddles = B::precompute_twiddles(CanonicCoset::new(log_largest).circle_domain().half_coset);
        Self { preprocessed, traces, twiddles: Arc::new(twiddles) }
    }
}

/// Logarithms of the lengths of the columns of each tree that a proof of `air` commits to, and what its
/// components are.
fn trees_and_evals<A: Air>(air: &A) -> (Vec<Vec<u32>>, Vec<A::Eval>) {
    let evals = air.evals(&mut Blake2sChannel::default());
    let masks = |eval: &A::Eval, interaction: usize| {
        let info = InfoEvaluator::new(eval.log_size(), Vec::new(), SecureField::default());
        let columns = eval.evaluate(info).mask_offsets.get(interaction).map_or(0, Vec::len);
        std::iter::repeat_n(eval.log_size(), columns)
    };
    let tree = |interaction: usize| evals.iter().flat_map(|eval| masks(eval, interaction)).collect_vec();
    let mut trees = vec![air.preprocessed_log_sizes(), tree(ORIGINAL_TRACE_IDX)];
    if air.interacts() {
        trees.push(tree(INTERACTION_TRACE_IDX));
    }
    (trees, evals)
}

/// The memory that a proof of `air` takes.
pub fn plan<A: Air>(air: &A, config: PcsConfig) -> Plan {
    let (trees, evals) = trees_and_evals(air);
    // The trace is there while the preprocessed columns are committed to, and stays where interactions need
    // it.
    let kept = trees.iter().take(2).flatten().map(|&log_rows| 4u64 << log_rows).sum::<u64>();
    let points = evals.iter().flat_map(offsets).chain([0]).unique().count();
    let programs = program_bytes(evals.iter());
    let plan =
        Plan::new(config, trees).points(points).reading(evals.iter().map(Reads::of).collect(), programs);
    if air.interacts() { plan.holding(kept).interacting() } else { plan }
}

/// How far ahead of its own row a component reads its columns.
fn offsets(eval: &impl FrameworkEval) -> Vec<isize> {
    let info = eval.evaluate(InfoEvaluator::new(eval.log_size(), Vec::new(), SecureField::default()));
    info.mask_offsets.iter().skip(ORIGINAL_TRACE_IDX).flatten().flatten().copied().collect()
}

/// Refuses what stwo cannot prove, or cannot verify when it is proved, before anything is made for it.
pub fn require_provable<A: Air>(air: &A, config: PcsConfig) -> Result<()> {
    let (trees, evals) = trees_and_evals(air);
    let components = evals.iter().map(|eval| (eval.log_size(), eval.max_constraint_log_degree_bound()));
    let trees = trees.iter().map(|tree| tree.iter().copied().max());
    Limits { config, components: components.collect(), trees: trees.collect() }.check()
}

/// Components in the order of their traces.
fn components<E: FrameworkEval>(
    evals: Vec<E>,
    names: &[String],
    sums: &[SecureField],
) -> Vec<FrameworkComponent<E>> {
    let ids = names.iter().map(|name| PreProcessedColumnId { id: name.clone() }).collect_vec();
    let mut places = TraceLocationAllocator::new_with_preprocessed_columns(&ids);
    evals.into_iter().zip(sums).map(|(eval, &sum)| FrameworkComponent::new(&mut places, eval, sum)).collect()
}

fn mix_public<A: Air>(air: &A, channel: &mut impl Channel) {
    channel.mix_u32s(&air.public());
}

/// Proves `air` with stwo's Blake2s channel. For [`CudaBackend`], inside of a
/// [`Context::scope`](crate::Context::scope).
pub fn prove<A: Air, B: ProvesWith<Blake2sMerkleChannel>>(
    air: &A,
    config: PcsConfig,
    input: Input<B>,
) -> Result<Proved>
where
    FrameworkComponent<A::Eval>: ComponentProver<B>,
{
    prove_with::<Blake2sMerkleChannel, A, B>(air, config, input)
}

/// As [`prove`], with any channel.
pub fn prove_with<MC: MerkleChannel, A: Air, B: ProvesWith<MC>>(
    air: &A,
    config: PcsConfig,
    input: Input<B>,
) -> Result<Proved<MC::H>>
where
    FrameworkComponent<A::Eval>: ComponentProver<B>,
{
    let Input { preprocessed, traces, twiddles } = input;
    let (names, preprocessed): (Vec<String>, Vec<Evaluation<B>>) = preprocessed.into_iter().unzip();
    let channel = &mut MC::C::default();
    mix_public(air, channel);
    let mut scheme = CommitmentSchemeProver::<B, MC>::new(config, &twiddles);

    // Interactions are computed from values that commitments would use up.
    let kept = if air.interacts() {
        let mut tree = scheme.tree_builder();
        tree.extend_polys(B::interpolate_kept(&preprocessed.iter().collect_vec(), &twiddles));
        tree.commit(channel);
        let mut tree = scheme.tree_builder();
        tree.extend_polys(B::interpolate_kept(&traces.iter().flatten().collect_vec(), &twiddles));
        tree.commit(channel);
        Some((preprocessed, traces))
    } else {
        let mut tree = scheme.tree_builder();
        tree.extend_evals(preprocessed);
        tree.commit(channel);
        let mut tree = scheme.tree_builder();
        tree.extend_evals(traces.into_iter().flatten().collect());
        tree.commit(channel);
        None
    };

    let evals = air.evals(channel);
    let mut sums = vec![SecureField::default(); evals.len()];
    if let Some((preprocessed, traces)) = kept {
        let mut columns = Vec::new();
        for (part, (eval, trace)) in evals.iter().zip(&traces).enumerate() {
            let used = used_columns(eval, &names);
            let used = used.iter().map(|&index| &preprocessed[index]).collect_vec();
            let (interaction, sum) = B::interaction(air, eval, &used, trace);
            columns.extend(interaction);
            sums[part] = sum;
        }
        channel.mix_felts(&sums);
        let mut tree = scheme.tree_builder();
        tree.extend_evals(columns);
        tree.commit(channel);
    }
    let components = components(evals, &names, &sums);
    let provers = components.iter().map(|component| component as &dyn ComponentProver<B>).collect_vec();
    let proof = B::prove(&provers, channel, scheme)?;
    Ok(Proved { claimed_sums: sums, proof })
}

/// Which preprocessed columns a component uses, in its order.
fn used_columns<E: FrameworkEval>(eval: &E, names: &[String]) -> Vec<usize> {
    let info = eval.evaluate(InfoEvaluator::new(eval.log_size(), Vec::new(), SecureField::default()));
    let place = |id: &PreProcessedColumnId| names.iter().position(|name| *name == id.id);
    info.preprocessed_columns.iter().filter_map(place).collect()
}

/// The commitment to the preprocessed columns, which the verifier computes for itself.
fn preprocessed_root<MC: MerkleChannel, A: Air>(air: &A, config: PcsConfig) -> Digest<MC>
where
    SimdBackend: BackendForChannel<MC>,
{
    let Input { preprocessed, twiddles, .. } = Input::<SimdBackend>::of(air.preprocessed(), &[], config);
    let mut scheme = CommitmentSchemeProver::<SimdBackend, MC>::new(config, &twiddles);
    let mut tree = scheme.tree_builder();
    tree.extend_evals(preprocessed.into_iter().map(|(_, column)| column).collect());
    tree.commit(&mut MC::C::default());
    scheme.roots()[0]
}

/// Bytes of memory that [`verify`] takes: for the preprocessed columns, which it commits to itself. All else
/// is small.
pub fn verifying_bytes<A: Air>(air: &A, config: PcsConfig) -> u64 {
    let (log_sizes, log_blowup) = (air.preprocessed_log_sizes(), config.fri_config.log_blowup_factor);
    let Some(&largest) = log_sizes.iter().max() else { return 0 };
    let log_leaves = config.lifting_log_size.unwrap_or(0).max(largest + log_blowup);
    // Values, coefficients and what they extend to; two tables of twiddles; a tree of hashes; and a quarter
    // for what is computed with.
    let column = |&log_size: &u32| (2 + (1u64 << log_blowup)) * (4 << log_size);
    let bytes = log_sizes.iter().map(column).sum::<u64>() + (8 + 64) * (1 << log_leaves);
    bytes + bytes / 4
}

/// Verifies a proof of `air` with stwo's own verifier.
pub fn verify<A: Air>(air: &A, config: PcsConfig, proved: Proved) -> std::result::Result<(), VerifyError> {
    verify_with::<Blake2sMerkleChannel, A>(air, config, proved)
}

/// As [`verify`], with any channel.
pub fn verify_with<MC: MerkleChannel, A: Air>(
    air: &A,
    config: PcsConfig,
    proved: Proved<MC::H>,
) -> std::result::Result<(), VerifyError>
where
    SimdBackend: BackendForChannel<MC>,
{
    well_formed::check(&proved, config)?;
    let needed = if air.interacts() { 4 } else { 3 };
    if proved.proof.commitments.len() != needed {
        return Err(VerifyError::Shape { found: proved.proof.commitments.len(), needed });
    }
    let Proved { claimed_sums, proof } = proved;
    let names = air.preprocessed().into_iter().map(|(name, _)| name).collect_vec();
    let channel = &mut MC::C::default();
    mix_public(air, channel);
    let mut scheme = CommitmentSchemeVerifier::<MC>::new(config);

    // Sizes of columns follow from the components, whatever their challenges.
    let sizes = {
        let evals = air.evals(&mut Blake2sChannel::default());
        let sums = vec![SecureField::default(); evals.len()];
        let components = components(evals, &names, &sums);
        let bounds = components.iter().map(|component| component.trace_log_degree_bounds()).collect_vec();
        let trees = if air.interacts() { 3 } else { 2 };
        let mut sizes = (0..trees)
            .map(|tree| {
                bounds.iter().flat_map(|bound| bound.get(tree).cloned().unwrap_or_default()).collect_vec()
            })
            .collect_vec();
        sizes[0] = air.preprocessed_log_sizes();
        sizes
    };
    if proof.commitments[0] != preprocessed_root::<MC, A>(air, config) {
        return Err(VerifyError::Preprocessed);
    }
    scheme.commit(proof.commitments[0], &sizes[0], channel);
    scheme.commit(proof.commitments[1], &sizes[1], channel);
    let evals = air.evals(channel);
    if claimed_sums.len() != evals.len() || !air.sums_hold(&evals, &claimed_sums) {
        return Err(VerifyError::Sums);
    }
    if air.interacts() {
        channel.mix_felts(&claimed_sums);
        scheme.commit(proof.commitments[2], &sizes[2], channel);
    }
    let components = components(evals, &names, &claimed_sums);
    let components = components.iter().map(|component| component as _).collect_vec();
    let verify = || stwo::core::verifier::verify(&components, channel, &mut scheme, proof);
    Ok(catch_unwind(AssertUnwindSafe(verify)).map_err(|_| VerifyError::Stopped)??)
}
