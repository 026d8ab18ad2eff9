//! What can be typed.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::command::device::DeviceChoice;

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
    /// Gate kernels and read the records
    #[command(subcommand)]
    Lab(LabCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// List the workloads
    #[command(after_help = "Examples:\n  gatework lab list\n  gatework lab list --json")]
    List,
    /// Send workloads through the gates: compile, resources, correctness
    #[command(after_help = GATE_EXAMPLES)]
    Gate(GateOptions),
    /// Show the records of earlier gatings
    #[command(
        after_help = "Examples:\n  gatework lab records\n  gatework lab records --results my/results --json"
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
    /// Workloads by name ('gatework lab list' shows them)
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
    /// Write no record
    #[arg(long)]
    pub(crate) no_record: bool,
}

/// Which records to show.
#[derive(Debug, Args)]
pub(crate) struct RecordsOptions {
    /// The folder to read, or one file of it
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
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
