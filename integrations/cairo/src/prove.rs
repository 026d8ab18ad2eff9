//! What `stwo_cairo_prover::prover::prove_cairo` does, on a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairo_air::CairoProof;
use cairo_air::cairo_components::CairoComponents;
use cairo_air::relations::CommonLookupElements;
use cairo_air::verifier::INTERACTION_POW_BITS;
use gatework_stark::{
    Context, CudaBackend, DeviceChannel, DeviceColumn, Digest, ToDevice as _, interaction_trace,
    interpolate_kept, prove_ex,
};
use num_traits::Zero as _;
use stwo::core::channel::Channel as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::PcsConfig;
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::proof_of_work::GrindOps as _;
use stwo::core::utils::MaybeOwned;
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::core::verifier::PREPROCESSED_TRACE_IDX;
use stwo::prover::backend::{BackendForChannel, ColumnOps};
use stwo::prover::mempool::BaseColumnPool;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleEvaluation, PolyOps as _};
use stwo::prover::{CommitmentSchemeProver, CommitmentTreeProver};
use stwo_cairo_adapter::ProverInput;
use stwo_cairo_common::preprocessed_columns::preprocessed_trace::PreProcessedTraceVariant;
use stwo_cairo_prover::witness::cairo::create_cairo_claim_generator;
use stwo_cairo_prover::witness::preprocessed_trace::gen_trace;
use stwo_constraint_framework::{FrameworkComponent, FrameworkEval, ORIGINAL_TRACE_IDX};

use crate::components::{Visit, claimed_sums, provers, visit};
use crate::error::caught;
use crate::{Error, Result};

type Column = CircleEvaluation<CudaBackend, BaseField, BitReversedOrder>;

/// What a proof depends on beside the run.
#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    /// Mixed into the channel first.
    pub channel_salt: u32,
    /// The commitment scheme's.
    pub config: PcsConfig,
    /// Which preprocessed columns are committed to.
    pub preprocessed: PreProcessedTraceVariant,
    /// Whether the proof samples preprocessed columns that no component uses, too.
    pub include_all_preprocessed_columns: bool,
}

/// A proof, and where its time went.
pub struct Proved<H: MerkleHasherLifted> {
    /// The proof.
    pub proof: CairoProof<H>,
    /// Stages in their order, the device waited for after each.
    pub times: Vec<(&'static str, Duration)>,
    /// The logarithm of the largest domain that was evaluated on.
    pub log_domain: u32,
}

/// Times of stages.
struct Clock<'a> {
    context: &'a Context,
    since: Instant,
    times: Vec<(&'static str, Duration)>,
}

impl Clock<'_> {
    fn lap(&mut self, stage: &'static str) -> gatework_stark::Result<()> {
        self.context.synchronize()?;
        self.times.push((stage, self.since.elapsed()));
        self.since = Instant::now();
        Ok(())
    }
}

/// Proves a run.
pub fn prove<MC: DeviceChannel>(
    context: &Context,
    input: ProverInput,
    parameters: &Parameters,
) -> Result<Proved<MC::H>>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    context.scope(|| prove_here::<MC>(context, input, parameters))?
}

fn prove_here<MC: DeviceChannel>(
    context: &Context,
    input: ProverInput,
    parameters: &Parameters,
) -> Result<Proved<MC::H>>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    let &Parameters { channel_salt, config, preprocessed, include_all_preprocessed_columns } = parameters;
    let log_blowup = config.fri_config.log_blowup_factor;
    let mut clock = Clock { context, since: Instant::now(), times: Vec::new() };

    // The host's part, which the transcript has no say in.
    let columns = Arc::new(preprocessed.to_preprocessed_trace());
    let preprocessed_columns = gen_trace(columns.clone());
    clock.lap("preprocessed columns")?;
    // The device makes the interaction traces.
    let (trace, claim, _) = caught(|| create_cairo_claim_generator(input, columns.clone()).write_trace())
        .map_err(Error::Witness)?;
    clock.lap("witness")?;

    // The composition's degree is that of the largest component and one more.
    let log_rows = preprocessed_columns.iter().chain(&trace).map(|column| column.domain.log_size()).max();
    let log_domain =
        config.lifting_log_size.unwrap_or_else(|| log_rows.unwrap_or_default() + log_blowup.max(1));
    let twiddles = CudaBackend::precompute_twiddles(CanonicCoset::new(log_domain).circle_domain().half_coset);
    let pool = BaseColumnPool::new();

    let channel = &mut MC::C::default();
    channel.mix_felts(&[channel_salt.into()]);
    config.mix_into(channel);
    let mut scheme = CommitmentSchemeProver::<CudaBackend, MC>::with_memory_pool(config, &twiddles, &pool);

    let preprocessed_columns = preprocessed_columns.to_device();
    let coefficients = interpolate_kept(&preprocessed_columns.iter().collect::<Vec<_>>(), &twiddles);
    let tree = CommitmentTreeProver::<CudaBackend, MC>::new(
        coefficients,
        log_blowup,
        &twiddles,
        false,
        config.lifting_log_size,
        &pool,
    );
    scheme.commit_tree(MaybeOwned::Owned(tree), channel);
    clock.lap("preprocessed tree")?;

    claim.mix_into::<MC>(channel);
    let trace = trace.to_device();
    clock.lap("upload")?;
    let mut builder = scheme.tree_builder();
    builder.extend_polys(interpolate_kept(&trace.iter().collect::<Vec<_>>(), &twiddles));
    builder.commit(channel);
    clock.lap("trace tree")?;

    let interaction_pow = CudaBackend::grind(channel, INTERACTION_POW_BITS);
    channel.mix_u64(interaction_pow);
    let elements = CommonLookupElements::draw(channel);
    clock.lap("grinding before the interaction")?;

    // Fractions do not depend on the sums that they are claimed to have, so that components without are good
    // enough here.
    let unclaimed = claimed_sums(&claim, SecureField::zero);
    let ids = columns.ids();
    let components = CairoComponents::new(&claim, &elements, &unclaimed, &ids);
    let mut interactions = Interactions {
        preprocessed: &preprocessed_columns,
        trace: &trace,
        made: Vec::new(),
        sums: Vec::new(),
    };
    visit(&components, &mut interactions);
    let Interactions { made, sums, .. } = interactions;
    drop((trace, preprocessed_columns));
    let mut sums = sums.into_iter();
    let interaction_claim = claimed_sums(&claim, || sums.next().unwrap_or_default());
    clock.lap("interaction traces")?;

    interaction_claim.mix_into(channel);
    let mut builder = scheme.tree_builder();
    builder.extend_evals(made);
    builder.commit(channel);
    clock.lap("interaction tree")?;

    let components = CairoComponents::new(&claim, &elements, &interaction_claim, &ids);
    let extended_stark_proof =
        prove_ex(&provers(&components), channel, scheme, include_all_preprocessed_columns)?;
    clock.lap("composition, samples, FRI, openings")?;
    let proof = CairoProof {
        claim,
        interaction_pow,
        interaction_claim,
        extended_stark_proof,
        channel_salt,
        preprocessed_trace_variant: preprocessed,
    };
    Ok(Proved { proof, times: clock.times, log_domain })
}

/// Makes the interaction traces of components, one after the other.
struct Interactions<'a> {
    preprocessed: &'a [Column],
    trace: &'a [Column],
    made: Vec<Column>,
    sums: Vec<SecureField>,
}

impl Visit for Interactions<'_> {
    fn component<E: FrameworkEval + Sync>(&mut self, component: &FrameworkComponent<E>) {
        let eval: &E = component;
        let used = component.preprocessed_column_indices();
        let preprocessed: Vec<&Column> = used.iter().map(|&at| &self.preprocessed[at]).collect();
        let own = component.trace_locations().iter().find(|place| place.tree_index == ORIGINAL_TRACE_IDX);
        let own = own.map_or(&[][..], |place| &self.trace[place.col_start..place.col_end]);
        let (columns, sum) = interaction_trace(eval, &preprocessed, &own.iter().collect::<Vec<_>>());
        self.made.extend(columns);
        self.sums.push(sum);
    }
}

const _: () = assert!(PREPROCESSED_TRACE_IDX == 0 && ORIGINAL_TRACE_IDX == 1);
