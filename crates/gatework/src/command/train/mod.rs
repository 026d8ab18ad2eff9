//! `gatework train`.

mod compare;
mod dashboard;
mod fetch;
mod forecast;
mod listen;
mod options;
mod resume;
mod run;
mod sample;
mod stop;
mod sweep;

use clap::Parser;
use gatework_foresight::workloads;
use gatework_gpu::Target;
use gatework_lab::Workload;

use crate::command::ending::{Ending, Failure};
use crate::command::machine::{Job, Machine};
use crate::command::noun::{Noun, Stop};
use crate::command::shell::{DeviceUse, Shell};

/// Train small networks: exact resume, checked shortcuts, forecasts of the loss
#[derive(Debug, Parser)]
#[command(name = "train")]
pub(crate) enum Train {
    /// Train a network, with the engine or with a plain loop
    #[command(after_help = run::EXAMPLES)]
    Run(run::RunOptions),
    /// Continue a run that was killed or interrupted, bit for bit
    #[command(after_help = resume::EXAMPLES)]
    Resume(resume::ResumeOptions),
    /// Train with the engine and with tuned plain loops, and compare them over seeds
    #[command(after_help = compare::EXAMPLES)]
    Compare(compare::CompareOptions),
    /// Forecast where a loss curve will end, of any training program
    #[command(after_help = forecast::EXAMPLES)]
    Forecast(forecast::ForecastOptions),
    /// Train many configurations, and stop those that the forecast expects to lose
    #[command(after_help = sweep::EXAMPLES)]
    Sweep(sweep::SweepOptions),
    /// Fetch a data set, check it and unpack it
    #[command(after_help = fetch::EXAMPLES)]
    Fetch(fetch::FetchOptions),
}

impl Noun for Train {
    const AREA: &'static str = "foresight";
    const PURPOSE: &'static str =
        "train networks that stop and resume to the same bits, and know early where their loss will end";
    const FIRST_COMMAND: &'static str = "gatework train run";

    fn workloads() -> Vec<Box<dyn Workload>> {
        workloads::workloads()
    }

    fn device_use(&self) -> DeviceUse {
        match self {
            Self::Run(_) | Self::Resume(_) | Self::Compare(_) | Self::Sweep(_) => DeviceUse::RunsThere,
            Self::Forecast(_) | Self::Fetch(_) => DeviceUse::None,
        }
    }

    fn run(self, shell: &Shell) -> Result<Ending, Failure> {
        match self {
            Self::Run(options) => run::run(&options, shell),
            Self::Resume(options) => resume::run(&options, shell),
            Self::Compare(options) => compare::run(&options, shell),
            Self::Forecast(options) => forecast::run(&options, shell),
            Self::Sweep(options) => sweep::run(&options, shell),
            Self::Fetch(options) => fetch::run(&options, shell),
        }
    }

    fn jobs(machine: &Machine) -> Vec<Job> {
        vec![Job { name: "train", presence: machine.engine_where_told("transformers alone", "in f32") }]
    }

    fn stops(_: &Target) -> Vec<Stop<'_>> {
        vec![
            Stop::new("train/resume", stop::RESUME, stop::resume),
            Stop::new("train/forecast", stop::FORECAST, stop::forecast),
        ]
    }
}
