//! Many configurations under one budget: runs whose forecast says that they will not win are stopped.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use gatework_contract::Observer;
use serde::Serialize;

use crate::checkpoint::RunFolder;
use crate::config::{Config, Prepared};
use crate::error::{Error, Result};
use crate::forecast::{Method, forecast};
use crate::run::{Run, Summary};

/// Where runs are compared, as parts of their steps.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepOptions {
    /// Parts, growing, below 1.
    pub rungs: Vec<f64>,
    /// Runs that always go on from a rung, however bad their forecast.
    pub least: usize,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self { rungs: vec![0.2, 0.4, 0.7], least: 2 }
    }
}

/// What became of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entrant {
    /// What was set.
    pub settings: Vec<String>,
    /// Steps that it was trained for.
    pub steps: u64,
    /// Full-backward equivalents that it cost.
    pub equivalents: f64,
    /// The final training loss that was forecast for it at its last rung, with its band.
    pub forecast: Option<(f64, Option<[f64; 2]>)>,
    /// What it came to, if it was trained to the end.
    pub summary: Option<Summary>,
}

/// What came of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sweep {
    /// All configurations in their order.
    pub entrants: Vec<Entrant>,
    /// The one with the lowest probe loss of averaged weights among those that were trained to the end.
    pub winner: Option<usize>,
    /// Full-backward equivalents over those of training all of them to the end.
    pub compute: f64,
}

/// Trains configurations from rung to rung in folders below `folder`; survivors go on from their checkpoints. At a rung a run
/// is stopped if the lower end of its forecast lies above the upper end of the best one's.
pub fn sweep(
    configurations: &[(Vec<String>, Config)],
    prepared: &Prepared,
    folder: &Path,
    options: &SweepOptions,
    observer: &dyn Observer,
    interrupted: &AtomicBool,
) -> Result<Sweep> {
    if configurations.is_empty() {
        return Err(Error::config("a sweep needs at least one configuration"));
    }
    let growing = options.rungs.windows(2).all(|pair| pair[0] < pair[1]);
    if !growing || options.rungs.iter().any(|rung| !(*rung > 0.0 && *rung < 1.0)) {
        return Err(Error::config("rungs are parts of a run that grow, above 0 and below 1"));
    }
    let mut entrants: Vec<Entrant> = configurations
        .iter()
        .map(|(settings, _)| Entrant {
            settings: settings.clone(),
            steps: 0,
            equivalents: 0.0,
            forecast: None,
            summary: None,
        })
        .collect();
    let mut alive: Vec<usize> = (0..entrants.len()).collect();
    for rung in options.rungs.iter().map(Some).chain([None]) {
        for &place in &alive {
            let stage_name = format!("configuration {}", place + 1);
            let _stage = observer.stage(&stage_name);
            let config = &configurations[place].1;
            let home = RunFolder::open(&folder.join(format!("{:03}", place + 1)))?;
            let mut run = if home.steps()?.is_empty() {
                Run::start(config, prepared, Some(&home))?
            } else {
                Run::resume(config, prepared, &home, &mut ())?
            };
            let trained = match rung {
                Some(rung) => {
                    let to = (rung * config.steps as f64) as u64;
                    let trained = run.train_to(to, observer, interrupted, &mut ()).map(|_| None);
                    entrants[place].forecast = expect(&run, config);
                    trained
                }
                None => run.finish(observer, interrupted, &mut ()).map(Some),
            };
            match trained {
                Ok(summary) => entrants[place].summary = summary,
                // One that cannot be trained is out, and the others go on.
                Err(Error::Diverged { .. }) => entrants[place].forecast = None,
                Err(error) => return Err(error),
            }
            entrants[place].steps = run.trainer().step();
            entrants[place].equivalents = run.trainer().ledger().total().equivalents;
        }
        if rung.is_some() {
            alive = survivors(&entrants, &alive, options.least);
        }
    }
    let probe = |place: &usize| Some(entrants[*place].summary.as_ref()?.last()?.probe);
    let winner = alive
        .iter()
        .copied()
        .filter(|place| probe(place).is_some_and(f64::is_finite))
        .min_by(|a, b| probe(a).unwrap_or(f64::INFINITY).total_cmp(&probe(b).unwrap_or(f64::INFINITY)));
    let all: u64 = configurations.iter().map(|(_, config)| config.steps).sum();
    let compute = entrants.iter().map(|entrant| entrant.equivalents).sum::<f64>() / all as f64;
    Ok(Sweep { entrants, winner, compute })
}

/// The multi-power law's forecast of the final training loss; none for a curve that nothing can be said about.
fn expect(run: &Run<'_>, config: &Config) -> Option<(f64, Option<[f64; 2]>)> {
    let curve = run.curve().ok()?;
    let schedule = config.schedule();
    let ahead: Vec<(f64, f64)> =
        (curve.last_step() as u64 + 1..config.steps).map(|step| (step as f64, schedule.rate(step))).collect();
    let found = forecast(&curve, config.steps as f64, &ahead, &[]).ok()?;
    let banded = found.into_iter().find(|banded| banded.method == Method::MultiPowerLaw)?;
    Some((banded.expected, banded.band))
}

fn survivors(entrants: &[Entrant], alive: &[usize], least: usize) -> Vec<usize> {
    let expected = |place: usize| entrants[place].forecast.map_or(f64::INFINITY, |(expected, _)| expected);
    let end = |place: usize, upper: usize| {
        entrants[place]
            .forecast
            .map_or(f64::INFINITY, |(expected, band)| band.map_or(expected, |band| band[upper]))
    };
    let mut ranked = alive.to_vec();
    ranked.sort_by(|&a, &b| expected(a).total_cmp(&expected(b)));
    let bar = ranked.first().map_or(f64::INFINITY, |&best| end(best, 1));
    let mut kept: Vec<usize> = ranked
        .iter()
        .enumerate()
        .filter(|&(rank, &place)| rank < least.max(1) || end(place, 0) <= bar)
        .map(|(_, &place)| place)
        .collect();
    kept.sort_unstable();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate at which losses become no numbers never wins, and does not end the sweep; with the engine or without it.
    #[test]
    fn a_rate_that_diverges_is_stopped() {
        for enabled in [false, true] {
            let text = format!("steps = 120\n[engine]\nenabled = {enabled}");
            let base = Config::preset("digits").unwrap().with_text("test", &text).unwrap();
            let settings = ["1e30", "3e-3", "2e-3"].map(|rate| format!("optimiser.learning_rate={rate}"));
            let configurations: Vec<(Vec<String>, Config)> = settings
                .into_iter()
                .map(|setting| (vec![setting.clone()], base.with_setting(&setting).unwrap()))
                .collect();
            let prepared = Prepared::of(&base, |_| ()).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let (options, interrupted) = (SweepOptions::default(), AtomicBool::new(false));
            let found =
                sweep(&configurations, &prepared, folder.path(), &options, &(), &interrupted).unwrap();
            assert!(matches!(found.winner, Some(1 | 2)), "{enabled}: {:?}", found.winner);
            assert!(found.entrants[0].summary.is_none(), "{enabled}: it was trained to its end");
        }
    }

    #[test]
    fn a_hopeless_rate_is_stopped_and_a_good_one_wins() {
        let base = Config::preset("digits")
            .unwrap()
            .with_text("test", "steps = 200\n[engine]\nenabled = false")
            .unwrap();
        let settings = ["1e-6", "4e-3", "3e-3", "2e-6"].map(|rate| format!("optimiser.learning_rate={rate}"));
        let configurations: Vec<(Vec<String>, Config)> = settings
            .into_iter()
            .map(|setting| {
                let config = base.with_setting(&setting).unwrap();
                (vec![setting], config)
            })
            .collect();
        let prepared = Prepared::of(&base, |_| ()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let interrupted = AtomicBool::new(false);
        let options = SweepOptions::default();
        let sweep = sweep(&configurations, &prepared, folder.path(), &options, &(), &interrupted).unwrap();
        assert!(sweep.winner == Some(1) || sweep.winner == Some(2), "{:?}", sweep.winner);
        assert!(sweep.compute < 0.8, "{}", sweep.compute);
        for hopeless in [0, 3] {
            assert!(sweep.entrants[hopeless].summary.is_none() && sweep.entrants[hopeless].steps < 200);
        }
        // Other rates in the same folder are another sweep.
        let mut others = configurations.clone();
        others[1].1 = base.with_setting("optimiser.learning_rate=5e-3").unwrap();
        let error = super::sweep(&others, &prepared, folder.path(), &options, &(), &interrupted).unwrap_err();
        assert!(error.to_string().contains("configuration"), "{error}");
        // What survived is what training it without a break gives.
        let winner = sweep.winner.unwrap();
        let mut whole = Run::start(&configurations[winner].1, &prepared, None).unwrap();
        let alone = whole.finish(&(), &interrupted, &mut ()).unwrap();
        let loss = |summary: &Summary| summary.last().unwrap().trained.loss.to_bits();
        assert_eq!(loss(sweep.entrants[winner].summary.as_ref().unwrap()), loss(&alone));
    }
}
