//! `gatework train resume`: a run goes on.

use std::path::PathBuf;

use clap::Args;
use gatework_foresight::checkpoint::RunFolder;
use gatework_foresight::run::{Run, Summary, configuration_of};

use super::listen::{Lines, text};
use super::options::{learn_on, prepare};
use crate::command::ending::{Ending, Failure};
use crate::command::interrupt::gracefully;
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework train resume runs/first

The run goes on from its newest checkpoint that is whole, and ends with the weights that
it would have had. It goes on where it began, on the CPU or on a device of the same kind;
--device names another card.";

#[derive(Debug, Args)]
pub(crate) struct ResumeOptions {
    /// The folder of the run
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl schema::Document for Summary {
    const SCHEMA: schema::Schema = schema::TRAIN_RESUME;
}

pub(super) fn run(options: &ResumeOptions, shell: &Shell) -> Result<Ending, Failure> {
    let mut config = configuration_of(&options.folder)?;
    learn_on(&mut config, shell)?;
    let folder = RunFolder::open(&options.folder)?;
    let prepared = prepare(&config, shell)?;
    let mut lines = Lines(&shell.progress);
    let mut run = Run::resume(&config, &prepared, &folder, &mut lines)?;
    shell.progress.say(&format!("goes on from step {}", run.trainer().step()));
    let jobs = shell.progress.start(1);
    let interrupt = gracefully();
    let summary = run.finish(&shell.progress, interrupt.flag(), &mut lines)?;
    drop(jobs);
    shell.output.show(&summary, || text(&summary, &config))?;
    Ok(Ending::Done)
}
