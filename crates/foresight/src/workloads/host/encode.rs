//! `foresight/encode-host`: the features of a run on one scale, tick after tick.

use gatework_lab::{Case, Inputs, Outputs, RunError, Work};

use super::{Job, Ready};
use crate::state::{FEATURES, Normaliser};

#[derive(Clone, Copy)]
pub(super) struct Encode;

fn case(ticks: usize) -> Case {
    Case::new(format!("{ticks}-ticks")).with("ticks", ticks)
}

/// Features of very different sizes, and one that never changes.
fn features(case: &Case, seed: u64) -> Vec<[f64; FEATURES]> {
    let mut inputs = Inputs::new(seed);
    let tick = |_| {
        let numbers = inputs.normal(FEATURES);
        std::array::from_fn(|i| match i {
            0 => 3.0,
            _ => 10f64.powi(i as i32 % 7 - 3) * (f64::from(numbers[i]) + i as f64),
        })
    };
    (0..case.dimension("ticks")).map(tick).collect()
}

/// `(x − mean) / deviation` of all ticks up to each, within ±5, in two passes over them.
fn plain(ticks: &[[f64; FEATURES]], least: f64) -> Outputs {
    let mut found = vec![0.0f32; ticks.len() * FEATURES];
    for tick in 0..ticks.len() {
        for feature in 0..FEATURES {
            let values: Vec<f64> = ticks[..=tick].iter().map(|tick| tick[feature]).collect();
            let count = values.len() as f64;
            let mean = values.iter().sum::<f64>() / count;
            let deviation = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - least)).sqrt();
            if deviation > 1e-9 {
                let out = (values[tick] - mean) / deviation;
                found[tick * FEATURES + feature] = out.clamp(-5.0, 5.0) as f32;
            }
        }
    }
    Outputs::new().with("features", found)
}

impl Job for Encode {
    fn name(&self) -> &'static str {
        "foresight/encode-host"
    }

    fn summary(&self) -> &'static str {
        "64 features of every tick, on the scale of the ticks so far"
    }

    fn cases(&self) -> Vec<Case> {
        [2, 3, 40, 200].map(case).to_vec()
    }

    fn timed(&self) -> Case {
        case(200)
    }

    fn shipped(&self, case: &Case, seed: u64) -> Result<Ready, RunError> {
        let ticks = features(case, seed);
        Ok(Box::new(move || {
            let mut normaliser = Normaliser::default();
            let found: Vec<f32> = ticks.iter().flat_map(|tick| normaliser.take(tick)).collect();
            Ok(Outputs::new().with("features", found))
        }))
    }

    fn plain(&self, case: &Case, seed: u64) -> Ready {
        let ticks = features(case, seed);
        Box::new(move || Ok(plain(&ticks, 0.0)))
    }

    fn within(&self, _: &Case) -> [f64; 2] {
        [1e-5, 1e-4]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> (&'static str, Ready) {
        let ticks = features(case, seed);
        ("deviations over one less", Box::new(move || Ok(plain(&ticks, 1.0))))
    }

    fn work(&self, case: &Case) -> Work {
        let numbers = (case.dimension("ticks") * FEATURES) as u64;
        Work { operations: 12 * numbers, bytes: 12 * numbers }
    }

    fn promise(&self) -> f64 {
        0.2
    }
}
