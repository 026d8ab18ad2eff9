//! What the tuner leaves in a record.

use serde::{Deserialize, Serialize};

use crate::space::{Configuration, Knob};
use crate::stats::{Interval, Verdict};

/// How the space is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Breed from the best.
    Evolution,
    /// Try everything.
    Exhaustive,
}

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
    /// The verdict on the ratio.
    pub verdict: Verdict,
}

/// One configuration that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Which.
    pub configuration: Configuration,
    /// A hash of its compiled program, if it compiled.
    pub identity: Option<String>,
    /// Its result.
    #[serde(flatten)]
    pub outcome: TrialOutcome,
}

/// The result of trying a configuration.
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
    /// How fast it is, if it was timed.
    pub fn score(&self) -> Option<&Score> {
        match &self.outcome {
            TrialOutcome::Timed { score } => Some(score),
            _ => None,
        }
    }
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneStop {
    /// As many trials as were allowed.
    Evaluations,
    /// As long as was allowed.
    Time,
    /// There is nothing left to try.
    Exhausted,
}

/// One of the best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EliteMember {
    /// The configuration.
    pub configuration: Configuration,
    /// A hash of its compiled program.
    pub identity: Option<String>,
    /// Other configurations that are the same program.
    pub also: Vec<Configuration>,
    /// Its time over the baseline's, on the training cases.
    pub ratio: f64,
}

/// The conclusion of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "conclusion", rename_all = "kebab-case")]
pub enum Conclusion {
    /// On what it never saw, the winner is faster somewhere and slower nowhere.
    WinnerBeatsDefault {
        /// By held-out case.
        held_out: Vec<HeldOut>,
    },
    /// It is not: the default stays.
    DefaultStays {
        /// Why.
        why: String,
        /// By held-out case, if it came to that.
        held_out: Vec<HeldOut>,
    },
}

/// A search, from its space to its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TuningRecord {
    /// The knobs.
    pub knobs: Vec<Knob>,
    /// The constraints, by name.
    pub constraints: Vec<String>,
    /// How it was searched.
    pub strategy: Strategy,
    /// From which seed.
    pub seed: u64,
    /// The configuration it started from.
    pub default: Configuration,
    /// Everything that was tried, in order.
    pub trials: Vec<Trial>,
    /// The best, best first.
    pub elite: Vec<EliteMember>,
    /// Why it ended.
    pub stopped: TuneStop,
    /// Its conclusion.
    #[serde(flatten)]
    pub conclusion: Conclusion,
}

impl TuningRecord {
    /// The configuration to use: the winner if it beat the default, else the default.
    pub fn best(&self) -> &Configuration {
        match (&self.conclusion, self.elite.first()) {
            (Conclusion::WinnerBeatsDefault { .. }, Some(winner)) => &winner.configuration,
            _ => &self.default,
        }
    }
}
