//! A graph whose ranges are proved, as a circuit.

mod network;
mod rotation;
#[cfg(test)]
pub(crate) mod samples;
mod set_up;
#[cfg(test)]
pub(crate) mod tests;
mod weights;

pub use network::{Inference, Network};
pub use set_up::SetUp;
pub use weights::ModelWeights;
