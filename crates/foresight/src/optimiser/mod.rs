//! How gradients become steps: AdamW, Muon, schedules of the learning rate, averages of weights.

mod average;
mod muon;
mod schedule;
mod update;

pub use average::Average;
pub use schedule::{Decay, Schedule};
pub use update::{Method, Optimiser, OptimiserOptions, Sums};

pub(crate) use update::{grouped, power};

#[cfg(any(feature = "lab", all(test, feature = "cuda")))]
pub(crate) use muon::orthogonalise;
/// What steps on a device need of those on the CPU.
#[cfg(feature = "cuda")]
pub(crate) use muon::{A as MUON_A, B as MUON_B, C as MUON_C, ROUNDS as MUON_ROUNDS, TINY as MUON_TINY};
#[cfg(feature = "cuda")]
pub(crate) use update::{EPSILON, muon_scale};
