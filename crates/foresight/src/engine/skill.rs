//! Whether the world model has shown that it foresees better than a straight line does.

use serde::{Deserialize, Serialize};

/// Old errors fade at this rate.
const FADING: f64 = 0.95;
/// Forecasts that must have come due before the model counts.
const LEAST: u64 = 6;
/// The model's mean squared error must be below this part of the line's.
const BETTER: f64 = 0.8;

/// A forecast of the drop of ln loss over full steps that has not come due.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Pending {
    due: u64,
    level: f64,
    slope: f64,
    model: Option<f64>,
}

/// Errors of forecasts that came due: of the slope of the last losses, and of the world model on the same
/// stretches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Skill {
    pending: Vec<Pending>,
    slope: f64,
    slope_weight: f64,
    /// Squared errors of the model, and of the slope where there was a model.
    paired: [f64; 2],
    compared: u64,
}

impl Skill {
    /// Notes what both expect of full steps from `level` on until step `due`.
    pub(super) fn expect(&mut self, due: u64, level: f64, slope: f64, model: Option<f64>) {
        self.pending.push(Pending { due, level, slope, model });
    }

    /// Judges all that is due by the level that came.
    pub(super) fn judge(&mut self, step: u64, level: f64) {
        let (due, pending) = std::mem::take(&mut self.pending).into_iter().partition(|p| p.due <= step);
        self.pending = pending;
        let due: Vec<Pending> = due;
        for forecast in due {
            let found = forecast.level - level;
            let error = (forecast.slope - found).powi(2);
            self.slope = FADING * self.slope + error;
            self.slope_weight = FADING * self.slope_weight + 1.0;
            if let Some(model) = forecast.model {
                let errors = [(model - found).powi(2), error];
                self.paired = std::array::from_fn(|i| FADING * self.paired[i] + errors[i]);
                self.compared += 1;
            }
        }
    }

    /// What is under way will not come to pass: an action begins, or the run goes back.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// The model's root mean square error over the slope's on the same stretches, lately, and how many there
    /// were; none before there are enough.
    pub(super) fn model_over_slope(&self) -> Option<(f64, u64)> {
        let ratio = (self.paired[0] / self.paired[1]).sqrt();
        (self.compared >= LEAST && ratio.is_finite()).then_some((ratio, self.compared))
    }

    /// Whether the model counts.
    pub(super) fn model_counts(&self) -> bool {
        self.compared >= LEAST && self.paired[0] < BETTER * self.paired[1]
    }

    /// The deviation of the slope's forecasts, once one has come due.
    pub(super) fn slope_deviation(&self) -> Option<f64> {
        (self.slope_weight > 0.0).then(|| (self.slope / self.slope_weight).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_counts_once_it_has_been_better_often_enough() {
        for (model, counts) in [(0.19, true), (0.31, false)] {
            let mut skill = Skill::default();
            for time in 0..LEAST {
                assert!(!skill.model_counts());
                skill.expect(time + 1, 1.0, 0.3, Some(model));
                skill.judge(time, 0.8);
                skill.judge(time + 1, 0.8);
            }
            assert_eq!(skill.model_counts(), counts);
            assert!((skill.slope_deviation().unwrap() - 0.1).abs() < 1e-9);
        }
    }

    #[test]
    fn what_does_not_come_to_pass_is_not_judged() {
        let mut skill = Skill::default();
        skill.expect(5, 1.0, 0.3, None);
        skill.forget_pending();
        skill.judge(9, 0.0);
        assert_eq!(skill, Skill::default());
    }
}
