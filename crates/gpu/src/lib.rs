#![doc = include_str!("../README.md")]

mod budget;
mod buffer;
mod choice;
mod class;
mod cuda;
mod device;
mod driver;
mod emulated;
mod error;
mod foreign;
mod graph;
mod kernel;
pub mod kernels;
mod pinned;
mod stream;
mod target;

pub use budget::Budget;
pub use buffer::{Buffer, Slice, SliceMut, View, ViewMut};
pub use choice::DeviceChoice;
pub use cuda::tools::{SassReport, disassemble};
pub use device::{Clocks, Device, DeviceListing, DeviceProperties, Kind, Presence, list_devices, presence};
pub use emulated::fault::{Fault, FaultKind, Site};
pub use error::{Error, Result};
pub use gatework_contract::{Class, Classified, Notice, Observer, StageGuard};
pub use graph::{Graph, GraphKernel};
pub use kernel::{
    Architecture, Arg, Binary, ByValue, Grid, IntoArg, Kernel, KernelInfo, Resources, Source,
    cache_directory, compile, compile_options,
};
pub use pinned::{Pinned, PinnedMut, PinnedPool, PinnedRef, PinnedStats};
pub use stream::{Event, Priority, Stream};
pub use target::Target;
