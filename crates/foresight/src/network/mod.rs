//! Networks with their gradients: multilayer perceptrons, convolutional networks and transformers.

mod architecture;
pub mod layers;
mod pass;
pub mod transformer;

pub use architecture::{Architecture, Parameters};
pub use layers::Layers;
pub use pass::{Pass, Source, Tally};
pub use transformer::Transformer;
