//! Plain data of the runtime: what devices, kernels and launches are, without handles of any driver.
//!
//! The seam ([`crate::driver`]) and both devices speak in these types alone, and know nothing of who owns
//! what above them.

mod device;
mod emulation;
mod fault;
mod grid;
mod image;
mod kernel;
#[cfg(feature = "blas")]
mod matrix;
mod page_locked;
pub(crate) mod ptx;
mod tensor;
mod topology;

pub use device::{Clocks, DeviceListing, DeviceProperties, Kind, Presence, Priority, Reach};
pub use emulation::{Emulation, Overflow, Prints, RegisterFill};
pub use fault::{Fault, FaultKind, Site};
pub use grid::Grid;
pub use image::Image;
pub(crate) use image::ImageCode;
pub use kernel::{
    Architecture, Binary, KernelInfo, ParameterShape, ParameterType, Resources, SuggestedBlock,
};
pub(crate) use kernel::{ArgType, Compiled, Parameter};
#[cfg(feature = "blas")]
pub(crate) use matrix::FactorLayout;
#[cfg(feature = "blas")]
pub use matrix::MatrixScalar;
#[cfg(test)]
pub(crate) use page_locked::SMALLEST_CLASS;
pub(crate) use page_locked::class_of;
pub(crate) use tensor::{MOST_DIMENSIONS, TensorSpec, TensorWords};
pub use tensor::{Swizzle, TensorLayout, TensorScalar};
pub use topology::{Card, NvLinks, PeerLink, Topology};
