//! The learning rate at every step.

use serde::{Deserialize, Serialize};

/// The course of the learning rate after its warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// It stays.
    Constant,
    /// It falls in a line to zero at the last step.
    Linear,
    /// Warm-up, stable, decay: it stays, and falls in a line to zero over the last steps.
    Wsd,
}

/// `rate(t) = peak · min(1, (t + 1) / warmup) · fall(t)`, for steps `t` from 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The highest rate.
    pub peak: f64,
    /// Steps over which it rises.
    pub warmup: u64,
    /// How it falls.
    pub decay: Decay,
    /// For [`Decay::Wsd`]: the part of all steps over which it falls.
    pub decay_share: f64,
    /// All steps.
    pub steps: u64,
}

impl Schedule {
    /// The rate of step `step`.
    pub fn rate(&self, step: u64) -> f64 {
        let rise = if self.warmup == 0 { 1.0 } else { ((step + 1) as f64 / self.warmup as f64).min(1.0) };
        self.peak * rise * self.fall(step)
    }

    fn fall(&self, step: u64) -> f64 {
        let left = self.steps.saturating_sub(step) as f64;
        let over = match self.decay {
            Decay::Constant => return 1.0,
            Decay::Linear => self.steps.saturating_sub(self.warmup) as f64,
            Decay::Wsd => self.decay_share * self.steps as f64,
        };
        if over > 0.0 { (left / over).min(1.0) } else { 1.0 }
    }

    /// The sum of the rates of steps `from..to`, which is how far a run can still move.
    pub fn area(&self, from: u64, to: u64) -> f64 {
        (from..to).map(|step| self.rate(step)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_stay_and_fall() {
        let mut schedule =
            Schedule { peak: 2.0, warmup: 10, decay: Decay::Linear, decay_share: 0.2, steps: 110 };
        assert_eq!(
            [schedule.rate(0), schedule.rate(9), schedule.rate(10), schedule.rate(60)],
            [0.2, 2.0, 2.0, 1.0]
        );
        assert!((schedule.rate(109) - 0.02).abs() < 1e-12 && schedule.rate(200) == 0.0);
        schedule.decay = Decay::Wsd;
        assert_eq!([schedule.rate(50), schedule.rate(88)], [2.0, 2.0]);
        assert_eq!(schedule.rate(99), 1.0);
        schedule.decay = Decay::Constant;
        assert_eq!(schedule.rate(1000), 2.0);
        assert_eq!(schedule.area(20, 22), 4.0);
    }
}
