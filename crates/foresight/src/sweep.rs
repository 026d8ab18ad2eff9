//! Many configurations under one budget: runs whose forecast says that they will not win are stopped.
//!
//! One number decides throughout: the loss of averaged weights on the probe. Forecasts are of how runs will
//! stand against each other. With `x_i` the logarithm of that loss less the mean over the better half of the
//! runs, `x_i` is taken for a random walk in the logarithm of the steps: its deviation over a doubling of the
//! steps is the one that the better half showed since the rung before, so that from a part `r` of a run to
//! its end the ratio of two losses varies by `√(2 log₂(1/r))` times that. At the first rung nothing is known
//! of that yet, and the better half goes on: rates that win in the end are often behind at first.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use gatework_contract::Observer;
use serde::Serialize;

use crate::checkpoint::RunFolder;
use crate::config::{Config, Prepared};
use crate::error::{Error, Result};
use crate::run::{Run, Summary, comparable};
use crate::trainee::{Trainee as _, Which};

/// Where runs are compared, as parts of their steps.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepOptions {
    /// Parts, growing, below 1.
    pub rungs: Vec<f64>,
    /// Runs that always go on from a rung, however bad their forecast.
    pub least: usize,
    /// The part of the runs at a rung that goes on at most, the best first, however good the forecasts of the
    /// others.
    pub most: f64,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self { rungs: vec![0.1, 0.2, 0.4], least: 6, most: 0.5 }
    }
}

/// How a run stands at a rung.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Standing {
    /// The probe loss of its averaged weights.
    pub probe: f64,
    /// Its final probe loss over that of the run that is best now, by forecast: with a band of 90 %.
    pub over_best: f64,
    /// The band; none where there is too little to calibrate it by, and then it decides nothing.
    pub band: Option<[f64; 2]>,
}

/// One configuration of a sweep, and its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entrant {
    /// The keys and values that were set.
    pub settings: Vec<String>,
    /// Steps that it was trained for.
    pub steps: u64,
    /// Multiply-adds that it cost, its probes at rungs included.
    pub work: f64,
    /// How it stood at its last rung; none for a run that diverged.
    pub standing: Option<Standing>,
    /// The result, if it was trained to the end.
    pub summary: Option<Summary>,
    /// Multiply-adds that training it to the end costs: its own, where that was done, else as its steps so
    /// far go on.
    whole_work: f64,
    /// Parts of its steps and logarithms of probe losses there.
    probes: Vec<(f64, f64)>,
}

/// The result of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sweep {
    /// All configurations in their order.
    pub entrants: Vec<Entrant>,
    /// The one with the lowest probe loss of averaged weights among those that were trained to the end.
    pub winner: Option<usize>,
    /// Multiply-adds over those of training all of them to the end.
    pub compute: f64,
}

/// Trains configurations from rung to rung in folders below `folder`; survivors go on from their checkpoints.
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
    let mut entrants: Vec<Entrant> =
        configurations.iter().map(|(settings, _)| Entrant::new(settings.clone())).collect();
    let mut alive: Vec<usize> = (0..entrants.len()).collect();
    let track = Track { prepared, folder, observer, interrupted };
    for &part in &options.rungs {
        for &place in &alive {
            track.train(place, &configurations[place].1, Some(part), &mut entrants[place])?;
        }
        alive.retain(|&place| entrants[place].probes.last().is_some_and(|(at, _)| *at == part));
        judge(&mut entrants, &alive, part);
        alive = survivors(&entrants, &alive, options);
    }
    for &place in &alive {
        track.train(place, &configurations[place].1, None, &mut entrants[place])?;
    }
    let probe = |place: &usize| Some(entrants[*place].summary.as_ref()?.last()?.probe);
    let winner = alive
        .iter()
        .copied()
        .filter(|place| probe(place).is_some_and(f64::is_finite))
        .min_by(|a, b| probe(a).unwrap_or(f64::INFINITY).total_cmp(&probe(b).unwrap_or(f64::INFINITY)));
    let sum = |work: fn(&Entrant) -> f64| entrants.iter().map(work).sum::<f64>();
    let compute = sum(|entrant| entrant.work) / sum(|entrant| entrant.whole_work);
    Ok(Sweep { entrants, winner, compute })
}

impl Entrant {
    fn new(settings: Vec<String>) -> Self {
        Self {
            settings,
            steps: 0,
            work: 0.0,
            standing: None,
            summary: None,
            whole_work: 0.0,
            probes: Vec::new(),
        }
    }
}

/// Where runs are trained.
struct Track<'a> {
    prepared: &'a Prepared,
    folder: &'a Path,
    observer: &'a dyn Observer,
    interrupted: &'a AtomicBool,
}

impl Track<'_> {
    /// Trains a run to a part of its steps and probes it, or to its end. One that cannot be trained is not
    /// probed, and the others go on.
    fn train(&self, place: usize, config: &Config, part: Option<f64>, entrant: &mut Entrant) -> Result<()> {
        let stage_name = format!("configuration {}", place + 1);
        let _stage = self.observer.stage(&stage_name);
        let home = RunFolder::open(&self.folder.join(format!("{:03}", place + 1)))?;
        let noted = home.path().join(PROBES);
        let mut run = if home.steps()?.is_empty() {
            Run::start(config, self.prepared, Some(&home))?
        } else {
            Run::resume(config, self.prepared, &home, &mut ())?
        };
        let trained = match part {
            Some(part) => {
                let to = (part * config.steps as f64).round() as u64;
                run.train_to(to, self.observer, self.interrupted, &mut ()).map(|_| None)
            }
            None => run.finish(self.observer, self.interrupted, &mut ()).map(Some),
        };
        let (trainer, mut diverged) = (run.trainer(), false);
        match trained {
            Ok(summary) => entrant.summary = summary,
            Err(Error::Diverged { .. }) => (diverged, entrant.standing) = (true, None),
            Err(error) => return Err(error),
        }
        let (trainee, spent) = (trainer.trainee(), trainer.ledger().total());
        let unit = trainee.step_work();
        entrant.steps = trainer.step();
        if let Some(part) = part.filter(|_| !diverged) {
            // A sweep that was interrupted and goes on finds runs beyond their first rungs.
            let mut probes = read_probes(&noted)?;
            if !probes.iter().any(|(at, _)| *at == part) {
                let loss = trainee.probe(Which::Averaged)?.loss;
                probes.push((part, comparable(loss).clamp(1.0 / DIVERGED, DIVERGED).ln()));
                let text = serde_json::to_vec(&probes).map_err(|error| Error::shape(error.to_string()))?;
                std::fs::write(&noted, text).map_err(Error::writing(&noted))?;
            }
            let here = probes.into_iter().filter(|(at, level)| *at <= part && *level < DIVERGED.ln());
            entrant.probes = here.collect();
        }
        let probes = entrant.probes.len() as f64 * trainee.probe_cost();
        entrant.work = unit * (spent.equivalents + probes);
        let whole = config.steps as f64 / spent.steps.max(1) as f64;
        entrant.whole_work = unit * spent.equivalents * if entrant.summary.is_some() { 1.0 } else { whole };
        Ok(())
    }
}

/// A loss from which a run counts as diverged.
const DIVERGED: f64 = 1e30;
/// The file of a run's probes at rungs.
const PROBES: &str = "rungs.json";

fn read_probes(path: &Path) -> Result<Vec<(f64, f64)>> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|error| Error::shape(format!("{} cannot be understood: {error}", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::reading(path)(error)),
    }
}

/// Says how the runs that are left stand at a part of their steps.
fn judge(entrants: &mut [Entrant], alive: &[usize], part: f64) {
    let now = |place: usize| entrants[place].probes.last().map_or(f64::INFINITY, |(_, level)| *level);
    let mut ranked = alive.to_vec();
    ranked.sort_by(|&a, &b| now(a).total_cmp(&now(b)));
    let Some(&best) = ranked.first() else { return };
    let better = &ranked[..ranked.len().div_ceil(2)];
    let deviation = deviation_per_doubling(entrants, better);
    let lowest = now(best);
    let reach = deviation.map(|deviation| 1.645 * deviation * (2.0 * (1.0 / part).log2()).sqrt());
    let standings: Vec<(usize, Standing)> = alive
        .iter()
        .map(|&place| {
            let above = now(place) - lowest;
            let band = reach.map(|reach| [(above - reach).exp(), (above + reach).exp()]);
            (place, Standing { probe: now(place).exp(), over_best: above.exp(), band })
        })
        .collect();
    for (place, standing) in standings {
        entrants[place].standing = Some(standing);
    }
}

/// Fewest runs whose changes say anything.
const LEAST_CHANGES: usize = 3;

/// The deviation of changes of ln loss since the rung before, for a doubling of the steps; none for too few
/// runs.
fn deviation_per_doubling(entrants: &[Entrant], runs: &[usize]) -> Option<f64> {
    let changes: Vec<f64> = runs
        .iter()
        .filter_map(|&place| match entrants[place].probes[..] {
            [.., (before, level), (at, now)] => Some((now - level) / (at / before).log2().sqrt()),
            _ => None,
        })
        .collect();
    let count = changes.len();
    if count < LEAST_CHANGES {
        return None;
    }
    let mean = changes.iter().sum::<f64>() / count as f64;
    Some((changes.iter().map(|change| (change - mean).powi(2)).sum::<f64>() / (count - 1) as f64).sqrt())
}

/// The runs that go on, in their order.
fn survivors(entrants: &[Entrant], alive: &[usize], options: &SweepOptions) -> Vec<usize> {
    let standing = |place: usize| entrants[place].standing;
    let over_best = |place: usize| standing(place).map_or(f64::INFINITY, |standing| standing.over_best);
    let may_win = |place: usize| {
        standing(place).is_some_and(|standing| standing.band.is_none_or(|[low, _]| low <= 1.0))
    };
    let mut ranked = alive.to_vec();
    ranked.sort_by(|&a, &b| over_best(a).total_cmp(&over_best(b)));
    let least = options.least.max(1);
    let most = ((options.most * ranked.len() as f64).ceil() as usize).max(least);
    let mut kept: Vec<usize> = ranked
        .iter()
        .enumerate()
        .filter(|&(rank, &place)| rank < least || (rank < most && may_win(place)))
        .map(|(_, &place)| place)
        .collect();
    kept.sort_unstable();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entrant(levels: &[f64]) -> Entrant {
        let probes = levels.iter().zip([0.1, 0.2]).map(|(level, at)| (at, *level)).collect();
        Entrant { probes, ..Entrant::new(Vec::new()) }
    }

    #[test]
    fn what_cannot_win_is_stopped_and_what_has_no_band_decides_nothing() {
        // The better half changes alike, so that the last is far behind for good.
        let levels = [[0.0, -0.5], [0.1, -0.42], [0.0, -0.45], [0.1, -0.4], [0.2, -0.4], [2.0, 1.5]];
        let mut entrants: Vec<Entrant> = levels.iter().map(|levels| entrant(levels)).collect();
        let alive: Vec<usize> = (0..entrants.len()).collect();
        judge(&mut entrants, &alive, 0.2);
        let all = SweepOptions { least: 2, most: 1.0, ..SweepOptions::default() };
        assert_eq!(survivors(&entrants, &alive, &all), [0, 1, 2, 3, 4]);
        let half = SweepOptions { least: 2, ..SweepOptions::default() };
        assert_eq!(survivors(&entrants, &alive, &half), [0, 1, 2]);
        // Three runs have a better half of two, whose changes say nothing.
        let (mut few, alive) = (entrants[3..].to_vec(), [0, 1, 2]);
        judge(&mut few, &alive, 0.2);
        assert!(few.iter().all(|entrant| entrant.standing.is_some_and(|standing| standing.band.is_none())));
        assert_eq!(survivors(&few, &alive, &all), [0, 1, 2]);
    }

    /// A rate at which losses become no numbers never wins, and does not end the sweep; with the engine or
    /// without it.
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
            let interrupted = AtomicBool::new(false);
            let options = SweepOptions { least: 2, ..SweepOptions::default() };
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
        let options = SweepOptions { least: 2, ..SweepOptions::default() };
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
        // Sweeping again finds all of it done, and says the same.
        let again =
            super::sweep(&configurations, &prepared, folder.path(), &options, &(), &interrupted).unwrap();
        assert_eq!((again.winner, again.compute), (sweep.winner, sweep.compute));
        // What survived is what training it without a break gives.
        let winner = sweep.winner.unwrap();
        let mut whole = Run::start(&configurations[winner].1, &prepared, None).unwrap();
        let alone = whole.finish(&(), &interrupted, &mut ()).unwrap();
        let loss = |summary: &Summary| summary.last().unwrap().trained.loss.to_bits();
        assert_eq!(loss(sweep.entrants[winner].summary.as_ref().unwrap()), loss(&alone));
    }
}
