//! How an emulated device runs kernels.

use std::time::Duration;

/// How an emulated device runs kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulation {
    /// What all schedules follow from.
    pub seed: u64,
    /// Processor time after which a launch is stopped with [`FaultKind::TimeLimit`](crate::FaultKind::TimeLimit).
    pub limit: Duration,
    /// What becomes of a signed integer that overflows.
    pub overflow: Overflow,
}

/// What becomes of a signed integer that overflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// A fault: [`FaultKind::Overflow`](crate::FaultKind::Overflow).
    #[default]
    Stops,
    /// It wraps, as compilers mostly let it on the card.
    Wraps,
}

impl Default for Emulation {
    fn default() -> Self {
        Self { seed: 0, limit: Duration::from_secs(600), overflow: Overflow::Stops }
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

    /// The same with signed integers that wrap.
    pub fn wrapping(self) -> Self {
        Self { overflow: Overflow::Wraps, ..self }
    }
}
