//! Devices: what is there, and how to open one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use gatework_contract::on_all_cores;

use crate::compile::compile;
use crate::devices::Members;
use crate::driver::{Driver, StreamId};
use crate::kernel::Kernel;
use crate::locked::Locked;
use crate::pinned::PinnedPool;
use crate::source::{Module, ModuleKey, Source};
use crate::stream::Stream;
use crate::types::{
    Clocks, DeviceListing, DeviceProperties, Emulation, Image, Kind, ParameterType, Priority, Reach, Topology,
};
use crate::{Budget, DeviceChoice, Error, Result, cuda, emulated};

/// All CUDA devices of the machine, with their peer access as the driver reports it.
pub fn list_devices() -> Result<Vec<DeviceListing>> {
    cuda::list_devices()
}

/// How the CUDA devices of the machine are joined, as the driver and NVML report it.
pub fn topology() -> Result<Topology> {
    cuda::topology()
}

/// Which parts of the tool chain this machine has.
pub mod presence {
    use super::{cuda, emulated};
    use crate::types::Presence;

    /// The CUDA driver library.
    pub fn cuda_driver() -> Presence {
        Presence::of(cuda::driver_version())
    }

    /// The run-time compiler for CUDA.
    pub fn nvrtc() -> Presence {
        Presence::of(cuda::nvrtc::version())
    }

    /// NVIDIA's library for collectives.
    pub fn nccl() -> Presence {
        Presence::of(cuda::nccl::version())
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
    /// Streams that wait for an event on behalf of a future, while they have none to wait for.
    pub(crate) idle_signals: Locked<Vec<StreamId>>,
    /// Kernels by source key and entry.
    kernels: Locked<HashMap<(String, String), Kernel>>,
    /// Kernels of modules, found without their text.
    resolved: Locked<HashMap<ModuleKey, Kernel>>,
    /// Texts that stand in for others, see [`Device::substitute`].
    #[cfg(feature = "testing")]
    substitutes: Locked<HashMap<String, String>>,
    #[cfg(feature = "testing")]
    pub(crate) faults: crate::Faults,
}

/// Pinned host memory a device's own pool may hold.
const PINNED_LIMIT: u64 = 4 << 30;

impl Device {
    /// Opens `auto` (the first CUDA device, or an error that says why there is none), `cuda`, `cuda:N` or
    /// `emulated`.
    ///
    /// ```
    /// let error = gatework_gpu::Device::open("quantum").err().unwrap();
    /// assert!(error.to_string().contains("unknown device 'quantum'"));
    /// ```
    pub fn open(name: &str) -> Result<Self> {
        match name.parse() {
            Ok(DeviceChoice::Auto) => Self::open_card(0),
            Ok(DeviceChoice::Cuda(ordinal)) => Self::open_card(ordinal),
            Ok(DeviceChoice::Emulated) => {
                // Every kernel needs it: better to say so now than at the first launch.
                emulated::compiler::name()?;
                Self::emulated_as(emulated::from_environment()?)
            }
            Ok(DeviceChoice::Several(set)) => Err(Error::SeveralDevices { given: set.to_string() }),
            // The CPU is a target, but no device.
            Ok(DeviceChoice::Cpu) | Err(_) => Err(Error::UnknownDevice { given: name.to_owned() }),
        }
    }

    /// Opens the emulated device with a schedule of one's own; [`Device::open`] takes it from
    /// `GATEWORK_EMULATOR_SEED`.
    pub fn emulated(seed: u64) -> Result<Self> {
        Self::emulated_as(Emulation::seeded(seed))
    }

    /// The same with a limit of time of one's own too.
    pub fn emulated_as(how: Emulation) -> Result<Self> {
        let mut one = emulated::open(how, 1)?.into_iter();
        let driver = one.next().ok_or_else(|| Error::UnknownDevice { given: "emulated:0".into() })?;
        Self::with_driver(driver)
    }

    /// Opens emulated devices that know each other, as `emulated:N` does, with a schedule of one's own.
    pub fn emulated_group(seed: u64, count: usize) -> Result<Vec<Self>> {
        Self::group_as(Emulation::seeded(seed), count)
    }

    fn group_as(how: Emulation, count: usize) -> Result<Vec<Self>> {
        emulated::open(how, count)?.into_iter().map(Self::with_driver).collect()
    }

    /// Opens several devices at once, or one: any name of a [`DeviceSet`](crate::DeviceSet) or of
    /// [`Device::open`]. They can reach each other's memory, by copies at least.
    ///
    /// ```
    /// use gatework_gpu::Device;
    ///
    /// assert_eq!(Device::open_all("emulated:4")?.len(), 4);
    /// let error = Device::open("emulated:4").err().unwrap();
    /// assert!(error.to_string().contains("names several devices, and this runs on one"));
    /// # Ok::<(), gatework_gpu::Error>(())
    /// ```
    pub fn open_all(name: &str) -> Result<Vec<Self>> {
        let Ok(DeviceChoice::Several(set)) = name.parse() else { return Ok(vec![Self::open(name)?]) };
        match set.members() {
            Members::AllCards => (0..cuda::list_devices()?.len()).map(Self::open_card).collect(),
            Members::Emulated(count) => Self::group_as(emulated::from_environment()?, usize::from(*count)),
            Members::EmulatedShares(count) => Self::open("emulated")?.split(usize::from(*count)),
            Members::Cards(cards) => {
                let mut devices = Vec::new();
                for &(ordinal, count) in cards.terms() {
                    let card = Self::open_card(usize::from(ordinal))?;
                    match count {
                        1 => devices.push(card),
                        _ => devices.extend(card.split(usize::from(count))?),
                    }
                }
                Ok(devices)
            }
        }
    }

    fn open_card(ordinal: usize) -> Result<Self> {
        Self::with_driver(cuda::open(ordinal)?)
    }

    /// Virtual devices on this one: separate devices to a program, with streams, kernels and an equal part of
    /// what is free of this one's byte budget each. They run on the same hardware, and share its memory and
    /// its bandwidth.
    pub fn split(&self, count: usize) -> Result<Vec<Self>> {
        let share = self.budget().free() / count.max(1) as u64;
        let virtual_device = |number| {
            let device = Self::with_driver(self.driver().share(number, count)?)?;
            device.budget().set_limit(share);
            #[cfg(feature = "testing")]
            device.shared.substitutes.lock().clone_from(&self.shared.substitutes.lock());
            Ok(device)
        };
        (0..count).map(virtual_device).collect()
    }

    fn with_driver(driver: Box<dyn Driver>) -> Result<Self> {
        let limit = driver.memory()?.free;
        let shared = Arc::new_cyclic(|shared| DeviceShared {
            driver,
            budget: Budget::new(limit),
            pinned: PinnedPool::new(shared.clone(), PINNED_LIMIT),
            idle_signals: Locked::default(),
            kernels: Locked::default(),
            resolved: Locked::default(),
            #[cfg(feature = "testing")]
            substitutes: Locked::default(),
            #[cfg(feature = "testing")]
            faults: crate::Faults::default(),
        });
        Ok(Self { shared })
    }

    /// Name, architecture and limits of this device.
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

    /// Gives back what of the level-2 cache is set aside for data that persists, and sets none aside until
    /// somebody asks for it again: what an earlier run left there would make the next one look faster than it
    /// is.
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

    /// The kernel `entry` of a module: compiled (or found in the cache) and loaded the first time, and from
    /// then on found without a look at the text.
    pub fn kernel_of(&self, module: &Module, entry: &'static str) -> Result<Kernel> {
        let key = module.key(entry);
        if let Some(kernel) = self.shared.resolved.lock().get(&key) {
            return Ok(kernel.clone());
        }
        let kernel = self.kernel_named(&module.source(), entry)?;
        self.shared.resolved.lock().insert(key, kernel.clone());
        Ok(kernel)
    }

    /// Compiles modules (or finds them in the cache) on all cores and loads their kernels, so that no launch
    /// waits for it.
    ///
    /// All are tried; the error is that of the first in the list that failed. What is ready already costs
    /// nothing.
    pub fn prepare(&self, modules: &[Module]) -> Result<()> {
        let missing: Vec<&Module> = modules.iter().filter(|module| !self.has_all_of(module)).collect();
        let prepared = on_all_cores(missing.len(), |index| {
            let source = missing[index].source();
            compile(&self.adapted(&source), &self.properties().architecture)
        });
        for (module, binary) in missing.iter().zip(prepared) {
            let binary = binary?;
            for entry in module.kernels() {
                let kernel = Kernel::load(self, &binary, entry)?;
                self.shared.resolved.lock().insert(module.key(entry), kernel);
            }
        }
        Ok(())
    }

    fn has_all_of(&self, module: &Module) -> bool {
        let resolved = self.shared.resolved.lock();
        module.kernels().into_iter().all(|entry| resolved.contains_key(&module.key(entry)))
    }

    /// Compiles (or finds in the cache) and loads the kernel that has the name of a source made at run time.
    /// The text is hashed: keep the kernel, or declare a [`Module`].
    pub fn kernel(&self, source: &Source) -> Result<Kernel> {
        self.kernel_named(source, source.name())
    }

    /// Compiles (or finds in the cache) and loads the kernel `entry` of a source that has several.
    pub fn kernel_named(&self, source: &Source, entry: &str) -> Result<Kernel> {
        let source = &self.adapted(source);
        let key = (source.key(&self.properties().architecture)?, entry.to_owned());
        if let Some(kernel) = self.shared.kernels.lock().get(&key) {
            return Ok(kernel.clone());
        }
        let kernel = Kernel::load(self, &compile(source, &self.properties().architecture)?, entry)?;
        self.shared.kernels.lock().insert(key, kernel.clone());
        Ok(kernel)
    }

    /// Loads a kernel of an image by its `extern "C"` or mangled name. What it takes is declared, compared
    /// with what the image says, and checked at every launch. The image is compiled every time: keep the
    /// kernel.
    pub fn kernel_in(&self, image: &Image, entry: &str, declared: &[ParameterType]) -> Result<Kernel> {
        Kernel::load_image(self, image, entry, declared)
    }

    /// From now on this device compiles `substitute` wherever a source with the text `original`, or one that
    /// includes it, is asked for.
    ///
    /// For mutation tests: the host code around a kernel runs as it is, with a kernel that was broken on
    /// purpose.
    #[cfg(feature = "testing")]
    pub fn substitute(&self, original: &str, substitute: impl Into<String>) {
        self.shared.substitutes.lock().insert(original.to_owned(), substitute.into());
        self.shared.resolved.lock().clear();
    }

    /// Injected failures, for tests.
    #[cfg(feature = "testing")]
    pub fn faults(&self) -> &crate::Faults {
        &self.shared.faults
    }

    /// The source as this device compiles it.
    fn adapted<'a>(&self, source: &'a Source) -> Cow<'a, Source> {
        let source = self.substituted(source);
        match self.driver().definition() {
            Some((name, value)) => Cow::Owned(source.into_owned().define(name, value)),
            None => source,
        }
    }

    #[cfg(feature = "testing")]
    fn substituted<'a>(&self, source: &'a Source) -> Cow<'a, Source> {
        let substitutes = self.shared.substitutes.lock();
        if substitutes.is_empty() {
            return Cow::Borrowed(source);
        }
        Cow::Owned(source.replaced(|text| substitutes.get(text).cloned()))
    }

    #[cfg(not(feature = "testing"))]
    fn substituted<'a>(&self, source: &'a Source) -> Cow<'a, Source> {
        Cow::Borrowed(source)
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        self.shared.driver.as_ref()
    }

    /// Whether both are one device with one budget: clones of one handle.
    pub fn same_as(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Refuses a device to which no copy and no event leads.
    pub(crate) fn require_reach(&self, other: &Device, call: &'static str) -> Result<()> {
        if self.reach(other)? != Reach::None {
            return Ok(());
        }
        let [left, right] = [self, other].map(|device| device.properties().id.clone());
        Err(Error::OutOfReach { call, left, right })
    }

    pub(crate) fn require_same(&self, other: &Device, call: &'static str) -> Result<()> {
        if self.same_as(other) {
            return Ok(());
        }
        let id = |device: &Device| device.properties().id.clone();
        Err(Error::ForeignDevice { call, left: id(self), right: id(other) })
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.properties().id)
    }
}
