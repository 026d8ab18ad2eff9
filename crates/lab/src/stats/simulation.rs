//! The rules against simulated noise: how often they are wrong, over thousands of trials.

use std::f64::consts::TAU;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::*;

/// What a measuring machine does to a time of 1.
#[derive(Clone, Copy, Debug)]
enum Noise {
    /// One percent, normal.
    Normal,
    /// One percent with the tails of a Cauchy distribution: no variance, no mean.
    Cauchy,
    /// One percent, and one sample in ten up to three times as long.
    Outliers,
    /// One percent on a machine that heats up by a tenth over the run.
    Drift,
    /// One percent on clocks that swing by a twentieth.
    Swing,
    /// Two clocks, three percent apart, for a few samples each.
    Steps,
}

const ALL: [Noise; 6] =
    [Noise::Normal, Noise::Cauchy, Noise::Outliers, Noise::Drift, Noise::Swing, Noise::Steps];

impl Noise {
    /// A sample of something whose true time is `time`, taken when `progress` of the run is over.
    fn sample(self, random: &mut ChaCha8Rng, time: f64, progress: f64) -> f64 {
        let normal: f64 = random.sample(StandardNormal);
        let plain = time * (0.01 * normal).exp();
        match self {
            Self::Normal => plain,
            Self::Cauchy => {
                let angle = std::f64::consts::PI * (random.random::<f64>() - 0.5);
                time * (0.01 * angle.tan()).clamp(-0.9, 100.0).exp()
            }
            Self::Outliers if random.random::<f64>() < 0.1 => plain * (1.0 + 2.0 * random.random::<f64>()),
            Self::Outliers => plain,
            Self::Drift => plain * (1.0 + 0.1 * progress),
            Self::Swing => plain * (1.0 + 0.05 * (TAU * 7.0 * progress).sin()),
            Self::Steps => plain * if ((progress * 23.0) as u64).is_multiple_of(2) { 1.0 } else { 1.03 },
        }
    }
}

struct Trial {
    baseline: Samples,
    candidate: Samples,
}

impl Trial {
    fn new(noise: Noise, slowdown: f64, pairs: usize, seed: u64) -> Self {
        let mut trial = Self { baseline: Samples::default(), candidate: Samples::default() };
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for pair in 0..pairs {
            trial.take_pair(noise, slowdown, pair as f64 / pairs as f64, &mut random);
        }
        trial
    }

    fn take_pair(&mut self, noise: Noise, slowdown: f64, progress: f64, random: &mut ChaCha8Rng) {
        if random.random::<bool>() {
            self.baseline.push(noise.sample(random, 1.0, progress));
            self.candidate.push(noise.sample(random, slowdown, progress));
        } else {
            self.candidate.push(noise.sample(random, slowdown, progress));
            self.baseline.push(noise.sample(random, 1.0, progress));
        }
    }

    fn verdict(&self) -> Verdict {
        let ratio = paired_ratio(self.baseline.values(), self.candidate.values(), CONFIDENCE);
        Verdict::of(ratio, WITHIN_RUN)
    }
}

fn share(trials: u64, happens: impl Fn(u64) -> bool) -> f64 {
    (0..trials).filter(|&seed| happens(seed)).count() as f64 / trials as f64
}

#[test]
fn false_slower_is_below_one_percent_for_every_noise() {
    for noise in ALL {
        let slower = share(3000, |seed| Trial::new(noise, 1.0, 100, seed).verdict() == Verdict::Slower);
        assert!(slower < 0.01, "{noise:?}: {slower}");
    }
}

#[test]
fn a_slowdown_of_five_percent_at_one_percent_noise_is_found() {
    for noise in ALL {
        let found = share(2000, |seed| Trial::new(noise, 1.05, 100, seed).verdict() == Verdict::Slower);
        assert!(found > 0.99, "{noise:?}: {found}");
    }
}

#[test]
fn a_speed_up_is_found_as_surely() {
    let found = share(1000, |seed| Trial::new(Noise::Outliers, 0.95, 100, seed).verdict() == Verdict::Faster);
    assert!(found > 0.99, "{found}");
}

#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    for noise in [Noise::Normal, Noise::Cauchy, Noise::Outliers] {
        let held = share(3000, |seed| {
            let trial = Trial::new(noise, 1.3, 100, seed);
            let ratio = paired_ratio(trial.baseline.values(), trial.candidate.values(), CONFIDENCE).unwrap();
            ratio.low <= 1.3 && 1.3 <= ratio.high
        });
        assert!(held >= 0.985, "{noise:?}: {held}");
    }
}

/// Looking at the samples again and again until they say something is how noise becomes a finding.
#[test]
fn stopping_early_does_not_make_false_slower_more_likely() {
    let rule = StopRule::new(400, Duration::MAX);
    for noise in [Noise::Normal, Noise::Outliers, Noise::Drift] {
        let slower = share(1000, |seed| {
            let mut trial = Trial::new(noise, 1.0, 0, seed);
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            while rule.stop(&trial.baseline, &trial.candidate, None, Duration::ZERO).is_none() {
                for pair in 0..20 {
                    let progress = (trial.baseline.len() + pair) as f64 / 400.0;
                    trial.take_pair(noise, 1.0, progress, &mut random);
                }
            }
            trial.verdict() == Verdict::Slower
        });
        assert!(slower < 0.01, "{noise:?}: {slower}");
    }
}

#[test]
fn two_runs_of_the_same_thing_are_rarely_slower_and_a_real_slowdown_is() {
    let verdict = |slowdown: f64, seed: u64| {
        let first = Trial::new(Noise::Outliers, 1.0, 100, 2 * seed).candidate;
        let second = Trial::new(Noise::Outliers, slowdown, 100, 2 * seed + 1).candidate;
        Verdict::of(ratio_of_medians(first.values(), second.values(), CONFIDENCE), BETWEEN_RUNS)
    };
    assert!(share(2000, |seed| verdict(1.0, seed) == Verdict::Slower) < 0.01);
    assert!(share(1000, |seed| verdict(1.05, seed) == Verdict::Slower) > 0.99);
}
