//! Constants of the engine.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Which actions the engine may take beside full steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allowed {
    /// Freeze a prefix of layers.
    pub freeze: bool,
    /// Jump to an average of recent weights.
    pub jump: bool,
    /// Stop when nothing is left to gain.
    pub stop: bool,
}

impl Default for Allowed {
    fn default() -> Self {
        Self { freeze: true, jump: true, stop: false }
    }
}

/// Constants of the engine. Steps are training steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineOptions {
    /// How many times the number of examples that count the backward pass of a step is of, chosen by
    /// [`sampling`](crate::sampling); 0 for all examples.
    pub sampled: f64,
    /// Full steps before anything is predicted.
    pub warmup_steps: u64,
    /// An action is taken only with at least this confidence, from 0 to 1: trust in its kind over one plus
    /// the deviation of the predicted ln loss.
    pub confidence_threshold: f64,
    /// Steps that the world model looks ahead when actions are compared.
    pub horizon: u64,
    /// Most steps of one action.
    pub max_predict_steps: u64,
    /// Full steps after an action, before the next is chosen.
    pub correction_steps: u64,
    /// Fewest steps between two decisions.
    pub decide_every: u64,
    /// Every so many decisions the best action beside full steps is tried although it is not worth most, so
    /// that the corrector learns what it does; 0 for never.
    pub explore_every: u64,
    /// What may be lost on rejected actions, over what was spent: an action is begun only if its whole cost
    /// fits into this part of the full-backward equivalents so far, plus what accepted actions saved, less
    /// what was lost. So a run costs at most this much more than the plain loop.
    pub risk: f64,
    /// The weight of a deviation of the predicted ln loss against a drop of it.
    pub uncertainty_penalty: f64,
    /// Fewest steps between two looks at statistics and features, which are ticks of the world model.
    pub tick: u64,
    /// Fewest steps between two updates of the world model; 0 for no updates.
    pub learn_every: u64,
    /// The most that looks, decisions and updates may cost together, in counted multiply-adds over those of
    /// training. Beside a small network they are rarer than is asked for, and the world model is left out
    /// where it would hardly learn.
    pub predictor_share: f64,
    /// Steps between two snapshots of weights to average over.
    pub snapshot_every: u64,
    /// Snapshots that are averaged over.
    pub snapshots: usize,
    /// Steps between two states to roll back to, at least; more beside a network whose steps take no longer
    /// than such a copy.
    pub safe_every: u64,
    /// The learning rate's factor after a rollback.
    pub lowered_rate: f64,
    /// Steps that it holds for.
    pub lowered_rate_steps: u64,
    /// Rollbacks within `rollback_window` after which the run is given up.
    pub most_rollbacks: u32,
    /// Steps, those that were undone included, over which rollbacks are counted.
    pub rollback_window: u64,
    /// What a frozen stretch may fall short of its promise, in ln loss, where that is within what chance
    /// explains.
    pub allowance: f64,
    /// `stop` is taken when less than this drop of ln loss is forecast for the rest of the run.
    pub stop_below: f64,
    /// Which actions there are.
    pub actions: Allowed,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            sampled: 3.0,
            warmup_steps: 100,
            confidence_threshold: 0.3,
            horizon: 48,
            max_predict_steps: 64,
            correction_steps: 8,
            decide_every: 32,
            explore_every: 0,
            risk: 0.005,
            uncertainty_penalty: 0.1,
            tick: 8,
            learn_every: 64,
            predictor_share: 0.01,
            snapshot_every: 16,
            snapshots: 6,
            safe_every: 50,
            lowered_rate: 0.5,
            lowered_rate_steps: 100,
            most_rollbacks: 20,
            rollback_window: 2000,
            allowance: 0.03,
            stop_below: 0.002,
            actions: Allowed::default(),
        }
    }
}

impl EngineOptions {
    /// Refuses what would never do anything, or never end.
    pub fn check(&self) -> Result<()> {
        let positive = [
            ("engine.options.horizon", self.horizon),
            ("engine.options.max_predict_steps", self.max_predict_steps),
            ("engine.options.decide_every", self.decide_every),
            ("engine.options.tick", self.tick),
            ("engine.options.snapshot_every", self.snapshot_every),
            ("engine.options.safe_every", self.safe_every),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Error::config(format!("'{key}' is 0: it is a number of steps, from 1")));
        }
        let parts = [
            ("engine.options.confidence_threshold", self.confidence_threshold),
            ("engine.options.lowered_rate", self.lowered_rate),
        ];
        if let Some((key, value)) = parts.iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            return Err(Error::config(format!("'{key}' is {value}: it is a part, from 0 to 1")));
        }
        if self.risk.is_nan() || self.risk < 0.0 {
            return Err(Error::config(format!(
                "'engine.options.risk' is {}: it is a part, from 0",
                self.risk
            )));
        }
        let counted = [
            ("engine.options.sampled", self.sampled),
            ("engine.options.uncertainty_penalty", self.uncertainty_penalty),
            ("engine.options.allowance", self.allowance),
        ];
        if let Some((key, value)) = counted.iter().find(|(_, value)| value.is_nan() || *value < 0.0) {
            return Err(Error::config(format!("'{key}' is {value}: it must be at least 0")));
        }
        if self.predictor_share.is_nan() || self.predictor_share <= 0.0 {
            return Err(Error::config(format!(
                "'engine.options.predictor_share' is {}: it is a part, above 0",
                self.predictor_share
            )));
        }
        if self.snapshots < 2 {
            return Err(Error::config("'engine.options.snapshots' is below 2: an average needs two"));
        }
        Ok(())
    }
}
