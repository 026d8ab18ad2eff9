//! `gatework lab`.

mod bench;
mod check;
mod compare;
mod gate;
mod list;
mod picture;
mod profile;
mod records;
mod report;
mod table;
mod tune;

use clap::Parser;
use gatework_gpu::{DeviceChoice, Presence, Target};
use gatework_lab::{Workload, runtime};

use crate::command::ending::{Ending, Failure};
use crate::command::machine::{Job, Machine, several};
use crate::command::noun::{Noun, Stop};
use crate::command::shell::{DeviceUse, Shell};

/// Gate kernels and read the records
#[derive(Debug, Parser)]
#[command(name = "lab")]
pub(crate) enum Lab {
    /// List the workloads
    #[command(after_help = "Examples:\n  gatework lab list\n  gatework lab list --json")]
    List,
    /// Send workloads through the gates: compile, resources, correctness
    #[command(after_help = gate::EXAMPLES)]
    Gate(gate::GateOptions),
    /// Time workloads against their baselines, after they have passed the other gates
    #[command(after_help = bench::EXAMPLES)]
    Bench(bench::BenchOptions),
    /// Search for the fastest correct configuration of a workload
    #[command(after_help = tune::EXAMPLES)]
    Tune(tune::TuneOptions),
    /// Profile one launch of a workload with Nsight Compute
    #[command(
        after_help = "Examples:\n  gatework lab profile gpu/fp8-tile\n  gatework lab profile gpu/transpose --json"
    )]
    Profile(profile::ProfileOptions),
    /// Compare the benchmarks of two files or folders of records
    #[command(after_help = compare::EXAMPLES)]
    Compare(compare::CompareOptions),
    /// Draw all records in one HTML file
    #[command(
        after_help = "Examples:\n  gatework lab report\n  gatework lab report --results my/results --out mine.html"
    )]
    Report(report::ReportOptions),
    /// Draw how many times as fast as their peers the engines are, as one SVG file
    #[command(after_help = picture::EXAMPLES)]
    Picture(picture::PictureOptions),
    /// Fill in the tables of Markdown documents from records
    #[command(after_help = table::EXAMPLES)]
    Table(table::TableOptions),
    /// Show the records of earlier gatings
    #[command(
        after_help = "Examples:\n  gatework lab records\n  gatework lab records --results my/results --json\n  gatework lab records --check"
    )]
    Records(records::RecordsOptions),
}

impl Noun for Lab {
    const AREA: &'static str = "gpu";
    const PURPOSE: &'static str = "check CUDA kernels without a GPU: races, deadlocks, stray accesses and wrong results stop at their line";
    const FIRST_COMMAND: &'static str = "gatework lab gate gpu/saxpy --device emulated --no-record";

    fn workloads() -> Vec<Box<dyn Workload>> {
        runtime::workloads()
    }

    fn device_use(&self) -> DeviceUse {
        match self {
            Self::Gate(_) | Self::Bench(_) | Self::Tune(_) | Self::Profile(_) => DeviceUse::RunsThere,
            Self::List
            | Self::Compare(_)
            | Self::Picture(_)
            | Self::Report(_)
            | Self::Table(_)
            | Self::Records(_) => DeviceUse::None,
        }
    }

    fn run(self, shell: &Shell) -> Result<Ending, Failure> {
        match self {
            Self::List => list::run(shell),
            Self::Gate(options) => gate::run(&options, shell),
            Self::Bench(options) => bench::run(&options, shell),
            Self::Tune(options) => tune::run(&options, shell),
            Self::Profile(options) => profile::run(&options, shell),
            Self::Compare(options) => compare::run(&options, shell),
            Self::Picture(options) => picture::run(&options, shell),
            Self::Report(options) => report::run(&options, shell),
            Self::Table(options) => table::run(&options, shell),
            Self::Records(options) if options.check => check::run(&options, shell),
            Self::Records(options) => records::run(&options, shell),
        }
    }

    fn jobs(machine: &Machine) -> Vec<Job> {
        let emulated =
            machine.with(&["C++ compiler"], "on the CPU, with --device emulated; for correctness, not speed");
        let resources = ["NVRTC", "cuobjdump", "nvdisasm"];
        vec![
            Job { name: "lab", presence: gates(machine) },
            Job { name: "kernels on a GPU", presence: machine.cuda(0) },
            Job { name: "kernels emulated", presence: emulated },
            Job { name: "compile gate for GPUs", presence: machine.with(&["NVRTC"], "needs no GPU") },
            Job {
                name: "resource gate",
                presence: machine.with(&resources, "for sm_90a where there is no GPU to ask"),
            },
        ]
    }

    /// Its workloads are all there is to visit.
    fn stops(_: &Target) -> Vec<Stop<'_>> {
        Vec::new()
    }
}

/// Where `lab gate` would run kernels.
fn gates(machine: &Machine) -> Presence {
    match machine.choice {
        DeviceChoice::Cpu => Presence::Missing {
            reason: "kernels do not run on the CPU: only the compile and resource gates would run".into(),
        },
        DeviceChoice::Auto if machine.devices.is_empty() => Presence::Missing {
            reason: "there is no GPU; to check kernels without one, use --device emulated".into(),
        },
        DeviceChoice::Auto => machine.cuda(0),
        DeviceChoice::Cuda(ordinal) => machine.cuda(ordinal),
        DeviceChoice::Emulated => {
            machine.with(&["C++ compiler"], "on the emulated device; nothing is timed or profiled there")
        }
        DeviceChoice::Several(set) => several(&set),
    }
}
