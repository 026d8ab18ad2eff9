//! `gatework train compare`: the engine beside tuned plain loops.

use std::path::PathBuf;

use clap::Args;
use gatework_foresight::compare::{Arm, CompareOptions as Careful, Comparison, compare};
use gatework_lab::report::{LineChart, Panel, Series};

use super::listen::actions;
use super::options::{ConfigOptions, prepare};
use crate::command::ending::{Ending, Failure};
use crate::command::files::{require_writable, write_file};
use crate::command::interrupt::gracefully;
use crate::command::output::table;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework train compare --preset digits --seeds 5
  gatework train compare --preset mnist --data data/mnist --seeds 20 --svg mnist.svg
  gatework train compare --preset digits --set data.random_labels=true

The plain loop's learning rate is tuned at its own length over --factors, by the probe loss of other seeds, and beyond them where
the best is at an edge; the engine gets the same rate. The plain loop stands there a second time, with its schedule shortened to
what the engine cost with those other seeds and tuned there. Arms take turns seed by seed, so that their seconds can be compared.
Losses are those of averaged weights on validation examples, for all three.";

pub(super) const TUNING_SEEDS: [u64; 2] = [10_001, 10_002];
pub(super) const FACTORS: [f64; 3] = [0.5, 1.0, 2.0];

#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    #[command(flatten)]
    config: ConfigOptions,
    /// Seeds that are compared
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Factors of the learning rate that plain loops are tuned over; 1 alone tunes nothing
    #[arg(long, value_name = "F,F,...", value_delimiter = ',', default_values_t = FACTORS)]
    factors: Vec<f64>,
    /// Draw loss against equivalents and against seconds into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(super) fn run(options: &CompareOptions, shell: &Shell) -> Result<Ending, Failure> {
    if let Some(path) = &options.svg {
        require_writable("--svg", path)?;
    }
    if options.factors.iter().any(|factor| !(*factor > 0.0 && factor.is_finite())) {
        return Err(Failure::input("--factors are numbers above 0, as 0.5,1,2".into()));
    }
    let config = options.config.config()?;
    let prepared = prepare(&config, shell)?;
    let careful = Careful {
        seeds: (1..=options.seeds).collect(),
        factors: options.factors.clone(),
        tuning_seeds: TUNING_SEEDS.to_vec(),
    };
    let jobs = shell.progress.start(1);
    let interrupt = gracefully();
    let comparison = compare(&config, &prepared, &careful, &shell.progress, interrupt.flag())?;
    drop(jobs);
    if let (Some(path), Some(svg)) = (&options.svg, chart(&comparison).svg()) {
        write_file(path, svg.as_bytes())?;
    }
    shell.output.show(&comparison, || text(&comparison))?;
    Ok(Ending::Done)
}

pub(super) fn text(comparison: &Comparison) -> String {
    let mut rows = table([
        "run",
        "steps",
        "learning rate",
        "validation loss",
        "seconds",
        "full-backward equivalents",
        "predictor seconds",
    ]);
    for arm in &comparison.arms {
        let losses = arm.losses();
        let mean = losses.iter().sum::<f64>() / losses.len().max(1) as f64;
        rows.add_row([
            arm.name.clone(),
            arm.steps.to_string(),
            format!("{}", arm.rate),
            format!("{mean:.4}"),
            format!("{:.2}", arm.seconds()),
            format!("{:.1}", arm.equivalents()),
            format!("{:.3}", arm.predictor_seconds()),
        ]);
    }
    let mut lines = vec![rows.to_string(), String::new()];
    for arm in comparison.arms.iter().filter(|arm| !arm.tried.is_empty()) {
        let tried: Vec<String> = arm.tried.iter().map(|(rate, loss)| format!("{rate}: {loss:.4}")).collect();
        lines.push(format!("{} tuned (rate: probe loss): {}", arm.name, tried.join(", ")));
    }
    for ratio in &comparison.ratios {
        let upper = ratio
            .loss_upper
            .map_or_else(|| "one seed, no interval".into(), |upper| format!("at most {upper:.4} at 95 %"));
        lines.push(format!(
            "engine over {}: loss {:.4} ({upper}), equivalents {:.3}, seconds {:.3}",
            ratio.over, ratio.loss, ratio.equivalents, ratio.seconds
        ));
    }
    if let Some(engine) = comparison.arms.first() {
        for (seed, run) in engine.runs.iter().enumerate() {
            lines.push(format!("engine, seed {}: {}", seed + 1, actions(&run.counts)));
        }
    }
    lines.join("\n")
}

/// Mean validation losses of averaged weights, against what they had cost.
fn chart(comparison: &Comparison) -> LineChart {
    let panel = |title: &str, cost: fn(&gatework_foresight::run::Evaluated) -> f64| Panel {
        title: title.to_owned(),
        points: comparison.arms.iter().map(|arm| curve(arm, cost)).collect(),
    };
    LineChart {
        title: "Validation loss of averaged weights, mean over seeds".into(),
        axis: "cost so far".into(),
        series: comparison
            .arms
            .iter()
            .enumerate()
            .map(|(place, arm)| Series { name: arm.name.clone(), ours: place == 0 })
            .collect(),
        panels: vec![
            panel("full-backward equivalents", |evaluated| evaluated.equivalents),
            panel("seconds", |evaluated| evaluated.seconds),
        ],
        notes: Vec::new(),
    }
}

fn curve(arm: &Arm, cost: fn(&gatework_foresight::run::Evaluated) -> f64) -> Vec<(f64, f64)> {
    let count = arm.runs.iter().map(|run| run.evaluations.len()).min().unwrap_or(0);
    let mean = |place: usize, of: &dyn Fn(&gatework_foresight::run::Evaluated) -> f64| {
        arm.runs.iter().map(|run| of(&run.evaluations[place])).sum::<f64>() / arm.runs.len() as f64
    };
    (0..count).map(|place| (mean(place, &cost), mean(place, &|evaluated| evaluated.averaged.loss))).collect()
}
