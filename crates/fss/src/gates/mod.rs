//! The composite gates, each a short program of primitives.
//!
//! They are written once for all roles, so that what two parties compute is what the clear evaluator
//! specifies, bit for bit.

mod activation;
mod clamp;
mod exponential;
mod floating;
mod maximum;
mod norm;
mod reciprocal;
mod rows;
mod softmax;
mod tanh;

pub use activation::{Activation, relu};
pub use clamp::clamp;
pub use exponential::NegativeExponential;
pub use floating::FloatingTable;
pub use maximum::row_maxima;
pub use norm::{LayerNorm, RmsNorm};
pub use reciprocal::Reciprocal;
pub use rows::Rows;
pub use softmax::Softmax;
pub use tanh::Tanh;
