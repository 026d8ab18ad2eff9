//! `gatework train compare`: the engine beside tuned plain loops.

use std::path::PathBuf;

use clap::Args;
use gatework_foresight::compare::{Arm, CompareOptions as Careful, Comparison, compare};
use gatework_foresight::run::Evaluated;
use gatework_lab::report::{LineChart, Panel, Series};

use super::listen::actions;
use super::options::{ConfigOptions, learn_on, prepare};
use crate::command::ending::{Ending, Failure};
use crate::command::files::{require_writable, write_file};
use crate::command::interrupt::gracefully;
use crate::command::output::table;
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework train compare --preset digits --seeds 5
  gatework train compare --preset mnist --data data/mnist --seeds 20 --svg mnist.svg
  gatework train compare --preset digits --set data.random_labels=true

The learning rate of the plain loop is tuned at its own length over --factors, by the
probe loss of other seeds, and beyond the factors where the best is at an edge. The
engine gets the same rate. A second plain loop has its schedule shortened to what the
engine cost with those other seeds, and is tuned at that length. The arms take turns
seed by seed, so that their seconds can be compared. All losses are those of averaged
weights on validation examples.";

pub(super) const TUNING_SEEDS: [u64; 2] = [10_001, 10_002];
pub(super) const FACTORS: [f64; 3] = [0.5, 1.0, 2.0];

#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    #[command(flatten)]
    config: ConfigOptions,
    /// Number of seeds to compare over
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Factors of the learning rate to try for the plain loops; a single 1 skips the tuning
    #[arg(long, value_name = "F,F,...", value_delimiter = ',', default_values_t = FACTORS)]
    factors: Vec<f64>,
    /// Plot the loss against equivalents and seconds in this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl schema::Document for Comparison {
    const SCHEMA: schema::Schema = schema::TRAIN_COMPARE;
}

pub(super) fn run(options: &CompareOptions, shell: &Shell) -> Result<Ending, Failure> {
    if let Some(path) = &options.svg {
        require_writable("--svg", path)?;
    }
    if options.factors.iter().any(|factor| !(*factor > 0.0 && factor.is_finite())) {
        return Err(Failure::input("--factors are numbers above 0, as 0.5,1,2".into()));
    }
    let mut config = options.config.config()?;
    learn_on(&mut config, shell)?;
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

/// Which of the seeds' losses a line goes through: their mean, or an end of the band of all of them.
#[derive(Clone, Copy)]
enum Through {
    Mean,
    Lowest,
    Highest,
}

/// What an evaluation had cost.
type Cost = fn(&Evaluated) -> f64;

/// Validation losses of averaged weights against what they had cost, with bands over seeds.
fn chart(comparison: &Comparison) -> LineChart {
    let lines = || {
        let of = |through| comparison.arms.iter().map(move |arm| (arm, through));
        of(Through::Mean).chain(of(Through::Lowest)).chain(of(Through::Highest))
    };
    let panel = |title: &str, cost: Cost| Panel {
        title: title.to_owned(),
        points: lines().map(|(arm, through)| curve(arm, cost, through)).collect(),
    };
    let series = lines().map(|(arm, through)| {
        let of = match through {
            Through::Mean => "mean",
            Through::Lowest => "lowest",
            Through::Highest => "highest",
        };
        Series { name: format!("{}: {of}", arm.name), ours: arm.name == comparison.arms[0].name }
    });
    LineChart {
        title: "Validation loss of averaged weights: mean, lowest and highest of all seeds".into(),
        axis: "cost so far".into(),
        series: series.collect(),
        panels: vec![
            panel("full-backward equivalents", |evaluated| evaluated.equivalents),
            panel("seconds", |evaluated| evaluated.seconds),
        ],
        notes: Vec::new(),
    }
}

fn curve(arm: &Arm, cost: Cost, through: Through) -> Vec<(f64, f64)> {
    let count = arm.runs.iter().map(|run| run.evaluations.len()).min().unwrap_or(0);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    (0..count)
        .map(|place| {
            let at = |of: &dyn Fn(&Evaluated) -> f64| -> Vec<f64> {
                arm.runs.iter().map(|run| of(&run.evaluations[place])).collect()
            };
            let losses = at(&|evaluated| evaluated.averaged.loss);
            let loss = match through {
                Through::Mean => mean(&losses),
                Through::Lowest => losses.iter().copied().fold(f64::INFINITY, f64::min),
                Through::Highest => losses.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            };
            (mean(&at(&cost)), loss)
        })
        .collect()
}
