//! stwo's protocol with reads in batches.
//!
//! `stwo::prover::prove` reads what was committed to one element at a time, and samples one column at a time.
//! On a device every such read waits for it. Here columns are sampled together and openings are read
//! together; the proof is the same, byte for byte.

mod auxiliary;
mod fri;
mod layer;
mod logging;
mod openings;
mod samples;
mod tail;
mod transcript;

use stwo::core::channel::{Channel as _, MerkleChannel};
use stwo::core::circle::CirclePoint;
use stwo::core::fields::qm31::{SECURE_EXTENSION_DEGREE, SecureField};
use stwo::core::pcs::TreeVec;
use stwo::core::pcs::quotients::{CommitmentSchemeProof, CommitmentSchemeProofAux};
use stwo::core::pcs::utils::get_lifting_log_size;
use stwo::core::proof::{ExtendedStarkProof, StarkProof};
use stwo::core::proof_of_work::GrindOps;
use stwo::core::verifier::PREPROCESSED_TRACE_IDX;
use stwo::prover::backend::{BackendForChannel, Column as _, ColumnOps};
use stwo::prover::pcs::quotient_ops::compute_fri_quotients;
use stwo::prover::{CommitmentSchemeProver, ComponentProver, ComponentProvers};

pub use self::transcript::{DeviceChannel, Digest};

use self::fri::Layers;
use self::openings::Openings;
use crate::backend::CudaBackend;
use crate::column::DeviceColumn;
use crate::error::catch;
use crate::limits::Limits;
use crate::plan::Reads;
use crate::queue::Queue;
use crate::stages::Stage;
use crate::{Error, Plan, Result};

/// Proves that the trace that `scheme` has committed to satisfies the constraints of `components`, as
/// `stwo::prover::prove` does, and with the same bytes.
///
/// Called inside [`Context::scope`](crate::Context::scope), where the columns were made.
pub fn prove<MC: DeviceChannel>(
    components: &[&dyn ComponentProver<CudaBackend>],
    channel: &mut MC::C,
    scheme: CommitmentSchemeProver<'_, CudaBackend, MC>,
) -> Result<StarkProof<MC::H>>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    Ok(catch(|| prove_or_raise(components, channel, scheme, Preprocessed::Used, Detail::Proof))??.0)
}

/// As [`prove`], with the auxiliary data of `stwo::prover::prove_ex`: what the verifier reads or computes on
/// the way to the roots, for a verifier that is itself proved. With `include_all_preprocessed_columns` those
/// are sampled too that no component uses; stwo's `verify_ex` is told the same.
pub fn prove_ex<MC: DeviceChannel>(
    components: &[&dyn ComponentProver<CudaBackend>],
    channel: &mut MC::C,
    scheme: CommitmentSchemeProver<'_, CudaBackend, MC>,
    include_all_preprocessed_columns: bool,
) -> Result<ExtendedStarkProof<MC::H>>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    let sampled = if include_all_preprocessed_columns { Preprocessed::All } else { Preprocessed::Used };
    match catch(|| prove_or_raise(components, channel, scheme, sampled, Detail::Auxiliary))?? {
        (proof, Some(aux)) => Ok(ExtendedStarkProof { proof, aux }),
        (_, None) => unreachable!("auxiliary data was asked for"),
    }
}

/// Which preprocessed columns are sampled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preprocessed {
    /// Those that components use.
    Used,
    All,
}

/// What is read of what was committed to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Proof,
    /// The proof, and what its verifier would compute.
    Auxiliary,
}

/// A proof, and where it was asked for the data beside it.
type Extended<H> = (StarkProof<H>, Option<CommitmentSchemeProofAux<H>>);

fn prove_or_raise<MC: DeviceChannel>(
    components: &[&dyn ComponentProver<CudaBackend>],
    channel: &mut MC::C,
    mut scheme: CommitmentSchemeProver<'_, CudaBackend, MC>,
    sampled: Preprocessed,
    detail: Detail,
) -> Result<Extended<MC::H>>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    let queue = Queue::current();
    if scheme.trees.is_empty() {
        let what = "a proof without commitments: commit to the preprocessed columns first, also where there are none";
        return Err(Error::Unsupported { what: what.into() });
    }
    let provers = ComponentProvers {
        components: components.to_vec(),
        n_preprocessed_columns: scheme.trees[PREPROCESSED_TRACE_IDX].polynomials.len(),
    };
    let config = scheme.config;
    let log_blowup = config.fri_config.log_blowup_factor;
    let limits = Limits::of(&provers.components().components, &scheme);
    limits.check()?;
    if sampled == Preprocessed::All {
        limits.check_sampling_all()?;
    }
    require_room(&queue, &provers.components, &scheme)?;

    let random_coefficient = channel.draw_secure_felt();
    let trace = scheme.trace();
    let composition =
        provers.compute_composition_polynomial(random_coefficient, &trace, scheme.twiddles, log_blowup);
    {
        let _stage = queue.stage(Stage::Composition);
        let (left, right) = composition.split_at_mid();
        let mut builder = scheme.tree_builder();
        builder.extend_polys(left.into_coordinate_polys());
        builder.extend_polys(right.into_coordinate_polys());
        builder.commit(channel);
    }

    let point = CirclePoint::<SecureField>::get_random_point(channel);
    let lifting_log_size = log_leaves(&scheme, scheme.trees.len() - 1);
    let log_degree = get_lifting_log_size(&config, lifting_log_size) - log_blowup;
    let mut points = provers.components().mask_points(point, log_degree, sampled == Preprocessed::All);
    points.push(vec![vec![point]; 2 * SECURE_EXTENSION_DEGREE]);
    let samples = {
        let _stage = queue.stage(Stage::Samples);
        samples::at_points(&queue, &scheme, &points, lifting_log_size)
    };
    let sampled_values = samples
        .as_cols_ref()
        .map_cols(|samples| samples.iter().map(|sample| sample.value).collect::<Vec<_>>());
    // Whether the constraints hold is known now, and looked at while the device folds.
    let check = || {
        let expected = provers.components().eval_composition_polynomial_at_point(
            point,
            &sampled_values,
            random_coefficient,
            log_degree,
        );
        let holds = samples::composition(&sampled_values, point, log_degree) == expected;
        if holds { Ok(()) } else { Err(Error::ConstraintsNotSatisfied) }
    };
    channel.mix_felts(&sampled_values.clone().flatten_cols());

    let quotient_coefficient = channel.draw_secure_felt();
    let quotients = {
        let _stage = queue.stage(Stage::Quotients);
        let columns = scheme.evaluations();
        let twiddles = scheme.twiddles;
        compute_fri_quotients(
            &columns,
            &samples,
            quotient_coefficient,
            lifting_log_size,
            twiddles,
            log_blowup,
        )
    };
    let layers = {
        let _stage = queue.stage(Stage::Fri);
        Layers::<MC>::commit(channel, config.fri_config, &quotients, scheme.twiddles, check)?
    };
    let proof_of_work = {
        let _stage = queue.stage(Stage::Grind);
        CudaBackend::grind(channel, config.pow_bits)
    };
    channel.mix_u64(proof_of_work);

    let _stage = queue.stage(Stage::Openings);
    let mut openings = Openings::new();
    let drawn = layers.draw(channel);
    let queries = layers.queries(&drawn);
    let pending_fri = layers.open(&quotients.values, &queries, &mut openings);
    let pending_trees = openings::open_trees(&scheme, &queries.positions, lifting_log_size, &mut openings);
    let pending_aux = (detail == Detail::Auxiliary)
        .then(|| auxiliary::Pending::open(&scheme, &layers, &quotients.values, drawn, &mut openings));
    let read = openings.read(&queue);
    let (queried_values, decommitments) = pending_trees.finish(&read);
    let proof = StarkProof(CommitmentSchemeProof {
        config,
        commitments: TreeVec(pending_trees.roots(&read)),
        sampled_values,
        decommitments: TreeVec(decommitments),
        queried_values: TreeVec(queried_values),
        proof_of_work,
        fri_proof: pending_fri.finish(&read),
    });
    Ok((proof, pending_aux.map(|aux| aux.finish(&read))))
}

/// Refuses what will not fit, before anything is done for it.
fn require_room<MC: MerkleChannel>(
    queue: &Queue,
    components: &[&dyn ComponentProver<CudaBackend>],
    scheme: &CommitmentSchemeProver<'_, CudaBackend, MC>,
) -> Result<()>
where
    CudaBackend: BackendForChannel<MC>,
{
    let log_blowup = scheme.config.fri_config.log_blowup_factor;
    let trees = scheme.polynomials().map_cols(|polynomial| polynomial.evals.domain.log_size() - log_blowup);
    let reads = components.iter().map(|&component| Reads::of_component(component)).collect();
    // Programs that are there already are none to be asked for.
    let (plan, device) = (Plan::new(scheme.config, trees.0).reading(reads, 0), queue.stream().device());
    let polynomials = scheme.polynomials();
    match polynomials.iter().flatten().find_map(|polynomial| polynomial.evals.values.streaming()) {
        None => plan.check_proving(device),
        Some(streaming) => plan.check_proving_streamed(device, streaming),
    }
}

/// The logarithm of the number of leaves of a tree.
fn log_leaves<MC: MerkleChannel>(scheme: &CommitmentSchemeProver<'_, CudaBackend, MC>, tree: usize) -> u32
where
    CudaBackend: BackendForChannel<MC>,
{
    scheme.trees[tree].commitment.layers.last().map_or(0, |leaves| leaves.len().ilog2())
}
