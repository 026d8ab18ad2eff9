//! What a run has cost so far.

use serde::{Deserialize, Serialize};

/// Phases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Full steps; statistics settle.
    Warmup,
    /// Full steps; the world model learns from them.
    Full,
    /// An action that is cheaper than full steps, or claims to be.
    Predict,
    /// The action is judged on held-back data, and undone if it did not keep its promise.
    Correct,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Warmup, Self::Full, Self::Predict, Self::Correct];

    /// As logs have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warmup => "warmup",
            Self::Full => "full",
            Self::Predict => "predict",
            Self::Correct => "correct",
        }
    }
}

/// The cost of one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Training steps.
    pub steps: u64,
    /// Seconds by the clock, the predictor's included.
    pub seconds: f64,
    /// Full-backward equivalents: multiply-adds over those of a full step.
    pub equivalents: f64,
    /// Seconds of state, world model and controller.
    pub predictor_seconds: f64,
}

/// The cost of every phase. Seconds are recorded but decide nothing, so that runs repeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    entries: [Entry; 4],
}

impl Ledger {
    /// The entry of a phase.
    pub fn of(&self, phase: Phase) -> &Entry {
        &self.entries[phase as usize]
    }

    /// The entry of a phase, to be added to.
    pub fn of_mut(&mut self, phase: Phase) -> &mut Entry {
        &mut self.entries[phase as usize]
    }

    /// All phases together.
    pub fn total(&self) -> Entry {
        self.entries.iter().fold(Entry::default(), |sum, entry| Entry {
            steps: sum.steps + entry.steps,
            seconds: sum.seconds + entry.seconds,
            equivalents: sum.equivalents + entry.equivalents,
            predictor_seconds: sum.predictor_seconds + entry.predictor_seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_of_all_phases() {
        let mut ledger = Ledger::default();
        for (place, phase) in Phase::ALL.into_iter().enumerate() {
            *ledger.of_mut(phase) =
                Entry { steps: 1, seconds: 2.0, equivalents: place as f64, predictor_seconds: 0.5 };
        }
        assert_eq!(
            ledger.total(),
            Entry { steps: 4, seconds: 8.0, equivalents: 6.0, predictor_seconds: 2.0 }
        );
        assert_eq!(ledger.of(Phase::Predict).equivalents, 2.0);
    }
}
