//! What a device is, and what it reports.

use serde::Serialize;

use super::Architecture;

/// Which of the two devices this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An NVIDIA GPU through the CUDA driver.
    Cuda,
    /// The SIMT emulator: for correctness, not speed.
    Emulated,
}

/// Name, architecture and limits of a device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceProperties {
    /// Which of the two.
    pub kind: Kind,
    /// `cuda:0` or `emulated`: what [`Device::open`](crate::Device::open) takes. One of several that were
    /// opened at once has its number after theirs, as `emulated:4#1` or `cuda:0*4#1`.
    pub id: String,
    /// The card's name.
    pub name: String,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// The architecture that kernels are compiled for.
    pub architecture: Architecture,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Most dynamic shared memory a block may have, in bytes.
    pub shared_memory_per_block: u32,
    /// Shared memory of one multiprocessor, in bytes.
    pub shared_memory_per_multiprocessor: u32,
    /// 32-bit registers a block may use.
    pub registers_per_block: u32,
    /// Level-2 cache, in bytes.
    pub l2_bytes: u64,
    /// Device memory, in bytes.
    pub memory_bytes: u64,
    /// Highest SM clock, in MHz, where it can be read.
    pub max_clock_mhz: Option<u32>,
    /// Highest memory clock, in MHz, where it can be read.
    pub max_memory_clock_mhz: Option<u32>,
    /// Memory bus width in bits, where it can be read.
    pub memory_bus_bits: Option<u32>,
    /// Whether processes share it through CUDA's multi-process service (MPS).
    pub multi_process_service: bool,
    /// CUDA version of the driver, as `13.0`, or the C++ compiler of the emulated device.
    pub driver: String,
}

/// Clocks and temperature at one moment.
#[derive(Debug, Clone, Copy, Serialize, serde::Deserialize)]
pub struct Clocks {
    /// SM clock in MHz.
    pub sm_mhz: u32,
    /// Memory clock in MHz.
    pub memory_mhz: u32,
    /// Degrees Celsius.
    pub celsius: u32,
}

/// A CUDA device as the driver lists it.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceListing {
    /// Its properties.
    pub properties: DeviceProperties,
    /// Ordinals of the devices whose memory it can address directly.
    pub peers: Vec<usize>,
}

/// How far a device can use the memory of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// Nothing: neither copies nor events lead there.
    None,
    /// Copies, through the host where the driver knows no shorter way.
    Copies,
    /// Copies, and loads and stores of kernels.
    Direct,
}

/// Whether something is on this machine, and where, or why not.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Presence {
    /// It is there: a version or a path.
    Found {
        /// A version or a path.
        what: String,
    },
    /// It is not.
    Missing {
        /// Why, as a sentence.
        reason: String,
    },
}

impl Presence {
    pub(crate) fn of<T: std::fmt::Display, E: std::fmt::Display>(result: Result<T, E>) -> Self {
        match result {
            Ok(what) => Self::Found { what: what.to_string() },
            Err(error) => Self::Missing { reason: error.to_string() },
        }
    }

    /// Whether it is there.
    pub fn is_found(&self) -> bool {
        matches!(self, Self::Found { .. })
    }
}

/// How urgently the device picks a stream's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// Before normal work.
    High,
    /// As usual.
    #[default]
    Normal,
}
