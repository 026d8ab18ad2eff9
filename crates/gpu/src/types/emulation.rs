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
    /// What registers and memory hold before they are written.
    pub fill: Fill,
}

/// What registers and memory hold before they are written.
///
/// A kernel whose results differ between [`Fill::Ones`] and [`Fill::Zeros`] reads something that nobody, or not every
/// thread, has initialised. Loads of unwritten memory are faults anyway; registers have no such shadow, and an optimising
/// compiler may put any value there, the right one too. So kernels are compiled without optimisation for these two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fill {
    /// Memory is not-a-number, and registers are what the compiler likes.
    #[default]
    Usual,
    /// Memory is not-a-number, and registers are large numbers.
    Ones,
    /// Both are zero.
    Zeros,
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
        Self { seed: 0, limit: Duration::from_secs(600), overflow: Overflow::Stops, fill: Fill::Usual }
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

    /// The same with registers and memory that start so. Needs a C++ compiler that can fill registers:
    /// [`Emulation::can_fill_registers`].
    pub fn fill(self, fill: Fill) -> Self {
        Self { fill, ..self }
    }
}
