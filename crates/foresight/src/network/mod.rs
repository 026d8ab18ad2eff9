//! Multilayer perceptrons and convolutional networks with their gradients.

mod architecture;
mod convolution;
mod pass;

pub use architecture::{Architecture, Layer, Parameters};
pub use pass::{Pass, Tally};
