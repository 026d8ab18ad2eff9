//! Gates by name, and what one says.

use serde::{Deserialize, Serialize};

/// A gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// Every kernel compiles.
    Compile,
    /// No spills, no stack, registers within the limit, the required instructions and none of the forbidden.
    Resources,
    /// Equal to the reference, repeatable, and every negative control refused.
    Correctness,
    /// As fast as promised, against a baseline in the same process.
    Performance,
    /// One launch under a profiler, and what bounds it.
    Profile,
}

impl Gate {
    /// Its name, in records and progress bars.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compile => "compile",
            Self::Resources => "resources",
            Self::Correctness => "correctness",
            Self::Performance => "performance",
            Self::Profile => "profile",
        }
    }
}

impl std::fmt::Display for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The verdict of a gate, or of all together. A gate that did not run has not passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It ran, and all was well.
    Passed,
    /// It ran, and something was not.
    Failed {
        /// What, as a sentence.
        why: String,
    },
    /// It could not run here.
    NotRun {
        /// Why not, as a sentence.
        why: String,
    },
}

impl Outcome {
    pub(crate) fn failed(why: impl std::fmt::Display) -> Self {
        Self::Failed { why: why.to_string() }
    }

    pub(crate) fn not_run(why: impl std::fmt::Display) -> Self {
        Self::NotRun { why: why.to_string() }
    }

    /// Whether it ran and all was well.
    pub fn is_passed(&self) -> bool {
        *self == Self::Passed
    }

    /// Whether it ran and something was not.
    pub fn is_failed(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed { why } => write!(f, "failed: {why}"),
            Self::NotRun { why } => write!(f, "not run: {why}"),
        }
    }
}
