//! `gatework attention`.

mod bench;
mod demo;
mod figures;
mod run;
mod shapes;
mod stop;

#[cfg(feature = "fuzzing")]
pub(super) use run::attends;

use clap::Parser;
use gatework_attention::workloads;
use gatework_gpu::Target;
use gatework_lab::Workload;

use crate::command::ending::{Ending, Failure};
use crate::command::machine::{Job, Machine};
use crate::command::noun::{Noun, Stop};
use crate::command::shell::{DeviceUse, Shell};

/// Attend: softmax(q k^T) v in FP8 on a GPU, in f32 on the CPU
#[derive(Debug, Parser)]
#[command(name = "attention")]
pub(crate) enum Attention {
    /// Attend over the tensors q, k and v of a safetensors file
    #[command(after_help = run::EXAMPLES)]
    Run(run::RunOptions),
    /// Time attention at shapes of your own, beside PyTorch and cuDNN
    #[command(after_help = bench::EXAMPLES)]
    Bench(bench::BenchOptions),
}

impl Noun for Attention {
    const AREA: &'static str = "attention";
    const PURPOSE: &'static str =
        "attend in FP8 on a GPU, with caches, masks and grouped heads; in f32 on a machine without one";
    const FIRST_COMMAND: &'static str = "gatework attention run --demo";

    fn workloads() -> Vec<Box<dyn Workload>> {
        workloads::workloads()
    }

    fn device_use(&self) -> DeviceUse {
        match self {
            Self::Bench(options) if options.from_records.is_some() => DeviceUse::None,
            Self::Run(_) | Self::Bench(_) => DeviceUse::RunsThere,
        }
    }

    fn run(self, shell: &Shell) -> Result<Ending, Failure> {
        match self {
            Self::Run(options) if options.demo => demo::run(&options, shell),
            Self::Run(options) => run::run(&options, shell),
            Self::Bench(options) => bench::run(&options, shell),
        }
    }

    fn jobs(machine: &Machine) -> Vec<Job> {
        vec![Job { name: "attention", presence: machine.engine("in FP8", "in f32") }]
    }

    fn stops(target: &Target) -> Vec<Stop<'_>> {
        vec![Stop::new("attention", stop::SUMMARY, || stop::visit(target))]
    }
}
