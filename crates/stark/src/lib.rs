#![doc = include_str!("../README.md")]

pub mod airs;
mod backend;
mod column;
mod constraints;
mod context;
mod cuda;
mod download;
mod element;
mod error;
#[cfg(feature = "lab")]
pub mod floor;
mod kernels;
mod limits;
mod pages;
mod plan;
mod prove;
mod prover;
mod provers;
mod queue;
mod ranks;
#[cfg(feature = "lab")]
mod rates;
mod shared;
mod simd;
mod stages;
mod staging;
mod streaming;
mod upload;
#[cfg(feature = "lab")]
pub mod workloads;

pub use backend::CudaBackend;
pub use column::DeviceColumn;
#[cfg(feature = "lab")]
pub use constraints::row_operations;
pub use constraints::{Tier, interaction_trace};
pub use context::Context;
pub use cuda::{DeviceTwiddles, interpolate_kept};
pub use element::{Element, Felt252};
pub use error::{Error, Result};
pub use kernels::KERNEL_HEADERS;
pub use plan::{Plan, Shares, Way};
pub use prove::{DeviceChannel, Digest, prove, prove_ex};
pub use prover::{Builder, Prover};
pub use provers::Provers;
#[cfg(feature = "lab")]
pub use rates::Rates;
pub use shared::DigestWords;
pub use simd::{ToDevice, ToSimd};
pub use stages::Stage;
pub use streaming::Streaming;
pub use upload::{upload, upload_and_interpolate};
