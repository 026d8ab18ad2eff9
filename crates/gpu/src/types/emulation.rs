//! How an emulated device runs kernels.

use std::time::Duration;

/// How an emulated device runs kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulation {
    /// What all schedules follow from.
    pub seed: u64,
    /// Processor time after which a launch is stopped with [`FaultKind::TimeLimit`](crate::FaultKind::TimeLimit).
    pub limit: Duration,
}

impl Default for Emulation {
    fn default() -> Self {
        Self { seed: 0, limit: Duration::from_secs(600) }
    }
}

impl Emulation {
    /// The default, with schedules of one's own.
    pub fn seeded(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The same with another limit of time a launch.
    pub fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }
}
