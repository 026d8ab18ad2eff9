//! What happens to one configuration.

use serde::{Deserialize, Serialize};

use super::space::Configuration;
use crate::stats::{Interval, Verdict};

/// Why a configuration got no time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{gate}: {why}")]
pub struct Rejection {
    /// Where it failed: `compile`, `resources`, `correctness`, `performance`.
    pub gate: String,
    /// How.
    pub why: String,
}

/// How fast a configuration is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Its time over the baseline's, the geometric mean of all training cases. Less is better.
    pub ratio: f64,
    /// By training case.
    pub cases: Vec<(String, Interval)>,
}

/// The winner against the default on one shape that the search never saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// The case's name.
    pub case: String,
    /// Winner over default.
    pub ratio: Option<Interval>,
    /// What the ratio says.
    pub verdict: Verdict,
}

/// Takes configurations through the gates. The tuner calls it in this order and no other.
pub trait Evaluator {
    /// Compiles it, and returns what tells its program from others: equal identities are the same program.
    fn identify(&mut self, configuration: &Configuration) -> Result<String, Rejection>;

    /// Whether it is right.
    fn check(&mut self, configuration: &Configuration) -> Result<(), Rejection>;

    /// How fast it is. Never called for a configuration that was not found right.
    fn time(&mut self, configuration: &Configuration) -> Result<Score, Rejection>;

    /// The winner against the default, on shapes and seeds that no call above has used.
    fn judge(&mut self, winner: &Configuration, default: &Configuration) -> Result<Vec<HeldOut>, Rejection>;
}

/// One configuration that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Which.
    pub configuration: Configuration,
    /// What tells its program from others, if it compiled.
    pub identity: Option<String>,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: TrialOutcome,
}

/// What became of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum TrialOutcome {
    /// It was timed.
    Timed {
        /// How fast it is.
        score: Score,
    },
    /// It is the same program as an earlier trial, and stands for the same result.
    SameAs {
        /// Which trial, from 0.
        trial: usize,
    },
    /// A gate refused it.
    Rejected {
        /// Which, and why.
        rejection: Rejection,
    },
}

impl Trial {
    /// Takes a configuration through the gates, as far as it gets.
    pub(super) fn of(configuration: Configuration, evaluator: &mut dyn Evaluator, earlier: &[Trial]) -> Self {
        let identity = match evaluator.identify(&configuration) {
            Ok(identity) => identity,
            Err(rejection) => {
                return Self { configuration, identity: None, outcome: TrialOutcome::Rejected { rejection } };
            }
        };
        let same = earlier.iter().position(|trial| trial.identity.as_ref() == Some(&identity));
        let outcome = match same {
            Some(trial) => TrialOutcome::SameAs { trial },
            None => match evaluator.check(&configuration).and_then(|()| evaluator.time(&configuration)) {
                Ok(score) => TrialOutcome::Timed { score },
                Err(rejection) => TrialOutcome::Rejected { rejection },
            },
        };
        Self { configuration, identity: Some(identity), outcome }
    }

    /// How fast it is, if it was timed.
    pub fn score(&self) -> Option<&Score> {
        match &self.outcome {
            TrialOutcome::Timed { score } => Some(score),
            _ => None,
        }
    }
}
