//! A run as 64 numbers: what the world model sees of it after every step.

mod features;
mod normaliser;
mod series;

pub use features::{FEATURES, Features, NAMES, Observation, StateTracker};
pub use normaliser::Normaliser;
#[cfg(feature = "cuda")]
pub(crate) use normaliser::{BOUND, MEMORY};
