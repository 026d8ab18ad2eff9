//! Devices: what is there, and how to open one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::driver::Driver;
use crate::kernel::{Architecture, Kernel, Source};
use crate::stream::{Priority, Stream};
use crate::{Budget, DeviceChoice, Error, PinnedPool, Result, cuda, emulated};

/// Which of the two devices this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An NVIDIA GPU through the CUDA driver.
    Cuda,
    /// The SIMT emulator: for correctness, not speed.
    Emulated,
}

/// What a device is.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceProperties {
    /// Which of the two.
    pub kind: Kind,
    /// `cuda:0` or `emulated`: what [`Device::open`] takes.
    pub id: String,
    /// The card's name.
    pub name: String,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// What kernels are compiled for.
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
    /// What it is.
    pub properties: DeviceProperties,
    /// Ordinals of the devices whose memory it can address directly.
    pub peers: Vec<usize>,
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
    pub(crate) fn of<T: std::fmt::Display>(result: Result<T>) -> Self {
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

/// All CUDA devices of the machine, with their peer access as the driver reports it.
pub fn list_devices() -> Result<Vec<DeviceListing>> {
    cuda::list_devices()
}

/// What of the tool chain this machine has.
pub mod presence {
    use super::{Presence, cuda, emulated};

    /// The CUDA driver library.
    pub fn cuda_driver() -> Presence {
        Presence::of(cuda::driver_version())
    }

    /// The run-time compiler for CUDA.
    pub fn nvrtc() -> Presence {
        Presence::of(cuda::nvrtc::version())
    }

    /// The C++ compiler of the emulated device.
    pub fn cxx() -> Presence {
        Presence::of(emulated::compiler::name())
    }

    /// A CUDA command-line tool: `cuobjdump`, `nvdisasm`, `ncu`, `compute-sanitizer`.
    pub fn tool(name: &str) -> Presence {
        Presence::of(cuda::tools::find(name).map(|path| path.display().to_string()))
    }
}

/// An open device. Cheap to clone; all clones are the same device with one budget.
#[derive(Clone)]
pub struct Device {
    pub(crate) shared: Arc<DeviceShared>,
}

pub(crate) struct DeviceShared {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) budget: Budget,
    pub(crate) pinned: PinnedPool,
    /// Kernels by source key and entry, so that asking twice costs a lookup.
    kernels: Mutex<HashMap<(String, String), Kernel>>,
    /// Texts that stand in for others, see [`Device::substitute`].
    substitutes: Mutex<HashMap<String, String>>,
}

/// Pinned host memory a device's own pool may hold.
const PINNED_LIMIT: u64 = 4 << 30;

impl Device {
    /// Opens `auto` (the first CUDA device, or an error that says why there is none), `cuda`, `cuda:N` or `emulated`.
    ///
    /// ```
    /// let error = gatework_gpu::Device::open("quantum").err().unwrap();
    /// assert!(error.to_string().contains("unknown device 'quantum'"));
    /// ```
    pub fn open(name: &str) -> Result<Self> {
        match name.parse() {
            Ok(DeviceChoice::Auto) => Self::with_driver(cuda::open(0)?),
            Ok(DeviceChoice::Cuda(ordinal)) => Self::with_driver(cuda::open(ordinal)?),
            Ok(DeviceChoice::Emulated) => {
                // Every kernel needs it: better to say so now than at the first launch.
                emulated::compiler::name()?;
                Self::with_driver(emulated::open(emulated::seed_from_environment()?)?)
            }
            // The CPU is a target, but no device.
            Ok(DeviceChoice::Cpu) | Err(_) => Err(Error::UnknownDevice { given: name.to_owned() }),
        }
    }

    /// Opens the emulated device with a schedule of one's own; [`Device::open`] takes it from `GATEWORK_EMULATOR_SEED`.
    pub fn emulated(seed: u64) -> Result<Self> {
        Self::with_driver(emulated::open(seed)?)
    }

    fn with_driver(driver: Box<dyn Driver>) -> Result<Self> {
        let limit = driver.memory()?.free;
        let shared = Arc::new_cyclic(|shared| DeviceShared {
            driver,
            budget: Budget::new(limit),
            pinned: PinnedPool::new(shared.clone(), PINNED_LIMIT),
            kernels: Mutex::default(),
            substitutes: Mutex::default(),
        });
        Ok(Self { shared })
    }

    /// What this device is.
    pub fn properties(&self) -> &DeviceProperties {
        self.driver().properties()
    }

    /// Whether this is the emulated device.
    pub fn is_emulated(&self) -> bool {
        self.properties().kind == Kind::Emulated
    }

    /// Clocks and temperature now, where they can be read.
    pub fn clocks(&self) -> Option<Clocks> {
        self.driver().clocks()
    }

    /// Waits for every stream of the device, those of other users of its context too.
    pub fn synchronize(&self) -> Result<()> {
        self.driver().synchronize()
    }

    /// Gives back what of the level-2 cache is set aside for data that persists, and sets none aside until somebody asks
    /// for it again: what an earlier run left there would make the next one look faster than it is.
    pub fn disable_persisting_cache(&self) -> Result<()> {
        self.driver().disable_persisting_cache()
    }

    /// The byte budget of all buffers on this device.
    pub fn budget(&self) -> &Budget {
        &self.shared.budget
    }

    /// The device's pool of page-locked host memory.
    pub fn pinned(&self) -> &PinnedPool {
        &self.shared.pinned
    }

    /// A new stream of normal priority.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self, Priority::Normal)
    }

    /// A new stream.
    pub fn stream_with(&self, priority: Priority) -> Result<Stream> {
        Stream::new(self, priority)
    }

    /// Compiles (or finds in the cache) and loads the kernel that has the source's name.
    pub fn kernel(&self, source: &Source) -> Result<Kernel> {
        self.kernel_named(source, source.name())
    }

    /// Compiles (or finds in the cache) and loads the kernel `entry` of a source that has several.
    pub fn kernel_named(&self, source: &Source, entry: &str) -> Result<Kernel> {
        let source = &self.substituted(source);
        let key = (source.key(&self.properties().architecture)?, entry.to_owned());
        if let Some(kernel) = self.kernels().get(&key) {
            return Ok(kernel.clone());
        }
        let kernel = Kernel::load(self, source, entry)?;
        self.kernels().insert(key, kernel.clone());
        Ok(kernel)
    }

    /// From now on this device compiles `substitute` wherever a source with the text `original` is asked for.
    ///
    /// For mutation tests: the host code around a kernel runs as it is, with a kernel that was broken on purpose.
    pub fn substitute(&self, original: &str, substitute: impl Into<String>) {
        let mut substitutes = self.shared.substitutes.lock().unwrap_or_else(PoisonError::into_inner);
        substitutes.insert(original.to_owned(), substitute.into());
    }

    fn substituted<'a>(&self, source: &'a Source) -> Cow<'a, Source> {
        let substitutes = self.shared.substitutes.lock().unwrap_or_else(PoisonError::into_inner);
        match substitutes.get(source.text()) {
            Some(text) => Cow::Owned(source.with_text(text.clone())),
            None => Cow::Borrowed(source),
        }
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        self.shared.driver.as_ref()
    }

    pub(crate) fn same_as(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(crate) fn require_same(&self, other: &Device, call: &'static str) -> Result<()> {
        if self.same_as(other) {
            return Ok(());
        }
        let id = |device: &Device| device.properties().id.clone();
        Err(Error::ForeignDevice { call, left: id(self), right: id(other) })
    }

    fn kernels(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), Kernel>> {
        self.shared.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.properties().id)
    }
}
