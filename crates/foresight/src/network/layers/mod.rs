//! Multilayer perceptrons and convolutional networks.

mod convolution;
mod layer;
mod pass;

pub use layer::{Layer, Layers};
pub use pass::Pass;
