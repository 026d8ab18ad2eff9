//! Features on one scale, learnt as they come.

use serde::{Deserialize, Serialize};

use super::features::{FEATURES, Features};

/// After so many steps old ones are forgotten at this rate.
pub(crate) const MEMORY: f64 = 1000.0;
/// Nothing is further out than this.
pub(crate) const BOUND: f64 = 5.0;

/// Running means and variances: `(x − mean) / deviation`, with the mean and the deviation of what came before
/// and `x` itself, at weights of `1/n` up to `n = 1000`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Normaliser {
    count: f64,
    mean: Vec<f64>,
    variance: Vec<f64>,
}

impl Default for Normaliser {
    fn default() -> Self {
        Self { count: 0.0, mean: vec![0.0; FEATURES], variance: vec![0.0; FEATURES] }
    }
}

impl Normaliser {
    /// How many [`Self::numbers`] there are.
    #[cfg(feature = "cuda")]
    pub(crate) const NUMBERS: usize = 2 * FEATURES + 1;

    /// Means, variances and the count, one after another.
    #[cfg(feature = "cuda")]
    pub(crate) fn numbers(&self) -> Vec<f64> {
        self.mean.iter().chain(&self.variance).chain([&self.count]).copied().collect()
    }

    /// Takes in one step's features and returns them normalised, within ±5.
    pub fn take(&mut self, raw: &Features) -> [f32; FEATURES] {
        self.count = (self.count + 1.0).min(MEMORY);
        let weight = 1.0 / self.count;
        let moments = self.mean.iter_mut().zip(&mut self.variance);
        let mut found = [0.0; FEATURES];
        for ((found, x), (mean, variance)) in found.iter_mut().zip(raw).zip(moments) {
            let before = x - *mean;
            *mean += weight * before;
            *variance += weight * (before * (x - *mean) - *variance);
            let deviation = variance.max(0.0).sqrt();
            *found = if deviation > 1e-9 {
                ((x - *mean) / deviation).clamp(-BOUND, BOUND) as f32
            } else {
                // Nothing has varied yet.
                0.0
            };
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn any_scale_becomes_one() {
        let mut normaliser = Normaliser::default();
        let mut random = Random::new(1, "normaliser");
        let mut squares = 0.0;
        for step in 0..3000 {
            let raw =
                std::array::from_fn(|i| 1e3 * i as f64 + 10f64.powi(i as i32 % 7 - 3) * random.normal());
            let found = normaliser.take(&raw);
            assert!(found.iter().all(|x| x.is_finite() && x.abs() <= 5.0));
            if step >= 1000 {
                squares += found.iter().map(|x| f64::from(x * x)).sum::<f64>() / (2000.0 * FEATURES as f64);
            }
        }
        assert!((squares - 1.0).abs() < 0.1, "{squares}");
    }
}
