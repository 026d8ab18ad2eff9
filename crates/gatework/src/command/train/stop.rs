//! The engine's stops of `gatework tour`.

use std::sync::atomic::AtomicBool;

use gatework_foresight::checkpoint::RunFolder;
use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::forecast::{Method, forecast as foresee};
use gatework_foresight::run::Run;
use gatework_foresight::{Error, Result};
use gatework_lab::Outcome;

use crate::command::interrupt::SecretFolder;

/// What [`resume`] does.
pub(super) const RESUME: &str =
    "digits, trained by the engine, stopped halfway and resumed: the same bits, and learnt";
/// What [`forecast`] does.
pub(super) const FORECAST: &str = "the training loss at the end of a run, from its first 40 %";

const STEPS: u64 = 300;

fn config() -> Result<Config> {
    Config::preset("digits")?
        .with_text("the tour", &format!("steps = {STEPS}\n[world]\nmembers = 2\nhidden = 16"))
}

fn outcome(judged: Result<Option<String>>) -> Outcome {
    match judged {
        Ok(None) => Outcome::Passed,
        Ok(Some(why)) => Outcome::Failed { why },
        Err(error) => Outcome::Failed { why: error.to_string() },
    }
}

pub(super) fn resume() -> (String, Outcome) {
    (format!("64x64x10, {STEPS} steps"), outcome(stopped_and_resumed()))
}

/// What is wrong, if anything.
fn stopped_and_resumed() -> Result<Option<String>> {
    let config = config()?;
    let prepared = Prepared::of(&config, |_| ())?;
    let go_on = AtomicBool::new(false);
    let mut whole = Run::start(&config, &prepared, None)?;
    let summary = whole.finish(&(), &go_on, &mut ())?;
    let folder = SecretFolder::new(None).map_err(|source| Error::Io {
        path: std::env::temp_dir(),
        doing: "written",
        source,
    })?;
    let folder = RunFolder::open(folder.path())?;
    Run::start(&config, &prepared, Some(&folder))?.train_to(STEPS / 2, &(), &go_on, &mut ())?;
    let mut resumed = Run::resume(&config, &prepared, &folder, &mut ())?;
    resumed.finish(&(), &go_on, &mut ())?;
    if !resumed.trainer().save().goes_on_as(&whole.trainer().save()) {
        return Ok(Some("the resumed run ended with other bits".into()));
    }
    let accuracy = summary.last().map_or(0.0, |last| last.averaged.accuracy);
    Ok((accuracy < 0.9)
        .then(|| format!("{:.1} % of the digits were right, 90 % are wanted", 100.0 * accuracy)))
}

pub(super) fn forecast() -> (String, Outcome) {
    ("the multi-power law, its 90 % band".into(), outcome(foreseen()))
}

fn foreseen() -> Result<Option<String>> {
    let mut config = config()?;
    config.engine.enabled = false;
    let prepared = Prepared::of(&config, |_| ())?;
    let mut run = Run::start(&config, &prepared, None)?;
    run.finish(&(), &AtomicBool::new(false), &mut ())?;
    let whole = run.curve()?;
    let seen = whole.until(0.4 * whole.last_step())?;
    let schedule = config.schedule();
    let ahead: Vec<(f64, f64)> = (0..STEPS).map(|step| (step as f64, schedule.rate(step))).collect();
    let found = foresee(&seen, whole.last_step(), &ahead, &[])?;
    let end = whole.end(0.05);
    let band =
        found.iter().find(|banded| banded.method == Method::MultiPowerLaw).and_then(|banded| banded.band);
    Ok(match band {
        Some([low, high]) if (low..=high).contains(&end) => None,
        Some([low, high]) => Some(format!("the loss ended at {end:.4}, outside of {low:.4} to {high:.4}")),
        None => Some("there was too little to calibrate a band by".into()),
    })
}
