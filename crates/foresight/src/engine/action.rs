//! What can be done next.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::world::ACTION;

/// The engine's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Full steps.
    Full,
    /// The first groups keep their weights, and no backward pass reaches them.
    Freeze {
        /// How many groups.
        groups: usize,
        /// For how many steps.
        steps: u64,
    },
    /// The weights become the mean of the last snapshots of them.
    Jump {
        /// How many snapshots.
        span: usize,
    },
    /// The run ends here.
    Stop,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "full steps"),
            Self::Freeze { groups, steps } => write!(f, "freeze {groups} for {steps} steps"),
            Self::Jump { span } => write!(f, "jump to the mean of {span} snapshots"),
            Self::Stop => write!(f, "stop"),
        }
    }
}

/// What the world model is told of an action and of the schedule meanwhile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct InEffect {
    pub(super) action: Action,
    /// What a step costs, in full-backward equivalents.
    pub(super) cost: f64,
    /// The frozen part of `Σ |g| |u|`.
    pub(super) lost: f64,
    /// The rate over its peak, now and one tick ahead.
    pub(super) rates: [f64; 2],
}

impl InEffect {
    pub(super) fn encode(&self) -> [f32; ACTION] {
        let (full, freeze) = match self.action {
            Action::Full => (1.0, 0.0),
            Action::Freeze { .. } => (0.0, 1.0),
            Action::Jump { .. } | Action::Stop => (0.0, 0.0),
        };
        let [now, ahead] = self.rates;
        [full, freeze, (1.0 - self.cost) as f32, self.lost as f32, now as f32, ahead as f32]
    }
}
