//! Which configuration to try next.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::record::tuning::{Strategy, Trial};
use crate::space::{Configuration, Knob, Layer, Space};

/// Trials between two choices of the elite.
const GENERATION: usize = 8;
/// Chances of a new child before the search takes what it has not tried yet.
const ATTEMPTS: usize = 64;
/// How often a child has two parents.
const CROSSOVER: f64 = 0.5;
/// How often a mutation changes the algorithm rather than its sizes.
const MACRO_MUTATION: f64 = 0.25;

/// A search. What it proposes follows from its seed and the trials so far, so that a search that was stopped
/// goes on as if it had not been.
#[derive(Debug)]
pub struct Search {
    space: Space,
    default: Configuration,
    strategy: Strategy,
    seed: u64,
    elite_size: usize,
}

impl Search {
    /// A search of `space` from its default, that keeps the `elite_size` best.
    pub fn new(
        space: Space,
        default: Configuration,
        strategy: Strategy,
        seed: u64,
        elite_size: usize,
    ) -> Self {
        Self { space, default, strategy, seed, elite_size: elite_size.max(1) }
    }

    /// The space.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Where it starts.
    pub fn default_configuration(&self) -> &Configuration {
        &self.default
    }

    pub(super) fn strategy(&self) -> Strategy {
        self.strategy
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// The best of `trials` that were timed, best first, with their places in it.
    pub fn elite<'a>(&self, trials: &'a [Trial]) -> Vec<(usize, &'a Trial)> {
        let mut timed: Vec<(f64, usize, &Trial)> = trials
            .iter()
            .enumerate()
            .filter_map(|(index, trial)| Some((trial.score()?.ratio, index, trial)))
            .collect();
        timed.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
        timed.truncate(self.elite_size);
        timed.into_iter().map(|(_, index, trial)| (index, trial)).collect()
    }

    /// The next configuration to try; none once all were tried.
    pub fn propose(&self, trials: &[Trial]) -> Option<Configuration> {
        let is_new = |found: &Configuration| trials.iter().all(|trial| trial.configuration != *found);
        if is_new(&self.default) {
            return Some(self.default.clone());
        }
        if self.strategy == Strategy::Evolution {
            let mut random = self.random(trials.len());
            if let Some(child) = self.child(trials, &mut random, &is_new) {
                return Some(child);
            }
        }
        self.space.configurations().find(is_new)
    }

    fn child(
        &self,
        trials: &[Trial],
        random: &mut ChaCha8Rng,
        is_new: &dyn Fn(&Configuration) -> bool,
    ) -> Option<Configuration> {
        let complete = trials.len() / GENERATION * GENERATION;
        let elite = self.elite(&trials[..complete]);
        let parents: Vec<&Configuration> = elite.iter().map(|(_, trial)| &trial.configuration).collect();
        if parents.is_empty() {
            return self.pioneer(random, is_new);
        }
        (0..ATTEMPTS)
            .map(|_| self.bred(&parents, random))
            .find(|child| self.space.contains(child) && is_new(child))
    }

    /// The first generation, before there is anything to breed from: every algorithm with the default's
    /// sizes, then anything.
    fn pioneer(
        &self,
        random: &mut ChaCha8Rng,
        is_new: &dyn Fn(&Configuration) -> bool,
    ) -> Option<Configuration> {
        let keeps_sizes = |found: &Configuration| {
            let micro = self.space.knobs().iter().filter(|knob| knob.layer == Layer::Micro);
            micro.into_iter().all(|knob| found.get(&knob.name) == self.default.get(&knob.name))
        };
        let has_algorithms = self.space.knobs().iter().any(|knob| knob.layer == Layer::Macro);
        let other_algorithm = has_algorithms
            .then(|| self.space.configurations().find(|found| keeps_sizes(found) && is_new(found)))
            .flatten();
        other_algorithm.or_else(|| {
            let everywhere = |random: &mut ChaCha8Rng| {
                self.space
                    .knobs()
                    .iter()
                    .fold(self.default.clone(), |found, knob| redrawn(found, knob, random))
            };
            (0..ATTEMPTS)
                .map(|_| everywhere(random))
                .find(|found| self.space.contains(found) && is_new(found))
        })
    }

    fn bred(&self, parents: &[&Configuration], random: &mut ChaCha8Rng) -> Configuration {
        let pick = |random: &mut ChaCha8Rng| parents[random.random_range(0..parents.len())];
        let first = pick(random);
        if parents.len() > 1 && random.random::<f64>() < CROSSOVER {
            let child = self.crossed(first, pick(random), random);
            // Often the parents are so alike that only a mutation makes the child new.
            if random.random::<bool>() { child } else { self.mutated(child, random) }
        } else {
            self.mutated(first.clone(), random)
        }
    }

    /// The algorithm of the first parent, with sizes of both.
    fn crossed(
        &self,
        first: &Configuration,
        second: &Configuration,
        random: &mut ChaCha8Rng,
    ) -> Configuration {
        let micro = self.space.knobs().iter().filter(|knob| knob.layer == Layer::Micro);
        micro.into_iter().fold(first.clone(), |child, knob| match second.get(&knob.name) {
            Some(value) if random.random::<bool>() => child.with(&knob.name, value.clone()),
            _ => child,
        })
    }

    /// One knob redrawn: of the algorithm now and then, else of the sizes.
    fn mutated(&self, configuration: Configuration, random: &mut ChaCha8Rng) -> Configuration {
        let of = |layer: Layer| -> Vec<&Knob> {
            self.space.knobs().iter().filter(|knob| knob.layer == layer && knob.values.len() > 1).collect()
        };
        let (algorithms, sizes) = (of(Layer::Macro), of(Layer::Micro));
        let use_macro =
            sizes.is_empty() || (!algorithms.is_empty() && random.random::<f64>() < MACRO_MUTATION);
        let knobs = if use_macro { algorithms } else { sizes };
        match knobs.len() {
            0 => configuration,
            count => redrawn(configuration, knobs[random.random_range(0..count)], random),
        }
    }

    /// A generator of its own for every trial: what is drawn does not depend on when the search was stopped.
    fn random(&self, trial: usize) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(trial as u64);
        random
    }
}

fn redrawn(configuration: Configuration, knob: &Knob, random: &mut ChaCha8Rng) -> Configuration {
    let value = knob.values[random.random_range(0..knob.values.len())].clone();
    configuration.with(&knob.name, value)
}
