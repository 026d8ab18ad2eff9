//! The engine's kernels, on a card or on the emulated device.
//!
//! Parameters of a network lie in one array, tensor after tensor, as they do on the CPU; gradients, moments
//! and steps in others like it. [`Segments`] say where tensors are, and one launch does what there is to do
//! to all of them.
//!
//! An ensemble of recurrent models runs many steps in one launch. Each member has a team of blocks, which
//! keep its weights in shared memory where they fit; a [`Schedule`] says how.

mod attention;
mod combine;
mod gru;
pub(crate) mod kernels;
mod learn;
pub mod mixed;
mod muon;
mod pass;
mod product;
mod rollout;
mod segments;
mod shared;
mod statistics;
mod team;
mod trainee;
mod transformer;
mod update;

pub use attention::{Attended, Heads, MOST_HEAD_NUMBERS, attend, attend_back};
pub use combine::Snapshots;
pub use gru::{DeviceGru, GruSizes};
pub use learn::WorldTrainer;
pub use product::{Products, ProductsBy, Turned, Write};
pub use rollout::DeviceWorld;
pub use segments::{Segments, Tensor};
pub use statistics::{DeviceStatistics, Moments, TensorStatistics, Watched, noise};
pub use team::{MOST_HIDDEN, Residence, Schedule, Team, WeightFormat};
pub use trainee::DeviceTrainee;
pub use transformer::{Judged, RowKernels, Rows, Sorted};
pub use update::DeviceOptimiser;

#[cfg(test)]
mod tests;
