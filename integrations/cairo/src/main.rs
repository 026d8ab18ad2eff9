//! `gatework-cairo`: prove, verify and time runs of Cairo programs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairo_air::CairoProof;
use cairo_air::utils::{ProofFormat, deserialize_proof_from_file, serialize_proof_to_file};
use clap::{Args, Parser, Subcommand, ValueEnum};
use gatework_cairo::{Error, Parameters, Result, input, prove, verify};
use gatework_gpu::Device;
use gatework_stark::{Context, CudaBackend, DeviceChannel, DeviceColumn, Digest, Tier};
use serde_json::{Value, json};
use stwo::core::channel::MerkleChannel;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::utils::MaybeOwned;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sM31MerkleChannel, Blake2sMerkleChannel};
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::core::vcs_lifted::poseidon252_merkle::Poseidon252MerkleChannel;
use stwo::prover::CommitmentTreeProver;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::{BackendForChannel, ColumnOps};
use stwo::prover::mempool::BaseColumnPool;
use stwo::prover::poly::circle::PolyOps as _;
use stwo_cairo_adapter::ProverInput;
use stwo_cairo_common::preprocessed_columns::preprocessed_trace::PreProcessedTraceVariant;
use stwo_cairo_prover::prover::{ChannelHash, ProverParameters, prove_cairo_with_precompute};
use stwo_cairo_prover::witness::preprocessed_trace::gen_trace;
use stwo_cairo_serialize::{CairoDeserialize, CairoSerialize};

/// Prove runs of Cairo programs on a GPU; the proofs are stwo-cairo's, byte for byte.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:
  gatework-cairo prove --program loop.json --out proof.json
  gatework-cairo prove input.json --device cuda --preprocessed canonical-small --out proof.json
  gatework-cairo verify proof.json
  gatework-cairo bench --program loop.json --device cuda --repeats 5 --json"
)]
struct Command {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Prove a run and write the proof.
    Prove {
        #[command(flatten)]
        run: Run,
        /// Where the proof goes, as JSON for stwo-cairo's verifier.
        #[arg(long)]
        out: PathBuf,
    },
    /// Verify a proof with cairo-air's verifier.
    Verify {
        /// A proof of `prove`.
        proof: PathBuf,
        /// The channel that it was made with.
        #[arg(long, value_enum, default_value_t)]
        channel: ChannelName,
    },
    /// Time a proof beside stwo's prover on the CPU, and compare the bytes.
    Bench {
        #[command(flatten)]
        run: Run,
        /// Proofs on the device that are timed, after the first, which compiles kernels.
        #[arg(long, default_value_t = 3)]
        repeats: usize,
        /// Proofs on the CPU; 0 leaves the comparison out.
        #[arg(long, default_value_t = 1)]
        simd_repeats: usize,
        /// One line of JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct Run {
    /// A run as stwo-cairo's adapter gives it (`ProverInput` as JSON).
    #[arg(required_unless_present = "program", conflicts_with = "program")]
    input: Option<PathBuf>,
    /// A compiled Cairo 0 program, which is run first.
    #[arg(long)]
    program: Option<PathBuf>,
    /// cuda, cuda:1, emulated or auto.
    #[arg(long, env = "GATEWORK_DEVICE", default_value = "auto")]
    device: String,
    /// The transcript's hash.
    #[arg(long, value_enum, default_value_t)]
    channel: ChannelName,
    /// Preprocessed columns: all, without Pedersen's tables, or those of at most 2^20 rows.
    #[arg(long, value_enum, default_value_t = Preprocessed::Canonical)]
    preprocessed: Preprocessed,
    /// Queries of FRI. 70 with 26 bits of work are stwo-cairo's 96 bits of security.
    #[arg(long, default_value_t = 70)]
    queries: usize,
    /// Bits of the final proof of work.
    #[arg(long, default_value_t = 26)]
    pow_bits: u32,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum ChannelName {
    #[default]
    Blake2s,
    Blake2sM31,
    Poseidon252,
}

#[derive(Clone, Copy, ValueEnum)]
enum Preprocessed {
    Canonical,
    CanonicalWithoutPedersen,
    CanonicalSmall,
}

impl Run {
    fn input(&self) -> Result<ProverInput> {
        match (&self.program, &self.input) {
            (Some(program), _) => input::from_program(program),
            (None, Some(path)) => input::from_json(path),
            (None, None) => Err(Error::Run("neither an input nor a program was given".into())),
        }
    }

    fn parameters(&self) -> Parameters {
        let preprocessed = match self.preprocessed {
            Preprocessed::Canonical => PreProcessedTraceVariant::Canonical,
            Preprocessed::CanonicalWithoutPedersen => PreProcessedTraceVariant::CanonicalWithoutPedersen,
            Preprocessed::CanonicalSmall => PreProcessedTraceVariant::CanonicalSmall,
        };
        let fri_config = FriConfig {
            log_last_layer_degree_bound: 0,
            log_blowup_factor: 1,
            n_queries: self.queries,
            fold_step: 1,
        };
        let config = PcsConfig { pow_bits: self.pow_bits, fri_config, lifting_log_size: None };
        Parameters { channel_salt: 0, config, preprocessed, include_all_preprocessed_columns: false }
    }
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command.job {
        Job::Prove { run, out } => match run.channel {
            ChannelName::Blake2s => write_proof::<Blake2sMerkleChannel>(&run, &out),
            ChannelName::Blake2sM31 => write_proof::<Blake2sM31MerkleChannel>(&run, &out),
            ChannelName::Poseidon252 => write_proof::<Poseidon252MerkleChannel>(&run, &out),
        },
        Job::Verify { proof, channel } => match channel {
            ChannelName::Blake2s => verify_file::<Blake2sMerkleChannel>(&proof),
            ChannelName::Blake2sM31 => verify_file::<Blake2sM31MerkleChannel>(&proof),
            ChannelName::Poseidon252 => verify_file::<Poseidon252MerkleChannel>(&proof),
        },
        Job::Bench { run, repeats, simd_repeats, json } => match run.channel {
            ChannelName::Blake2s => bench::<Blake2sMerkleChannel>(&run, repeats, simd_repeats, json),
            ChannelName::Blake2sM31 => bench::<Blake2sM31MerkleChannel>(&run, repeats, simd_repeats, json),
            ChannelName::Poseidon252 => bench::<Poseidon252MerkleChannel>(&run, repeats, simd_repeats, json),
        },
    }
}

/// A context that interprets constraints until kernels for them are compiled: there are some sixty sets.
fn context_on(device: &Device) -> Result<Context> {
    let context = Context::new(device)?;
    context.set_tier(Tier::Adaptive);
    Ok(context)
}

fn write_proof<MC: DeviceChannel>(run: &Run, out: &Path) -> Result<()>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
    MC::H: MerkleHasherLifted<Hash: CairoSerialize> + serde::Serialize,
{
    let device = Device::open(&run.device)?;
    let input = run.input()?;
    eprintln!("{} steps on {}", input::steps(&input), device.properties().name);
    let proved = prove::<MC>(&context_on(&device)?, input, &run.parameters())?;
    let file = |reason| Error::File { path: out.into(), reason };
    serialize_proof_to_file(&proved.proof, out, ProofFormat::Json).map_err(file)?;
    for (stage, time) in &proved.times {
        eprintln!("{:>10.1} ms  {stage}", milliseconds(*time));
    }
    println!("{}", out.display());
    Ok(())
}

fn verify_file<MC: DeviceChannel>(path: &Path) -> Result<()>
where
    MC::H: MerkleHasherLifted<Hash: CairoDeserialize> + serde::de::DeserializeOwned,
{
    std::fs::metadata(path).map_err(|reason| Error::File { path: path.into(), reason })?;
    let proof = deserialize_proof_from_file::<MC::H>(path, ProofFormat::Json).map_err(|reason| {
        Error::Format { path: path.into(), what: "proof of a Cairo program", reason: reason.to_string() }
    })?;
    verify::<MC>(proof, false)?;
    println!("valid");
    Ok(())
}

fn bench<MC: DeviceChannel>(run: &Run, repeats: usize, simd_repeats: usize, as_json: bool) -> Result<()>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
    SimdBackend: BackendForChannel<MC>,
    MC::H: serde::Serialize,
{
    let device = Device::open(&run.device)?;
    let context = context_on(&device)?;
    let input = run.input()?;
    let (steps, parameters) = (input::steps(&input), run.parameters());
    let timed = |input| -> Result<_> {
        let start = Instant::now();
        let proved = prove::<MC>(&context, input, &parameters)?;
        Ok((start.elapsed(), proved))
    };
    let (first, mut proved) = timed(input.clone())?;
    let of_stages = |times: &[(&str, Duration)]| -> Vec<Value> {
        times.iter().map(|(name, time)| json!([name, milliseconds(*time)])).collect()
    };
    let first_stages = of_stages(&proved.times);
    context.wait_for_kernels();
    let mut times = Vec::new();
    for _ in 0..repeats {
        let (time, again) = timed(input.clone())?;
        times.push(time);
        proved = again;
    }
    let mut simd = None::<(Duration, Value)>;
    for _ in 0..simd_repeats {
        let (time, proof) = on_cpu::<MC>(input.clone(), &parameters, proved.log_domain)?;
        let time = time.min(simd.map_or(Duration::MAX, |(time, _)| time));
        simd = Some((time, document(&proof)?));
    }
    let ours = document(&proved.proof)?;
    let proof_bytes = ours.to_string().len();
    let differing = simd.as_ref().map(|(_, theirs)| first_difference(theirs, &ours, String::new()));
    let same = differing.as_ref().map(Option::is_none);
    verify::<MC>(proved.proof.into(), parameters.include_all_preprocessed_columns)?;
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or(first);
    let stages = of_stages(&proved.times);
    let report = json!({
        "device": device.properties().name,
        "steps": steps,
        "first_ms": milliseconds(first),
        "median_ms": milliseconds(median),
        "repeats": times.len(),
        "simd_ms": simd.as_ref().map(|(time, _)| milliseconds(*time)),
        "stages": stages,
        "first_stages": first_stages,
        "proof_bytes": proof_bytes,
        "same_bytes": same,
        "verified": true,
    });
    if as_json {
        println!("{report}");
    } else {
        println!("{report:#}");
    }
    match same {
        Some(false) => Err(Error::Invalid(format!(
            "it is not what stwo's prover on the CPU gives, first at '{}'",
            differing.flatten().unwrap_or_default()
        ))),
        _ => Ok(()),
    }
}

/// stwo's prover on the CPU. Its `prove_cairo` computes twiddles for 2^30 points, whatever is proved: here it gets those that
/// it needs, outside of the time.
fn on_cpu<MC: MerkleChannel>(
    input: ProverInput,
    parameters: &Parameters,
    log_domain: u32,
) -> Result<(Duration, CairoProof<MC::H>)>
where
    SimdBackend: BackendForChannel<MC>,
{
    let &Parameters { channel_salt, config, preprocessed, include_all_preprocessed_columns } = parameters;
    let twiddles = SimdBackend::precompute_twiddles(CanonicCoset::new(log_domain).circle_domain().half_coset);
    let start = Instant::now();
    let columns = Arc::new(preprocessed.to_preprocessed_trace());
    let pool = BaseColumnPool::new();
    let tree = CommitmentTreeProver::<SimdBackend, MC>::new(
        SimdBackend::interpolate_columns(gen_trace(columns.clone()), &twiddles),
        config.fri_config.log_blowup_factor,
        &twiddles,
        false,
        config.lifting_log_size,
        &pool,
    );
    let parameters = ProverParameters {
        channel_hash: ChannelHash::Blake2s,
        channel_salt,
        pcs_config: config,
        preprocessed_trace: preprocessed,
        store_polynomials_coefficients: false,
        include_all_preprocessed_columns,
    };
    let tree = MaybeOwned::Owned(tree);
    let proof = prove_cairo_with_precompute::<MC>(&pool, &twiddles, columns, tree, input, parameters);
    let proof = proof.map_err(|reason| Error::Simd(reason.to_string()))?;
    Ok((start.elapsed(), proof))
}

/// A proof with its auxiliary data, as JSON with its keys in order: auxiliary data is in hash maps.
fn document<H: MerkleHasherLifted + serde::Serialize>(proof: &CairoProof<H>) -> Result<Value> {
    serde_json::to_value(proof).map_err(|reason| Error::Invalid(reason.to_string()))
}

/// Where two documents first differ.
fn first_difference(one: &Value, other: &Value, path: String) -> Option<String> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) if one.len() == other.len() => {
            one.iter().find_map(|(key, value)| match other.get(key) {
                Some(other) => first_difference(value, other, format!("{path}/{key}")),
                None => Some(format!("{path}/{key}")),
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (one, other))| first_difference(one, other, format!("{path}/{at}")))
        }
        _ => (one != other).then_some(path),
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
