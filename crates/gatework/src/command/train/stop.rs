//! The engine's stops of `gatework tour`.

use std::sync::atomic::AtomicBool;

use gatework_foresight::checkpoint::RunFolder;
use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::forecast::{Method, forecast as foresee};
use gatework_foresight::run::Run;
use gatework_foresight::{Error, Result};

use crate::command::noun::Seen;

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

pub(super) fn resume() -> Seen {
    let checked = stopped_and_resumed().unwrap_or_else(|error| Err(error.to_string()));
    Seen::of_engine(format!("64x64x10, {STEPS} steps"), checked)
}

/// What was shown, or what is wrong.
fn stopped_and_resumed() -> Result<std::result::Result<String, String>> {
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
    if !resumed.trainer().save()?.goes_on_as(&whole.trainer().save()?) {
        return Ok(Err("the resumed run ended with other bits".into()));
    }
    let accuracy = summary.last().map_or(0.0, |last| last.averaged.accuracy);
    let right = 100.0 * accuracy;
    if accuracy < 0.9 {
        return Ok(Err(format!("{right:.1} % of the digits were right, 90 % are wanted")));
    }
    Ok(Ok(format!(
        "a network learnt digits in {STEPS} steps, was stopped at step {} and resumed: the same bits as without the stop, \
         and {right:.1} % of unseen digits right (90 % is asked)",
        STEPS / 2
    )))
}

pub(super) fn forecast() -> Seen {
    let checked = foreseen().unwrap_or_else(|error| Err(error.to_string()));
    Seen::of_engine("the multi-power law, its 90 % band", checked)
}

fn foreseen() -> Result<std::result::Result<String, String>> {
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
        Some([low, high]) if (low..=high).contains(&end) => Ok(format!(
            "after 40 % of a run, its loss at the end was forecast between {low:.4} and {high:.4}: it ended at {end:.4}"
        )),
        Some([low, high]) => Err(format!("the loss ended at {end:.4}, outside of {low:.4} to {high:.4}")),
        None => Err("there was too little to calibrate a band by".into()),
    })
}
