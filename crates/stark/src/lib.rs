#![doc = include_str!("../README.md")]

pub mod airs;
mod backend;
mod column;
mod constraints;
mod context;
mod cuda;
mod error;
pub mod floor;
mod kernels;
mod plan;
mod prove;
mod prover;
mod queue;
mod rates;
mod stages;
mod staging;
#[cfg(feature = "lab")]
pub mod workloads;

pub use backend::CudaBackend;
pub use column::{DeviceColumn, Element};
pub use constraints::{Tier, interaction_trace, row_operations};
pub use context::Context;
pub use cuda::{DeviceTwiddles, interpolate_kept};
pub use error::{Error, Result};
pub use plan::Plan;
pub use prove::{DeviceChannel, prove};
pub use prover::{Builder, Prover};
pub use rates::Rates;
pub use stages::Stage;
pub use staging::{upload, upload_and_interpolate};
