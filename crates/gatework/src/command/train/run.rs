//! `gatework train run`: one run.

use std::path::PathBuf;

use clap::Args;
use gatework_foresight::checkpoint::RunFolder;
use gatework_foresight::compare::{CompareOptions, Comparison, compare};
use gatework_foresight::config::{Config, MemoryPlan};
use gatework_foresight::run::{Run, Summary};
use serde::Serialize;

use super::compare::{FACTORS, TUNING_SEEDS, text as comparison_text};
use super::dashboard::{self, Dashboard};
use super::listen::{Lines, text};
use super::options::{ConfigOptions, bytes, learn_on, prepare};
use super::sample::{Sample, SampleOptions};
use crate::command::ending::{Ending, Failure};
use crate::command::interrupt::gracefully;
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework train run --preset digits
  gatework train run --preset digits --out runs/first --set steps=2000
  gatework train run --preset mnist --data data/mnist --out runs/mnist
  gatework train run --preset xor --plain
  gatework train run --preset text --sample 40
  gatework train run --preset gpt2 --data data/text --plan
  gatework train run --preset gpt2 --data data/text --device cuda --out runs/gpt2
  gatework train run --preset mnist --data data/mnist --compare 0

A run of a named preset with the engine ends with a comparison over --compare seeds:
with the plain loop, tuned at its own length, and with a plain loop that is shortened to
what the engine cost and tuned at that length. --compare 0 skips the comparison.

The preset text trains a small GPT on Rust source that is built in, as a plain loop;
gpt2 has the shapes of GPT-2 small and learns from what 'gatework train fetch text'
writes. Both are trained on the CPU, or with --device cuda on a card, in bf16 with
weights and sums in f32. --device emulated is for trying that out without a card, and
takes seconds for a step of a tiny network.

On a terminal, a dashboard shows curves with a forecast, the phase and the ledger. With
--lines, or without a terminal, the run prints lines.

With --out, the folder gets config.toml, log.jsonl, log.csv, an event file for
TensorBoard and checkpoints. After Ctrl-C (exit code 130), kill -9 or a full disk,
'gatework train resume' continues there, bit for bit. --show-config prints every key.";

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    config: ConfigOptions,
    /// The folder to write the run to [default: nothing is kept]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Train with the plain loop, without the engine
    #[arg(long)]
    plain: bool,
    /// Number of seeds to compare the engine with tuned plain loops over, after the run; 0 for none [default:
    /// 3 with --preset, else 0]
    #[arg(long, value_name = "N", conflicts_with = "plain", value_parser = clap::value_parser!(u64).range(0..=1000))]
    compare: Option<u64>,
    #[command(flatten)]
    sample: SampleOptions,
    /// Print lines instead of the dashboard, also on a terminal
    #[arg(long)]
    lines: bool,
    /// Print the whole configuration as TOML, and do not train
    #[arg(long)]
    show_config: bool,
    /// Print how much memory the run would need, and do not train
    #[arg(long)]
    plan: bool,
}

#[derive(Serialize)]
struct Done {
    out: Option<PathBuf>,
    memory: MemoryPlan,
    #[serde(flatten)]
    summary: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<Sample>,
}

impl schema::Document for Done {
    const SCHEMA: schema::Schema = schema::TRAIN_RUN;
}

impl schema::Document for Config {
    const SCHEMA: schema::Schema = schema::TRAIN_CONFIG;
}

impl schema::Document for MemoryPlan {
    const SCHEMA: schema::Schema = schema::TRAIN_PLAN;
}

/// Seeds of the comparison that a named preset ends with.
const SEEDS: u64 = 3;

pub(super) fn run(options: &RunOptions, shell: &Shell) -> Result<Ending, Failure> {
    let mut config = options.config.config()?;
    config.engine.enabled &= !options.plain;
    learn_on(&mut config, shell)?;
    if options.show_config {
        let toml = config.text()?;
        shell.output.show(&config, || toml)?;
        return Ok(Ending::Done);
    }
    if let Some(path) = options.out.as_deref().filter(|path| path.is_file()) {
        let why = "it is a file: name a folder, which is made if it is not there";
        return Err(Failure::input(format!("--out {}: {why}", path.display())));
    }
    if let (Some(seeds @ 1..), false) = (options.compare, config.engine.enabled) {
        let why = "'engine.enabled' is false, and the engine is what is compared: leave out --compare, or add \
                   --set engine.enabled=true";
        return Err(Failure::input(format!("--compare {seeds}: {why}")));
    }
    options.sample.check(&config)?;
    let prepared = prepare(&config, shell)?;
    options.sample.check_data(&prepared.data)?;
    let memory = prepared.memory(&config)?;
    let memory = if options.out.is_some() { memory } else { memory.without_checkpoints() };
    if options.plan {
        shell.output.show(&memory, || plan(&memory))?;
        return Ok(Ending::Done);
    }
    shell.progress.say(&format!("memory: {}", of_all(&memory).join(", ")));
    let folder = options.out.as_deref().map(RunFolder::open).transpose()?;
    let mut run = Run::start(&config, &prepared, folder.as_ref())?;
    shell.progress.say(&format!("learns on {}", run.trainer().trainee().place()));
    let interrupt = gracefully();
    let summary = if dashboard::is_possible() && !options.lines {
        let mut drawn = Dashboard::open(config.schedule(), interrupt.flag())?;
        run.finish(&(), interrupt.flag(), &mut drawn)?
    } else {
        let _jobs = shell.progress.start(1);
        run.finish(&shell.progress, interrupt.flag(), &mut Lines(&shell.progress))?
    };
    // The run itself came to its end and is shown, whatever becomes of what follows.
    let sample = options.sample.of(run.trainer().trainee(), &prepared.data, config.seed, interrupt.flag());
    // A comparison needs its memory.
    drop(run);
    let jobs = shell.progress.start(1);
    let seeds = options.compare.unwrap_or(if options.config.names_preset() { SEEDS } else { 0 });
    let careful = CompareOptions {
        seeds: (1..=seeds).collect(),
        factors: FACTORS.to_vec(),
        tuning_seeds: TUNING_SEEDS.to_vec(),
    };
    let compared = (seeds > 0 && config.engine.enabled)
        .then(|| compare(&config, &prepared, &careful, &shell.progress, interrupt.flag()));
    drop(jobs);
    let (sample, not_sampled) = held_back(sample);
    let (comparison, not_compared) = held_back(compared.transpose().map_err(Failure::from));
    let done = Done { out: options.out.clone(), memory, summary, comparison, sample };
    shell.output.show(&done, || done.text(&config))?;
    not_sampled.or(not_compared).map_or(Ok(Ending::Done), Err)
}

/// What there is to show, and a failure to end with once it is shown.
pub(super) fn held_back<T>(found: Result<Option<T>, Failure>) -> (Option<T>, Option<Failure>) {
    match found {
        Ok(found) => (found, None),
        Err(failure) => (None, Some(failure)),
    }
}

impl Done {
    fn text(&self, config: &Config) -> String {
        let comparison =
            self.comparison.as_ref().map(|comparison| format!("\n\n{}", comparison_text(comparison)));
        let sample = self.sample.as_ref().map(Sample::text);
        text(&self.summary, config) + &comparison.unwrap_or_default() + &sample.unwrap_or_default()
    }
}

fn plan(memory: &MemoryPlan) -> String {
    let rows = [
        ("weights and their average", memory.weights),
        ("optimiser", memory.optimiser),
        ("activations and gradients", memory.passes),
        ("data", memory.data),
        ("snapshots", memory.snapshots),
        ("a state while its checkpoint is written", memory.checkpoint),
        ("world model", memory.world),
    ];
    let rows = rows.iter().filter(|(_, count)| *count > 0);
    let rows = rows.map(|(what, count)| format!("{what}: {}", bytes(*count)));
    let all = of_all(memory).into_iter().map(|all| format!("all: {all}"));
    rows.chain(all).collect::<Vec<_>>().join("\n")
}

/// What the machine holds, and the device where there is one.
fn of_all(memory: &MemoryPlan) -> Vec<String> {
    let mut all = vec![format!("{} of this machine", bytes(memory.host))];
    if memory.device > 0 {
        all.push(format!("{} of the device", bytes(memory.device)));
    }
    all
}
