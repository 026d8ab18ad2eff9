//! `gatework train run`: one run.

use std::path::PathBuf;

use clap::Args;
use gatework_foresight::checkpoint::RunFolder;
use gatework_foresight::config::MemoryPlan;
use gatework_foresight::run::{Run, Summary};
use serde::Serialize;

use super::listen::{Lines, text};
use super::options::{ConfigOptions, bytes, prepare};
use crate::command::ending::{Ending, Failure};
use crate::command::interrupt::gracefully;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework train run --preset digits
  gatework train run --preset digits --out runs/first --set steps=2000
  gatework train run --preset mnist --data data/mnist --out runs/mnist
  gatework train run --preset xor --plain

With --out the folder gets config.toml, log.jsonl, log.csv, an event file of TensorBoard and checkpoints; 'gatework train
resume' goes on there after Ctrl-C (exit code 130), kill -9 or a full disk, bit for bit. --show-config prints every key.";

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    config: ConfigOptions,
    /// The folder of the run; without one nothing is kept
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Leave the engine out: the plain loop
    #[arg(long)]
    plain: bool,
    /// Print the whole configuration as TOML, and train nothing
    #[arg(long)]
    show_config: bool,
    /// Print what the run would hold in memory, and train nothing
    #[arg(long)]
    plan: bool,
}

#[derive(Serialize)]
struct Done {
    out: Option<PathBuf>,
    memory: MemoryPlan,
    #[serde(flatten)]
    summary: Summary,
}

pub(super) fn run(options: &RunOptions, shell: &Shell) -> Result<Ending, Failure> {
    let mut config = options.config.config()?;
    config.engine.enabled &= !options.plain;
    if options.show_config {
        let toml = config.text()?;
        shell.output.show(&config, || toml)?;
        return Ok(Ending::Done);
    }
    let prepared = prepare(&config, shell)?;
    let memory = prepared.memory(&config)?;
    if options.plan {
        shell.output.show(&memory, || plan(&memory))?;
        return Ok(Ending::Done);
    }
    shell.progress.say(&format!("memory: {}", bytes(memory.total())));
    let folder = options.out.as_deref().map(RunFolder::open).transpose()?;
    let mut run = Run::start(&config, &prepared, folder.as_ref())?;
    let jobs = shell.progress.start(1);
    let interrupt = gracefully();
    let summary = run.finish(&shell.progress, interrupt.flag(), &mut Lines(&shell.progress))?;
    drop(jobs);
    let done = Done { out: options.out.clone(), memory, summary };
    shell.output.show(&done, || text(&done.summary))?;
    Ok(Ending::Done)
}

fn plan(memory: &MemoryPlan) -> String {
    let rows = [
        ("weights and their average", memory.weights),
        ("optimiser", memory.optimiser),
        ("activations and gradients", memory.passes),
        ("data", memory.data),
        ("snapshots", memory.snapshots),
        ("world model", memory.world),
        ("all", memory.total()),
    ];
    rows.map(|(what, count)| format!("{what}: {}", bytes(count))).join("\n")
}
