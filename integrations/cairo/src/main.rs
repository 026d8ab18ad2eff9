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
        /// Fewest bits of security that are accepted.
        #[arg(long, default_value_t = 96)]
        security: u32,
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
    #[arg(long, default_value_t = 70, value_parser = clap::value_parser!(u16).range(1..))]
    queries: u16,
    /// Bits of the final proof of work.
    #[arg(long, default_value_t = 26, value_parser = clap::value_parser!(u32).range(..=32))]
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
            n_queries: self.queries.into(),
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
        Job::Verify { proof, channel, security } => match channel {
            ChannelName::Blake2s => verify_file::<Blake2sMerkleChannel>(&proof, security),
            ChannelName::Blake2sM31 => verify_file::<Blake2sM31MerkleChannel>(&proof, security),
            ChannelName::Poseidon252 => verify_file::<Poseidon252MerkleChannel>(&proof, security),
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
    let file = |reason| Error::File { path: out.into(), reason };
    // Now, and not after the proof, whether it can be written.
    std::fs::File::create(out).map_err(file)?;
    let device = Device::open(&run.device)?;
    let input = run.input()?;
    eprintln!("{} steps on {}", input::steps(&input), device.properties().name);
    let proved = prove::<MC>(&context_on(&device)?, input, &run.parameters())?;
    serialize_proof_to_file(&proved.proof, out, ProofFormat::Json).map_err(file)?;
    for (stage, time) in &proved.times {
        eprintln!("{:>10.1} ms  {stage}", milliseconds(*time));
    }
    println!("{}", out.display());
    Ok(())
}

fn verify_file<MC: DeviceChannel>(path: &Path, security: u32) -> Result<()>
where
    SimdBackend: BackendForChannel<MC>,
    MC::H: MerkleHasherLifted<Hash: CairoDeserialize> + serde::de::DeserializeOwned,
{
    std::fs::metadata(path).map_err(|reason| Error::File { path: path.into(), reason })?;
    let proof = deserialize_proof_from_file::<MC::H>(path, ProofFormat::Json).map_err(|reason| {
        Error::Format { path: path.into(), what: "proof of a Cairo program", reason: reason.to_string() }
    })?;
    let verified = verify::<MC>(proof, false, security)?;
    println!("valid");
    println!("program {:#x}", verified.program_hash);
    println!("output {:?}", verified.output.iter().map(|word| format!("{word:#x}")).collect::<Vec<_>>());
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
    let (first, first_proved) = timed(input.clone())?;
    context.wait_for_kernels();
    let mut rounds = Vec::new();
    for _ in 0..repeats {
        rounds.push(timed(input.clone())?);
    }
    let ours = document(&first_proved.proof)?;
    let mut differing = None;
    for (_, proved) in &rounds {
        differing = differing.or(first_difference(&ours, &document(&proved.proof)?, String::new()));
    }
    let mut simd = None::<Duration>;
    for _ in 0..simd_repeats {
        let (time, proof) = on_cpu::<MC>(input.clone(), &parameters, first_proved.log_domain)?;
        simd = Some(time.min(simd.unwrap_or(Duration::MAX)));
        differing = differing.or(first_difference(&document(&proof)?, &ours, String::new()));
    }
    let security = parameters.config.security_bits();
    verify::<MC>(first_proved.proof.into(), parameters.include_all_preprocessed_columns, security)?;
    let times: Vec<Duration> = rounds.iter().map(|(time, _)| *time).collect();
    let stage = |(at, (name, _)): (usize, &(&'static str, Duration))| {
        let times: Vec<Duration> = rounds.iter().map(|(_, proved)| proved.times[at].1).collect();
        json!([name, median(&times).map(milliseconds)])
    };
    let in_first = |(name, time): &(&'static str, Duration)| json!([name, milliseconds(*time)]);
    let report = json!({
        "device": device.properties().name,
        "steps": steps,
        "first_ms": milliseconds(first),
        "median_ms": median(&times).map(milliseconds),
        "repeats": repeats,
        "simd_ms": simd.map(milliseconds),
        "stages": first_proved.times.iter().enumerate().map(stage).collect::<Vec<_>>(),
        "first_stages": first_proved.times.iter().map(in_first).collect::<Vec<_>>(),
        "proof_bytes": ours.to_string().len(),
        "same_bytes": differing.is_none(),
        "verified": true,
    });
    if as_json {
        println!("{report}");
    } else {
        println!("{report:#}");
    }
    match differing {
        Some(place) => Err(Error::Invalid(format!(
            "proofs of one run differ, on the device or from stwo's on the CPU, at '{place}'"
        ))),
        None => Ok(()),
    }
}

/// The median; of two, their mean.
fn median(times: &[Duration]) -> Option<Duration> {
    let mut times = times.to_vec();
    times.sort_unstable();
    let upper = *times.get(times.len() / 2)?;
    let lower = *times.get((times.len() - 1) / 2)?;
    Some((lower + upper) / 2)
}

/// stwo's prover on the CPU. Its `prove_cairo` computes twiddles for 2^30 points, whatever is proved: here it
/// gets those that it needs, outside of the time.
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
