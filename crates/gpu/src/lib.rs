#![doc = include_str!("../README.md")]

mod abi;
#[cfg(feature = "blas")]
pub mod blas;
mod budget;
mod buffer;
mod choice;
mod class;
mod compile;
mod cuda;
mod device;
mod devices;
mod driver;
mod emulated;
mod error;
pub mod fabric;
#[cfg(feature = "testing")]
mod faults;
mod foreign;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod graph;
mod header;
mod image;
mod kernel;
mod kernels;
mod locked;
#[cfg(feature = "nvtx")]
pub mod nvtx;
mod order;
mod peer;
mod pinned;
mod promise;
mod scratch;
#[doc(hidden)]
pub mod shared;
mod source;
mod stream;
mod target;
mod tensor_map;
mod types;

pub use budget::Budget;
pub use buffer::{Buffer, Slice, SliceMut, View, ViewMut};
pub use choice::DeviceChoice;
pub use compile::{cache_directory, compile, compile_options};
pub use cuda::tools::{SassReport, disassemble};
pub use device::{Device, list_devices, presence, topology};
pub use devices::DeviceSet;
pub use error::{Error, Result};
pub use fabric::Fabric;
#[cfg(feature = "testing")]
pub use faults::Faults;
pub use gatework_contract::{Class, Classified, Notice, Observer, StageGuard, on_all_cores};
pub use graph::{CopyKind, Graph, GraphChild, GraphCopy, GraphKernel};
pub use header::Header;
pub use kernel::{Arg, ByValue, IntoArg, Kernel};
pub use locked::Locked;
pub use pinned::{Pinned, PinnedMut, PinnedPool, PinnedRead, PinnedRef, PinnedRoom, PinnedStats};
pub use promise::Promise;
pub use scratch::remove_scratch_folders;
pub use shared::Code;
pub use source::{Definition, Module, Source};
pub use stream::{Event, EventReady, Stream};
pub use target::Target;
pub use tensor_map::{TensorElement, TensorMap};
#[cfg(feature = "blas")]
pub use types::MatrixScalar;
pub use types::{
    Architecture, Binary, Card, Clocks, DeviceListing, DeviceProperties, Emulation, Fault, FaultKind, Grid,
    Image, KernelInfo, Kind, NvLinks, Overflow, ParameterShape, ParameterType, PeerLink, Presence, Prints,
    Priority, Reach, RegisterFill, Resources, Site, SuggestedBlock, Swizzle, TensorLayout, TensorScalar,
    Topology,
};
