//! How gradients become steps: AdamW, Muon, schedules of the learning rate, averages of weights.

mod average;
mod muon;
mod schedule;
mod update;

pub use average::Average;
pub use schedule::{Decay, Schedule};
pub use update::{Method, Optimiser, OptimiserOptions, Sums};
