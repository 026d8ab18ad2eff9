//! How an emulated device runs kernels.

use std::time::Duration;

/// How an emulated device runs kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulation {
    /// The seed of all schedules.
    pub seed: u64,
    /// Processor time after which a launch is stopped with
    /// [`FaultKind::TimeLimit`](crate::FaultKind::TimeLimit).
    pub limit: Duration,
    /// How a signed integer that overflows is treated.
    pub overflow: Overflow,
    /// The contents of registers before they are written.
    pub registers: RegisterFill,
    /// Where kernels print to.
    pub prints: Prints,
}

/// Where kernels print to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prints {
    /// Standard output, as on a card.
    #[default]
    ToStandardOutput,
    /// Standard error: for programs whose standard output is for something else.
    ToStandardError,
    /// Nowhere.
    Nowhere,
}

/// The contents of registers before they are written.
///
/// A kernel whose results differ between [`RegisterFill::Ones`] and [`RegisterFill::Zeros`] reads a register
/// that not every thread initialises. Registers have no shadow as memory has, and an optimising compiler may
/// put any value there, the right one too. So kernels are compiled without optimisation for these two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RegisterFill {
    /// Whatever the compiler chooses.
    #[default]
    Any,
    /// Large numbers.
    Ones,
    /// Zeros.
    Zeros,
}

/// How a signed integer that overflows is treated.
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
        Self {
            seed: 0,
            limit: Duration::from_secs(600),
            overflow: Overflow::Stops,
            registers: RegisterFill::Any,
            prints: Prints::ToStandardOutput,
        }
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

    /// The same with kernels that print there.
    pub fn prints(self, prints: Prints) -> Self {
        Self { prints, ..self }
    }

    /// The same with registers that start so. Needs a C++ compiler that can do it:
    /// [`Emulation::can_fill_registers`].
    pub fn registers(self, registers: RegisterFill) -> Self {
        Self { registers, ..self }
    }
}
