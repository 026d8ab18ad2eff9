//! What can be typed after `gatework stark`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

#[derive(Debug, Subcommand)]
pub(crate) enum StarkCommand {
    /// Prove a statement and write the proof to a file
    #[command(after_help = PROVE_EXAMPLES)]
    Prove(ProveOptions),
    /// Verify a proof with stwo's own verifier
    #[command(
        after_help = "Examples:\n  gatework stark verify proof.json\n\nThe exit code is 1 if the proof does not hold."
    )]
    Verify(VerifyOptions),
    /// Time proofs on a device beside stwo's SimdBackend, and compare them byte for byte
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchOptions),
}

const PROVE_EXAMPLES: &str = "\
Examples:
  gatework stark prove --air wide-fibonacci --log-rows 16 --columns 100 --out proof.json
  gatework stark prove --air poseidon2 --log-rows 10 --security 96 --out proof.json --device cuda

Without a GPU, proofs are made by stwo's SimdBackend; they are the same.";

const BENCH_EXAMPLES: &str = "\
Examples:
  gatework stark bench --log-rows 14,16,18,20 --device cuda
  gatework stark bench --log-rows 20 --security 96 --repeats 500 --json
  gatework stark bench --air poseidon2 --log-rows 12 --tier interpreted

Timed is everything from a trace where the backend has it to the proof in host memory: interpolation, extension,
commitments, constraints, FRI, proof of work, openings. The exit code is 1 if a proof differs from SimdBackend's.";

/// The AIRs that the command knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AirChoice {
    /// Rows of Fibonacci sequences of squares
    WideFibonacci,
    /// A circuit of additions and multiplications with LogUp wires
    Plonk,
    /// A machine with two counters, a component each
    StateMachine,
    /// Poseidon2 permutations, eight a row
    Poseidon2,
}

impl AirChoice {
    /// As it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WideFibonacci => "wide-fibonacci",
            Self::Plonk => "plonk",
            Self::StateMachine => "state-machine",
            Self::Poseidon2 => "poseidon2",
        }
    }
}

/// How hard it is to prove something false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Security {
    /// stwo's default, for tests: 3 queries, 10 bits of work
    #[serde(rename = "default")]
    Default,
    /// 70 queries, 26 bits of work
    #[serde(rename = "96")]
    #[value(name = "96")]
    Bits96,
}

/// How constraints are evaluated on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TierChoice {
    /// Generated on CUDA, interpreted on the emulated device
    Auto,
    /// By one kernel for every AIR
    Interpreted,
    /// By kernels compiled for the AIR
    Generated,
    /// By the one kernel until those for the AIR are compiled
    Adaptive,
}

#[derive(Debug, Args)]
pub(crate) struct StatementOptions {
    /// What to prove
    #[arg(long, value_enum, default_value = "wide-fibonacci", value_name = "AIR")]
    pub(crate) air: AirChoice,
    /// Columns of wide-fibonacci, 100 if not given; the other AIRs have as many as they have
    #[arg(long, value_name = "N")]
    pub(crate) columns: Option<NonZeroUsize>,
    /// With which security
    #[arg(long, value_enum, default_value = "default", value_name = "SECURITY")]
    pub(crate) security: Security,
}

#[derive(Debug, Args)]
pub(crate) struct ProveOptions {
    #[command(flatten)]
    pub(crate) statement: StatementOptions,
    /// The logarithm of the number of rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..=26))]
    pub(crate) log_rows: u32,
    /// The file to write the proof to
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyOptions {
    /// The file with the proof
    #[arg(value_name = "FILE")]
    pub(crate) proof: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    #[command(flatten)]
    pub(crate) statement: StatementOptions,
    /// Logarithms of numbers of rows
    #[arg(
        long, value_delimiter = ',', default_value = "14", value_name = "LIST",
        value_parser = clap::value_parser!(u32).range(4..=26)
    )]
    pub(crate) log_rows: Vec<u32>,
    /// Proofs on the device at each size, all of which must be equal
    #[arg(long, default_value = "10", value_name = "N")]
    pub(crate) repeats: NonZeroUsize,
    /// Proofs by SimdBackend at each size; the fastest counts
    #[arg(long, default_value = "3", value_name = "N")]
    pub(crate) simd_repeats: NonZeroUsize,
    /// How constraints are evaluated on the device
    #[arg(long, value_enum, default_value = "auto", value_name = "TIER")]
    pub(crate) tier: TierChoice,
}
