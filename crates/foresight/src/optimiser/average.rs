//! The exponential moving average of weights.

use serde::{Deserialize, Serialize};

/// `a_t = d_t a_{t−1} + (1 − d_t) w_t` with `d_t = min(decay, t / (t + 10))`: early on the average is of what
/// there is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Average {
    decay: f32,
    steps: u64,
    weights: Vec<f32>,
}

impl Average {
    /// Becomes as another one, in the memory that it has.
    pub(crate) fn copy(&mut self, other: &Self) {
        (self.decay, self.steps) = (other.decay, other.steps);
        self.weights.clone_from(&other.weights);
    }

    /// Whether it is an average of so many weights, which can go on.
    pub(crate) fn is_of(&self, weights: usize) -> bool {
        self.weights.len() == weights && self.steps < u64::MAX
    }

    /// Begins at `weights`.
    pub fn new(decay: f32, weights: &[f32]) -> Self {
        Self { decay, steps: 0, weights: weights.to_vec() }
    }

    /// After so many steps.
    #[cfg(feature = "cuda")]
    pub(crate) fn of(decay: f32, steps: u64, weights: Vec<f32>) -> Self {
        Self { decay, steps, weights }
    }

    /// Steps that were taken in.
    #[cfg(feature = "cuda")]
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// The average to be written over, after so many steps.
    #[cfg(feature = "cuda")]
    pub(crate) fn weights_mut(&mut self, steps: u64) -> &mut [f32] {
        self.steps = steps;
        &mut self.weights
    }

    /// What a step of that number leaves of the average before it, from 1 on.
    pub(crate) fn share_kept(decay: f32, step: u64) -> f32 {
        let t = step as f32;
        decay.min(t / (t + 10.0))
    }

    /// Takes in the weights after a step.
    pub fn take(&mut self, weights: &[f32]) {
        self.steps += 1;
        let keep = Self::share_kept(self.decay, self.steps);
        for (average, w) in self.weights.iter_mut().zip(weights) {
            *average = keep * *average + (1.0 - keep) * w;
        }
    }

    /// The average.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_average_of_a_constant_is_it_and_it_lags_behind_a_step() {
        let mut average = super::Average::new(0.9, &[1.0]);
        average.take(&[1.0]);
        assert!((average.weights()[0] - 1.0).abs() < 1e-6);
        (0..200).for_each(|_| average.take(&[3.0]));
        assert!((average.weights()[0] - 3.0).abs() < 1e-4);
        average.take(&[13.0]);
        assert!((average.weights()[0] - 4.0).abs() < 1e-3, "{:?}", average.weights());
    }
}
