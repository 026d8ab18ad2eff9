//! `gatework train sweep`: many configurations.

use std::path::PathBuf;

use clap::Args;
use gatework_foresight::config::Config;
use gatework_foresight::sweep::{Standing, Sweep, SweepOptions as Rungs, sweep};

use super::options::{ConfigOptions, learn_on, prepare};
use crate::command::ending::{Ending, Failure};
use crate::command::interrupt::gracefully;
use crate::command::output::table;
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework train sweep --vary optimiser.learning_rate=1e-3,4e-3,1e-2 --out runs/rates
  gatework train sweep --preset xor --vary batch=32,64 --vary steps=500,900 --out runs/sweep

All combinations are trained to each of the --rungs and compared by the probe loss of
averaged weights. Those that the forecast gives no chance are stopped, and at most half
of them continue from their checkpoints. After an interrupt, the same sweep into the
same folder continues where it was.";

/// More combinations than anybody means.
const MOST: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct SweepOptions {
    #[command(flatten)]
    config: ConfigOptions,
    /// A key and the values to try; may be given several times
    #[arg(long, value_name = "KEY=V,V,...", required = true)]
    vary: Vec<String>,
    /// The folder to write all runs to
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Fractions of a run after which the runs are compared
    #[arg(long, value_name = "P,P,...", value_delimiter = ',', default_value = "0.1,0.2,0.4")]
    rungs: Vec<f64>,
}

impl schema::Document for Sweep {
    const SCHEMA: schema::Schema = schema::TRAIN_SWEEP;
}

pub(super) fn run(options: &SweepOptions, shell: &Shell) -> Result<Ending, Failure> {
    let mut base = options.config.config()?;
    learn_on(&mut base, shell)?;
    let configurations = combinations(&base, &options.vary)?;
    let prepared = prepare(&base, shell)?;
    let rungs = Rungs { rungs: options.rungs.clone(), ..Rungs::default() };
    let jobs = shell.progress.start(1);
    let interrupt = gracefully();
    let found = sweep(&configurations, &prepared, &options.out, &rungs, &shell.progress, interrupt.flag())?;
    drop(jobs);
    shell.output.show(&found, || text(&found))?;
    Ok(Ending::Done)
}

/// Every combination of the values, each with what was set.
fn combinations(base: &Config, vary: &[String]) -> Result<Vec<(Vec<String>, Config)>, Failure> {
    let mut found = vec![(Vec::new(), base.clone())];
    for varied in vary {
        let Some((key, values)) = varied.split_once('=') else {
            return Err(Failure::input(format!("--vary {varied}: write KEY=VALUE,VALUE, as batch=32,64")));
        };
        if ["data.", "engine.replay"].iter().any(|start| key.trim().starts_with(start)) {
            return Err(Failure::input(format!(
                "--vary {key}: all configurations of a sweep learn from the same data; run a sweep for each"
            )));
        }
        if found.len() * values.split(',').count() > MOST {
            return Err(Failure::input(format!(
                "--vary makes more than {MOST} configurations: vary less at once"
            )));
        }
        let mut next = Vec::new();
        for (settings, config) in &found {
            for value in values.split(',') {
                let setting = format!("{}={}", key.trim(), value.trim());
                let config = config.with_setting(&setting)?;
                next.push(([&settings[..], &[setting]].concat(), config));
            }
        }
        found = next;
    }
    Ok(found)
}

fn text(sweep: &Sweep) -> String {
    let header = ["configuration", "steps", "Gmultiply-adds", "probe loss", "over the best, at the end", ""];
    let mut rows = table(header);
    for (place, entrant) in sweep.entrants.iter().enumerate() {
        let last = entrant.summary.as_ref().and_then(|summary| summary.last());
        let (probe, forecast) = match (last, entrant.standing) {
            (Some(last), _) => (format!("{:.4}, at the end", last.probe), String::new()),
            (None, Some(Standing { probe, over_best, band: Some([low, high]) })) => {
                (format!("{probe:.4}, stopped"), format!("{over_best:.2} ({low:.2} to {high:.2})"))
            }
            (None, Some(Standing { probe, over_best, band: None })) => {
                (format!("{probe:.4}, stopped"), format!("{over_best:.2}"))
            }
            (None, None) => ("diverged".to_owned(), String::new()),
        };
        rows.add_row([
            entrant.settings.join(" "),
            entrant.steps.to_string(),
            format!("{:.1}", entrant.work / 1e9),
            probe,
            forecast,
            if sweep.winner == Some(place) { "best".to_owned() } else { String::new() },
        ]);
    }
    format!("{rows}\n\n{:.2} of the compute of training all to the end", sweep.compute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_are_made_and_a_wrong_key_is_named() {
        let base = Config::default();
        let found = combinations(&base, &["batch=16,32".into(), "steps=10,20,30".into()]).unwrap();
        assert_eq!(found.len(), 6);
        assert_eq!((found[5].1.batch, found[5].1.steps), (32, 30));
        let said = combinations(&base, &["bach=16,32".into()]).unwrap_err().to_string();
        assert!(said.contains("'batch'"), "{said}");
        assert!(combinations(&base, &["batch".into()]).is_err());
    }
}
