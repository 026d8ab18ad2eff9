//! Networks with their gradients: multilayer perceptrons, convolutional networks and transformers.

mod architecture;
pub mod layers;
mod parameters;
mod pass;
mod tally;
pub mod transformer;

pub use architecture::Architecture;
pub use layers::Layers;
pub(crate) use parameters::frozen_parameters;
pub use parameters::{Group, Parameters};
pub use pass::{Pass, Source};
pub use tally::Tally;
pub use transformer::Transformer;
