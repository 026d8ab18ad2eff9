//! `gatework train forecast`: where a curve ends.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use gatework_foresight::Error;
use gatework_foresight::forecast::{Banded, Curve, DirectHead, Finished, Foreseen, Question, forecast};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::output::table;
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework train forecast runs/first/log.jsonl --at 5000
  gatework train forecast wandb.csv --column val_loss --at 100000
  gatework train forecast new.csv --at 2000 --runs old-1.csv old-2.csv old-3.csv ...

The file holds JSON lines, CSV with a header, or one loss per line. Bands of 90 % are
calibrated with --runs, nine or more finished runs of the same task. Without them they
are calibrated with parts of the curve itself, which holds as far as the future of the
curve is like its past. With 30 runs or more, a forecast that is learnt from them is
shown beside the formulas.";

#[derive(Debug, Args)]
pub(crate) struct ForecastOptions {
    /// The file with the curve
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The step to forecast the loss at
    #[arg(long, value_name = "STEP")]
    at: f64,
    /// The column or key with the losses [default: loss, or one of its usual names]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Curves of finished runs of the same task, to calibrate the bands with
    #[arg(long, value_name = "FILE", num_args = 1..)]
    runs: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Told {
    column: String,
    points: usize,
    skipped: usize,
    last_step: f64,
    at: f64,
    calibrated_by_runs: usize,
    milliseconds: f64,
    forecasts: Vec<Banded>,
    /// By a network that learnt from the runs, where there are enough of them.
    direct: Option<Foreseen>,
}

impl schema::Document for Told {
    const SCHEMA: schema::Schema = schema::TRAIN_FORECAST;
}

pub(super) fn run(options: &ForecastOptions, shell: &Shell) -> Result<Ending, Failure> {
    let named = |path: &PathBuf| {
        Curve::read(path, options.column.as_deref()).map_err(|error| match error {
            Error::Curve { .. } => Failure::input(format!("{}: {error}", path.display())),
            other => other.into(),
        })
    };
    let reading = named(&options.file)?;
    let runs: Vec<Curve> =
        options.runs.iter().map(|path| Ok(named(path)?.curve)).collect::<Result<_, Failure>>()?;
    let started = Instant::now();
    let forecasts = forecast(&reading.curve, options.at, &[], &runs)?;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let direct = direct(&reading.curve, options.at, &runs)?;
    let told = Told {
        column: reading.column,
        points: reading.curve.losses().len(),
        skipped: reading.skipped,
        last_step: reading.curve.last_step(),
        at: options.at,
        calibrated_by_runs: runs.len(),
        milliseconds,
        forecasts,
        direct,
    };
    shell.output.show(&told, || text(&told))?;
    Ok(Ending::Done)
}

/// Rates to come are not known here, so that those of the runs must not be learnt from.
fn direct(curve: &Curve, at: f64, runs: &[Curve]) -> Result<Option<Foreseen>, Failure> {
    const TASK: &str = "the task of all of them";
    if runs.len() < DirectHead::LEAST {
        return Ok(None);
    }
    let finished: Vec<Finished> = runs
        .iter()
        .map(|run| Finished {
            task: TASK.to_owned(),
            curve: run.clone().without_rates(),
            passes: 0.0,
            size: 0.0,
        })
        .collect();
    let head = DirectHead::learn(&finished, curve.last_step() / at)?;
    let seen = curve.clone().without_rates();
    let question = Question { seen: &seen, at, ahead: &[], passes: 0.0, size: 0.0 };
    Ok(Some(head.foresee(&question, Some(TASK))?))
}

fn text(told: &Told) -> String {
    let mut rows = table(["formula", "expected loss", "90 % band", "calibrated by"]);
    for banded in &told.forecasts {
        let band = banded.band.map_or_else(
            || "too little to calibrate it by".into(),
            |[low, high]| format!("{low:.4} to {high:.4}"),
        );
        let of = if told.calibrated_by_runs > 0 { "runs" } else { "parts of the curve" };
        rows.add_row([
            banded.method.to_string(),
            format!("{:.4}", banded.expected),
            band,
            format!("{} {of}", banded.scores),
        ]);
    }
    if let Some(direct) = &told.direct {
        rows.add_row([
            "learnt from the runs".to_owned(),
            format!("{:.4}", direct.expected),
            format!("{:.4} to {:.4}", direct.band[0], direct.band[1]),
            format!("{} scores of runs that were left out", direct.calibrated_by),
        ]);
    }
    let skipped = match told.skipped {
        0 => String::new(),
        skipped => format!(", {skipped} lines without a usable number skipped"),
    };
    format!(
        "{rows}\n\nloss ('{}') at step {}, from {} points up to step {}{skipped}",
        told.column, told.at, told.points, told.last_step
    )
}
