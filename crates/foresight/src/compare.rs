//! The engine against the plain loop, each tuned at its own length.

use std::sync::atomic::AtomicBool;

use gatework_contract::Observer;
use serde::Serialize;

use crate::config::{Config, EngineSection, Prepared};
use crate::error::{Error, Result};
use crate::run::{Run, Summary, comparable};
use crate::student::mean_and_reach;

/// How many seeds are compared, and how plain loops are tuned.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareOptions {
    /// Seeds that all arms are run with.
    pub seeds: Vec<u64>,
    /// Factors of the configured learning rate that the plain loops are tuned over, and beyond where the best
    /// is at an edge; one factor tunes nothing.
    pub factors: Vec<f64>,
    /// Seeds that tuning is done with, and that say how long the shortened loop is: none of those that are
    /// compared.
    pub tuning_seeds: Vec<u64>,
}

/// One way to train, run with every seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arm {
    /// The name of the arm.
    pub name: String,
    /// Steps of its schedule.
    pub steps: u64,
    /// Its learning rate.
    pub rate: f64,
    /// Rates that were tried, and the loss of averaged weights on the probe that each came to.
    pub tried: Vec<(f64, f64)>,
    /// The result of every seed.
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
    /// The median of the ratios of seconds, seed by seed.
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
    if options.seeds.is_empty() || options.factors.is_empty() || options.tuning_seeds.is_empty() {
        return Err(Error::config(
            "a comparison needs at least one seed, one seed to tune with and one factor of the learning rate",
        ));
    }
    if let Some(both) = options.tuning_seeds.iter().find(|seed| options.seeds.contains(seed)) {
        return Err(Error::config(format!(
            "seed {both} is tuned with and compared with: use others to tune"
        )));
    }
    let bench = Bench { prepared, options, observer, interrupted };
    // What keeps the engine from being made is said before anything is tuned.
    let mut engine = config.clone();
    engine.engine.enabled = true;
    prepared.engine(&engine, &prepared.trainee(&engine)?)?;
    let tuned = bench.tune("plain", &Config { engine: without_engine(config), ..config.clone() })?;
    // The engine gets the rate that is best for the plain loop, not for itself.
    engine.optimiser.learning_rate = tuned.config.optimiser.learning_rate;
    let cost = bench.cost(&engine)?;
    let short =
        Config { steps: (cost.ceil() as u64).max(1), engine: without_engine(config), ..config.clone() };
    let short = bench.tune("plain, shortened", &short)?;
    let engine = Tuned { name: "engine", config: engine, tried: Vec::new() };
    let arms = bench.run(vec![engine, tuned, short])?;
    let ratios = arms[1..].iter().map(|other| ratio(&arms[0], other)).collect();
    Ok(Comparison { arms, ratios })
}

fn without_engine(config: &Config) -> EngineSection {
    EngineSection { enabled: false, ..config.engine.clone() }
}

struct Bench<'a> {
    prepared: &'a Prepared,
    options: &'a CompareOptions,
    observer: &'a dyn Observer,
    interrupted: &'a AtomicBool,
}

/// An arm before it is run.
struct Tuned {
    name: &'static str,
    config: Config,
    tried: Vec<(f64, f64)>,
}

/// Times that a grid of rates is extended beyond its edge.
const EXTENSIONS: usize = 4;

impl Bench<'_> {
    /// Finds the best rate. Where that is the lowest or the highest of the grid, the grid goes on there by
    /// its own ratio.
    fn tune(&self, name: &'static str, config: &Config) -> Result<Tuned> {
        let _stage = self.observer.stage("tuning");
        let base = config.optimiser.learning_rate;
        let with = |rate: f64| {
            let mut config = config.clone();
            config.optimiser.learning_rate = rate;
            config
        };
        let mut rates: Vec<f64> = self.options.factors.iter().map(|factor| base * factor).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        if rates.len() < 2 {
            return Ok(Tuned { name, config: with(rates[0]), tried: Vec::new() });
        }
        let mut tried = Vec::new();
        for &rate in &rates {
            tried.push((rate, self.probe_loss(&with(rate))?));
        }
        for _ in 0..EXTENSIONS {
            let (first, last) = (0, tried.len() - 1);
            let best = best(&tried);
            let rate = if best == first {
                tried[first].0 * tried[first].0 / tried[first + 1].0
            } else if best == last && tried[last].1.is_finite() {
                tried[last].0 * tried[last].0 / tried[last - 1].0
            } else {
                break;
            };
            let place = if best == first { 0 } else { tried.len() };
            tried.insert(place, (rate, self.probe_loss(&with(rate))?));
        }
        Ok(Tuned { name, config: with(tried[best(&tried)].0), tried })
    }

    /// The mean loss of averaged weights on the probe, over the seeds that are tuned with.
    fn probe_loss(&self, config: &Config) -> Result<f64> {
        let mut sum = 0.0;
        for &seed in &self.options.tuning_seeds {
            let run = self.train(&Config { seed, ..config.clone() })?;
            sum += run.last().map_or(f64::INFINITY, |last| last.probe);
        }
        Ok(sum / self.options.tuning_seeds.len().max(1) as f64)
    }

    /// The mean of full-backward equivalents, over the seeds that are tuned with.
    fn cost(&self, config: &Config) -> Result<f64> {
        let mut sum = 0.0;
        for &seed in &self.options.tuning_seeds {
            sum += self.train(&Config { seed, ..config.clone() })?.ledger.total().equivalents;
        }
        Ok(sum / self.options.tuning_seeds.len() as f64)
    }

    /// Runs all arms with every seed: seed by seed, and within a seed arm by arm from another one each time,
    /// so that all of them see the same machine.
    fn run(&self, tuned: Vec<Tuned>) -> Result<Vec<Arm>> {
        let stage = self.observer.stage("comparing");
        let mut runs: Vec<Vec<Summary>> = tuned.iter().map(|_| Vec::new()).collect();
        for (turn, &seed) in self.options.seeds.iter().enumerate() {
            stage.counted("seeds", turn as u64, Some(self.options.seeds.len() as u64));
            for place in 0..tuned.len() {
                let arm = (turn + place) % tuned.len();
                runs[arm].push(self.train(&Config { seed, ..tuned[arm].config.clone() })?);
            }
        }
        let arms = tuned.into_iter().zip(runs).map(|(Tuned { name, config, tried }, runs)| Arm {
            name: name.to_owned(),
            steps: config.steps,
            rate: config.optimiser.learning_rate,
            tried,
            runs,
        });
        Ok(arms.collect())
    }

    fn train(&self, config: &Config) -> Result<Summary> {
        Run::start(config, self.prepared, None)?.finish(self.observer, self.interrupted, &mut ())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    if count == 0 { f64::NAN } else { 0.5 * (values[(count - 1) / 2] + values[count / 2]) }
}

/// The place of the lowest loss. A rate that diverges comes to no number, which is more than any.
fn best(tried: &[(f64, f64)]) -> usize {
    let losses = tried.iter().map(|(_, loss)| comparable(*loss)).enumerate();
    losses.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(place, _)| place)
}

fn ratio(engine: &Arm, other: &Arm) -> Ratio {
    let logs: Vec<f64> = engine.losses().iter().zip(other.losses()).map(|(a, b)| (a / b).ln()).collect();
    let (mean, reach) = mean_and_reach(&logs);
    let time = |run: &Summary| run.ledger.total().seconds;
    let seconds = engine.runs.iter().zip(&other.runs).map(|(a, b)| time(a) / time(b));
    Ratio {
        over: other.name.clone(),
        loss: mean.exp(),
        loss_upper: reach.map(|reach| (mean + reach).exp()),
        equivalents: engine.equivalents() / other.equivalents(),
        seconds: median(seconds.collect()),
    }
}

#[cfg(test)]
mod tests {
    use gatework_contract::Notice;

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
        assert_eq!((engine.runs.len(), engine.rate), (2, plain.rate));
        // The best rate is not at the edge of what was tried, unless that was extended as often as it may be.
        for arm in [plain, short] {
            let at = best(&arm.tried);
            let inside = at > 0 && at + 1 < arm.tried.len();
            assert!(inside || arm.tried.len() == 2 + EXTENSIONS, "{:?}", arm.tried);
            assert!(arm.tried.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
        assert!((short.steps as f64 / engine.equivalents() - 1.0).abs() < 0.1);
        assert_eq!(plain.equivalents(), 120.0);
        assert!(
            comparison.ratios.iter().all(|ratio| ratio.loss > 0.0 && ratio.loss_upper.unwrap() >= ratio.loss)
        );
        // An engine that cannot be made is found out before anything begins.
        let nothing = |notice: Notice<'_>| panic!("{notice:?}");
        let mut hopeless = config.clone();
        hopeless.engine.options.snapshots = 1;
        let said = compare(&hopeless, &prepared, &options, &nothing, &interrupted).unwrap_err().to_string();
        assert!(said.contains("'engine.options.snapshots' is below 2"), "{said}");
        let same = CompareOptions { tuning_seeds: vec![2], ..options };
        assert!(
            compare(&config, &prepared, &same, &(), &interrupted).unwrap_err().to_string().contains("seed 2")
        );
    }
}
