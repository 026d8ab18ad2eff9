//! The engine against the plain loop, each tuned at its own length.

use std::sync::atomic::AtomicBool;

use gatework_contract::Observer;
use serde::Serialize;

use crate::config::{Config, Prepared};
use crate::error::{Error, Result};
use crate::run::{Run, Summary, comparable};

/// What is compared, and how carefully.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareOptions {
    /// Seeds that all arms are run with.
    pub seeds: Vec<u64>,
    /// Factors of the configured learning rate that the plain loops are tuned over; one factor tunes nothing.
    pub factors: Vec<f64>,
    /// Seeds that tuning is done with: none of those that are compared.
    pub tuning_seeds: Vec<u64>,
}

/// One way to train, run with every seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arm {
    /// What it is.
    pub name: String,
    /// Steps of its schedule.
    pub steps: u64,
    /// Its learning rate.
    pub rate: f64,
    /// Rates that were tried, and the loss of averaged weights on the probe that each came to.
    pub tried: Vec<(f64, f64)>,
    /// What every seed came to.
    pub runs: Vec<Summary>,
}

/// How an arm does against another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// The other arm.
    pub over: String,
    /// The geometric mean of the ratios of final validation losses of averaged weights, seed by seed.
    pub loss: f64,
    /// The upper end of the one-sided 95 % interval of that; none for one seed.
    pub loss_upper: Option<f64>,
    /// The ratio of full-backward equivalents.
    pub equivalents: f64,
    /// The ratio of seconds.
    pub seconds: f64,
}

/// All arms: the engine, the plain loop, and the plain loop with its schedule shortened to the engine's cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The three arms.
    pub arms: Vec<Arm>,
    /// The engine over each of the others.
    pub ratios: Vec<Ratio>,
}

impl Arm {
    /// The final validation losses of averaged weights, one a seed.
    pub fn losses(&self) -> Vec<f64> {
        self.runs.iter().filter_map(|run| Some(run.last()?.averaged.loss)).collect()
    }

    fn mean(&self, of: impl Fn(&Summary) -> f64) -> f64 {
        self.runs.iter().map(of).sum::<f64>() / self.runs.len().max(1) as f64
    }

    /// Mean full-backward equivalents of a run.
    pub fn equivalents(&self) -> f64 {
        self.mean(|run| run.ledger.total().equivalents)
    }

    /// Mean seconds of a run.
    pub fn seconds(&self) -> f64 {
        self.mean(|run| run.ledger.total().seconds)
    }

    /// Mean seconds of the predictor.
    pub fn predictor_seconds(&self) -> f64 {
        self.mean(|run| run.ledger.total().predictor_seconds)
    }
}

/// Trains everything that a comparison is made of.
pub fn compare(
    config: &Config,
    prepared: &Prepared,
    options: &CompareOptions,
    observer: &dyn Observer,
    interrupted: &AtomicBool,
) -> Result<Comparison> {
    if options.seeds.is_empty() || options.factors.is_empty() {
        return Err(Error::config(
            "a comparison needs at least one seed and one factor of the learning rate",
        ));
    }
    if let Some(both) = options.tuning_seeds.iter().find(|seed| options.seeds.contains(seed)) {
        return Err(Error::config(format!(
            "seed {both} is tuned with and compared with: use others to tune"
        )));
    }
    let bench = Bench { prepared, options, observer, interrupted };
    let mut plain = config.clone();
    plain.engine.enabled = false;
    let plain = bench.arm("plain", plain)?;
    // The engine gets the rate that is best for the plain loop, not for itself.
    let mut with_engine = config.clone();
    with_engine.engine.enabled = true;
    with_engine.optimiser.learning_rate = plain.rate;
    let engine = bench.run("engine", with_engine, Vec::new())?;
    let mut short = config.clone();
    short.engine.enabled = false;
    short.steps = (engine.equivalents().round() as u64).max(1);
    let short = bench.arm("plain, shortened", short)?;
    let ratios = [&plain, &short].map(|other| ratio(&engine, other)).to_vec();
    Ok(Comparison { arms: vec![engine, plain, short], ratios })
}

struct Bench<'a> {
    prepared: &'a Prepared,
    options: &'a CompareOptions,
    observer: &'a dyn Observer,
    interrupted: &'a AtomicBool,
}

impl Bench<'_> {
    /// Tunes the rate, then runs with every seed.
    fn arm(&self, name: &str, mut config: Config) -> Result<Arm> {
        let mut tried = Vec::new();
        if self.options.factors.len() > 1 {
            let base = config.optimiser.learning_rate;
            for factor in &self.options.factors {
                config.optimiser.learning_rate = base * factor;
                let mut sum = 0.0;
                for &seed in &self.options.tuning_seeds {
                    let run = self.train(&Config { seed, ..config.clone() })?;
                    sum += run.last().map_or(f64::INFINITY, |last| last.probe);
                }
                tried.push((
                    config.optimiser.learning_rate,
                    sum / self.options.tuning_seeds.len().max(1) as f64,
                ));
            }
            // A rate that diverges comes to no number, which is more than any.
            let best = tried
                .iter()
                .min_by(|a, b| comparable(a.1).total_cmp(&comparable(b.1)))
                .map_or(base, |best| best.0);
            config.optimiser.learning_rate = best;
        }
        self.run(name, config, tried)
    }

    fn run(&self, name: &str, config: Config, tried: Vec<(f64, f64)>) -> Result<Arm> {
        let stage = self.observer.stage(name);
        let mut runs = Vec::new();
        for &seed in &self.options.seeds {
            stage.counted("seeds", runs.len() as u64, Some(self.options.seeds.len() as u64));
            runs.push(self.train(&Config { seed, ..config.clone() })?);
        }
        let (steps, rate) = (config.steps, config.optimiser.learning_rate);
        Ok(Arm { name: name.to_owned(), steps, rate, tried, runs })
    }

    fn train(&self, config: &Config) -> Result<Summary> {
        Run::start(config, self.prepared, None)?.finish(self.observer, self.interrupted, &mut ())
    }
}

fn ratio(engine: &Arm, other: &Arm) -> Ratio {
    let logs: Vec<f64> = engine.losses().iter().zip(other.losses()).map(|(a, b)| (a / b).ln()).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let deviation = (logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let upper = student(logs.len()).map(|t| (mean + t * deviation / n.sqrt()).exp());
    Ratio {
        over: other.name.clone(),
        loss: mean.exp(),
        loss_upper: upper,
        equivalents: engine.equivalents() / other.equivalents(),
        seconds: engine.seconds() / other.seconds(),
    }
}

/// Student's t at 95 % for the mean of `n` values, that is at `n − 1` degrees of freedom; between the entries of the table
/// the larger one.
fn student(n: usize) -> Option<f64> {
    const TABLE: [(usize, f64); 14] = [
        (1, 6.314),
        (2, 2.920),
        (3, 2.353),
        (4, 2.132),
        (5, 2.015),
        (6, 1.943),
        (7, 1.895),
        (8, 1.860),
        (9, 1.833),
        (10, 1.812),
        (15, 1.753),
        (19, 1.729),
        (30, 1.697),
        (60, 1.671),
    ];
    let degrees = n.checked_sub(1).filter(|degrees| *degrees > 0)?;
    TABLE.iter().rev().find(|(known, _)| *known <= degrees).map(|(_, t)| *t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_arms_are_trained_and_the_short_one_costs_what_the_engine_does() {
        let text = "steps = 120\n[model]\nhidden = [16, 16]\n[engine.options]\nwarmup_steps = 16\ndecide_every = 8\n\
                    explore_every = 1\nrisk = 10\nconfidence_threshold = 0\n[world]\nmembers = 2\nhidden = 8\ncategories = 2\nclasses = 2";
        let config = Config::preset("digits").unwrap().with_text("test", text).unwrap();
        let prepared = Prepared::of(&config, |_| ()).unwrap();
        let options = CompareOptions { seeds: vec![1, 2], factors: vec![0.1, 1.0], tuning_seeds: vec![9] };
        let interrupted = AtomicBool::new(false);
        let comparison = compare(&config, &prepared, &options, &(), &interrupted).unwrap();
        let [engine, plain, short] = &comparison.arms[..] else { panic!("three arms") };
        assert_eq!((engine.runs.len(), plain.tried.len(), engine.rate), (2, 2, plain.rate));
        assert_eq!(short.steps, engine.equivalents().round() as u64);
        assert_eq!(plain.equivalents(), 120.0);
        assert!(
            comparison.ratios.iter().all(|ratio| ratio.loss > 0.0 && ratio.loss_upper.unwrap() >= ratio.loss)
        );
        let same = CompareOptions { tuning_seeds: vec![2], ..options };
        assert!(
            compare(&config, &prepared, &same, &(), &interrupted).unwrap_err().to_string().contains("seed 2")
        );
    }

    #[test]
    fn the_quantile_of_students_t_is_never_too_small() {
        assert_eq!([student(1), student(2), student(20)], [None, Some(6.314), Some(1.729)]);
        assert_eq!(student(13), Some(1.812));
    }
}
