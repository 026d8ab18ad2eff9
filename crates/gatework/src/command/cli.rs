//! What can be typed.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use gatework_attention::Shape;

use crate::command::attention::shapes;
use crate::command::device::DeviceChoice;
use crate::command::private::options::PrivateCommand;
use crate::command::stark::cli::StarkCommand;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  a gate or a verification failed
  2  bad usage or bad input
  3  the device failed, or there is none";

/// GPU kernels that passed their gates, and the jobs that run on them.
#[derive(Debug, Parser)]
#[command(name = "gatework", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Where to run: auto, cpu, cuda, cuda:N or emulated
    #[arg(long, global = true, env = "GATEWORK_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub(crate) device: DeviceChoice,
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what this machine has, and what will run where
    #[command(after_help = "Examples:\n  gatework doctor\n  gatework doctor --json")]
    Doctor,
    /// Run one small checked job of everything there is
    #[command(after_help = "Examples:\n  gatework tour\n  gatework tour --device emulated")]
    Tour,
    /// Attend: softmax(q k^T) v in FP8 on a GPU, in f32 on the CPU
    #[command(subcommand)]
    Attention(AttentionCommand),
    /// Infer privately: two parties, keys from a dealer, numbers that neither sees
    #[command(subcommand)]
    Private(PrivateCommand),
    /// Prove: Circle STARKs with stwo's protocol, on a GPU or on the CPU
    #[command(subcommand)]
    Stark(StarkCommand),
    /// Gate kernels and read the records
    #[command(subcommand)]
    Lab(LabCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AttentionCommand {
    /// Attend over the tensors q, k and v of a safetensors file
    #[command(after_help = ATTENTION_EXAMPLES)]
    Run(AttentionRunOptions),
    /// Time attention at shapes of your own, beside PyTorch and cuDNN
    #[command(after_help = ATTENTION_BENCH_EXAMPLES)]
    Bench(AttentionBenchOptions),
}

const ATTENTION_EXAMPLES: &str = "\
Examples:
  gatework attention run --input qkv.safetensors --output o.safetensors
  gatework attention run --input qkv.safetensors --output o.safetensors --causal --device cuda

The file holds q, k and v, all F16, BF16 or F32, in [batch, heads, rows, dim]; the output holds o, in the same form.
Head dimensions 64 and 128; k and v may have fewer heads than q, and other rows.";

#[derive(Debug, Args)]
pub(crate) struct AttentionRunOptions {
    /// The file with q, k and v
    #[arg(long, value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// The file to write o to
    #[arg(long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Each row sees keys up to its own place; the last row sees the last key
    #[arg(long)]
    pub(crate) causal: bool,
    /// The tensors are [batch, rows, heads, dim]
    #[arg(long)]
    pub(crate) rows_first: bool,
}

const ATTENTION_BENCH_EXAMPLES: &str = "\
Examples:
  gatework attention bench --shapes 4x16x4096x64,1x64/8x4096x128
  gatework attention bench --mask causal --plot attention.svg
  gatework attention bench --device cpu --shapes 1x8x1024x64 --peers none --json
  gatework attention bench --from-records results/nvidia-h200.jsonl --plot attention.svg

A shape is BATCHxHEADSxROWSxDIM; HEADS/KEY_HEADS has fewer key heads, ROWS/KEYS other keys than rows.
On a GPU the kernels pass their gates first. Everybody is timed in turns, in one run; a peer that
the machine has not is not measured.";

/// Which masks are timed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum MaskChoice {
    /// Every row sees every key
    Full,
    /// Each row sees keys up to its own place
    Causal,
    /// One after the other
    Both,
}

/// Who else is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerChoice {
    /// PyTorch's scaled-dot-product attention
    Torch,
    /// cuDNN's FP8 attention
    Cudnn,
    /// Nobody
    None,
}

#[derive(Debug, Args)]
pub(crate) struct AttentionBenchOptions {
    /// What to time; a list of usual shapes for the device, if none is given
    #[arg(long, value_name = "SHAPES", value_delimiter = ',', value_parser = shapes::parse)]
    pub(crate) shapes: Vec<Shape>,
    /// With which mask
    #[arg(long, value_enum, default_value = "both", value_name = "MASK")]
    pub(crate) mask: MaskChoice,
    /// Who else to time in the same run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "torch,cudnn", value_name = "PEERS")]
    pub(crate) peers: Vec<PeerChoice>,
    /// Most pairs of samples a shape: sampling stops at 100 or more, once the ratio is certain; on a CPU, after three seconds
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = at_least_100)]
    pub(crate) samples: usize,
    /// Draw TFLOP/s over rows to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Append the records to this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    /// Time nothing: show the newest records of this file or folder
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shapes", "peers", "samples", "results"])]
    pub(crate) from_records: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// List the workloads
    #[command(after_help = "Examples:\n  gatework lab list\n  gatework lab list --json")]
    List,
    /// Send workloads through the gates: compile, resources, correctness
    #[command(after_help = GATE_EXAMPLES)]
    Gate(GateOptions),
    /// Time workloads against their baselines, once they passed the other gates
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchOptions),
    /// Search for the fastest configuration of a workload that is right
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(TuneOptions),
    /// Profile one launch of a workload with Nsight Compute
    #[command(
        after_help = "Examples:\n  gatework lab profile gpu/fp8-tile\n  gatework lab profile gpu/transpose --json"
    )]
    Profile(ProfileOptions),
    /// Compare the benchmarks of two files or folders of records
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareOptions),
    /// Draw records as one HTML file
    #[command(
        after_help = "Examples:\n  gatework lab report\n  gatework lab report --results my/results --out mine.html"
    )]
    Report(ReportOptions),
    /// Show the records of earlier gatings
    #[command(
        after_help = "Examples:\n  gatework lab records\n  gatework lab records --results my/results --json\n  gatework lab records --check"
    )]
    Records(RecordsOptions),
}

const GATE_EXAMPLES: &str = "\
Examples:
  gatework lab gate --all                                  on the first CUDA device
  gatework lab gate --all --device emulated                on a machine without one
  gatework lab gate gpu/saxpy gpu/reduce --seeds 10
  gatework lab gate gpu/reduce --first-seed 7 --seeds 1    one seed again
  gatework lab gate --all --device cpu --no-record         compilers alone: correctness is not run";

/// What to gate, and where the records go.
#[derive(Debug, Args)]
pub(crate) struct GateOptions {
    /// Workloads by name, or all that match a pattern as 'gpu/*' ('gatework lab list' shows them)
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) names: Vec<String>,
    /// Every workload
    #[arg(long)]
    pub(crate) all: bool,
    /// How many seeds each case is checked with
    #[arg(long, default_value = "3", value_name = "N")]
    pub(crate) seeds: NonZeroU64,
    /// The first of them
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(crate) first_seed: u64,
    /// The folder that records are appended to
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Time what passed, too: the performance gate
    #[arg(long)]
    pub(crate) performance: bool,
    /// Write no record
    #[arg(long)]
    pub(crate) no_record: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  gatework lab bench                             every workload that has a benchmark
  gatework lab bench gpu/saxpy --samples 1000
  gatework lab bench --no-peers --results my/results

The exit code is 1 if a workload is slower than it promises.";

/// What to time, and where the records go.
#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// Workloads by name; all that have a benchmark, if none is given
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Most pairs of samples a benchmark: sampling stops at 100 or more, once the verdict is certain
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = at_least_100)]
    pub(crate) samples: usize,
    /// Do not measure PyTorch, JAX and cuDNN beside
    #[arg(long)]
    pub(crate) no_peers: bool,
    /// The folder that records are appended to
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Write no record
    #[arg(long)]
    pub(crate) no_record: bool,
}

const TUNE_EXAMPLES: &str = "\
Examples:
  gatework lab tune gpu/transpose --seconds 60
  gatework lab tune gpu/transpose --exhaustive --out transpose.json
  gatework lab tune gpu/transpose --evaluations 200 --state transpose.state    again to go on

The winner is held against the default on shapes and seeds that the search never saw.";

/// What to tune, and when to stop.
#[derive(Debug, Args)]
pub(crate) struct TuneOptions {
    /// The workload by name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Stop after that many seconds
    #[arg(long, value_name = "N")]
    pub(crate) seconds: Option<NonZeroU64>,
    /// Stop after that many configurations, those of the state file included
    #[arg(long, value_name = "N")]
    pub(crate) evaluations: Option<usize>,
    /// Try every configuration instead of breeding from the best
    #[arg(long)]
    pub(crate) exhaustive: bool,
    /// The seed of the search
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(crate) seed: u64,
    /// Keep the search in this file, and go on from it if it is there
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<PathBuf>,
    /// Write the whole search and its elite to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The folder that the record is appended to
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Write no record
    #[arg(long)]
    pub(crate) no_record: bool,
}

/// What to profile, and where the record goes.
#[derive(Debug, Args)]
pub(crate) struct ProfileOptions {
    /// The workload by name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The benchmark's case; its first, if none is given
    #[arg(long, value_name = "CASE")]
    pub(crate) case: Option<String>,
    /// Launch it and nothing else: what the profiler runs
    #[arg(long, hide = true)]
    pub(crate) launch: bool,
    /// The folder that the record is appended to
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Write no record
    #[arg(long)]
    pub(crate) no_record: bool,
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  gatework lab compare before/ after/
  gatework lab compare results/nvidia-h200.jsonl new.jsonl --json

The exit code is 1 if anything became SLOWER. Records of different devices are compared by their ratios to the baseline.";

/// What to compare.
#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    /// The records of before: a file or a folder
    #[arg(value_name = "A")]
    pub(crate) first: PathBuf,
    /// The records of now: a file or a folder
    #[arg(value_name = "B")]
    pub(crate) second: PathBuf,
}

fn at_least_100(given: &str) -> Result<usize, String> {
    match given.parse() {
        Ok(samples) if samples >= 100 => Ok(samples),
        Ok(_) => Err("fewer than 100 samples do not carry a verdict: give 100 or more".to_owned()),
        Err(error) => Err(format!("{error}")),
    }
}

/// What to draw, and where.
#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    /// The folder to read, or one file of it
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// The file to write
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    pub(crate) out: PathBuf,
}

/// Which records to show.
#[derive(Debug, Args)]
pub(crate) struct RecordsOptions {
    /// The folder to read, or one file of it
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Find records that are stale, and figures in README.md, ARCHITECTURE.md and crates/*/README.md without a record
    #[arg(long)]
    pub(crate) check: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
