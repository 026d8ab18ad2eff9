//! `gatework train resume`: a run goes on.

use std::path::PathBuf;

use clap::Args;
use gatework_foresight::checkpoint::RunFolder;
use gatework_foresight::run::{Run, Summary, configuration_of};
use serde::Serialize;

use super::listen::{Lines, text};
use super::options::{learn_on, prepare};
use super::run::held_back;
use super::sample::{Sample, SampleOptions};
use crate::command::ending::{Ending, Failure};
use crate::command::interrupt::gracefully;
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework train resume runs/first
  gatework train resume runs/text --sample 40

The run goes on from its newest checkpoint that is whole, and ends with the weights that
it would have had. It goes on where it began, on the CPU or on a device of the same
architecture, with kernels by the same compiler; --device names another card. A run that
is over ends at once, and writes if --sample is given.";

#[derive(Debug, Args)]
pub(crate) struct ResumeOptions {
    /// The folder of the run
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    #[command(flatten)]
    sample: SampleOptions,
}

#[derive(Serialize)]
struct Resumed {
    #[serde(flatten)]
    summary: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<Sample>,
}

impl schema::Document for Resumed {
    const SCHEMA: schema::Schema = schema::TRAIN_RESUME;
}

pub(super) fn run(options: &ResumeOptions, shell: &Shell) -> Result<Ending, Failure> {
    let mut config = configuration_of(&options.folder)?;
    learn_on(&mut config, shell)?;
    options.sample.check(&config)?;
    let folder = RunFolder::open(&options.folder)?;
    let prepared = prepare(&config, shell)?;
    options.sample.check_data(&prepared.data)?;
    let mut lines = Lines(&shell.progress);
    let mut run = Run::resume(&config, &prepared, &folder, &mut lines)?;
    shell.progress.say(&format!("goes on from step {}", run.trainer().step()));
    let jobs = shell.progress.start(1);
    let interrupt = gracefully();
    let summary = run.finish(&shell.progress, interrupt.flag(), &mut lines)?;
    drop(jobs);
    let sample = options.sample.of(run.trainer().trainee(), &prepared.data, config.seed, interrupt.flag());
    let (sample, not_sampled) = held_back(sample);
    let resumed = Resumed { summary, sample };
    shell.output.show(&resumed, || {
        let sample = resumed.sample.as_ref().map(Sample::text);
        text(&resumed.summary, &config) + &sample.unwrap_or_default()
    })?;
    not_sampled.map_or(Ok(Ending::Done), Err)
}
