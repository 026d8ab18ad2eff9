//! The engine's kernels, on a card or on the emulated device.
//!
//! Parameters of a network lie in one array, tensor after tensor, as they do on the CPU; gradients, moments and steps in
//! others like it. [`Segments`] say where tensors are, and one launch does what there is to do to all of them.

mod combine;
pub(crate) mod kernels;
mod segments;
mod shared;
mod statistics;
mod update;

pub use combine::Snapshots;
pub use segments::{Segments, Tensor};
pub use statistics::{DeviceStatistics, Moments, TensorStatistics, Watched, noise};
pub use update::DeviceOptimiser;

#[cfg(test)]
mod tests;
