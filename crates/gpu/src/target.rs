//! Where an engine runs: the CPU, or a device.

use crate::{Device, DeviceChoice, Error, Result};

/// Where an engine runs. The CPU is not a [`Device`]: engines have native code for it, and no kernels.
#[derive(Debug, Clone)]
pub enum Target {
    /// The machine's own processor.
    Cpu,
    /// A device with kernels, the emulated one among them.
    Gpu(Device),
}

impl Target {
    /// Opens a target by name: `auto` (the first CUDA device, else the CPU, with a warning in the log that
    /// says why), `cpu`, `cuda`, `cuda:N` or `emulated`.
    ///
    /// ```
    /// use gatework_gpu::Target;
    ///
    /// assert_eq!(Target::open("cpu")?.id(), "cpu");
    /// assert_eq!(Target::open("emulated")?.id(), "emulated");
    /// let error = Target::open("gpu").err().unwrap();
    /// assert_eq!(error.to_string(), "unknown device 'gpu': use auto, cpu, cuda, cuda:N or emulated");
    /// # Ok::<(), gatework_gpu::Error>(())
    /// ```
    pub fn open(name: &str) -> Result<Self> {
        Self::of(name.parse()?, &|line| tracing::warn!("{line}"))
    }

    /// Opens what was chosen. [`DeviceChoice::Auto`] is the first CUDA device; where there is none it is the
    /// CPU, and `say` is given the line that says why. A card that is there and cannot be opened is an error:
    /// whoever has one does not mean the CPU.
    pub fn of(choice: DeviceChoice, say: &dyn Fn(&str)) -> Result<Self> {
        match choice {
            DeviceChoice::Cpu => Ok(Self::Cpu),
            DeviceChoice::Auto => match Device::open("cuda") {
                Err(absent @ Error::NoCuda { .. }) => {
                    say(&format!("{absent}; running on the CPU"));
                    Ok(Self::Cpu)
                }
                opened => Ok(Self::Gpu(opened?)),
            },
            DeviceChoice::Several(set) => Err(Error::SeveralDevices { given: set.to_string() }),
            DeviceChoice::Cuda(_) | DeviceChoice::Emulated => {
                Ok(Self::Gpu(Device::open(&choice.to_string())?))
            }
        }
    }

    /// `cpu`, `cuda:0` or `emulated`: what [`Target::open`] takes.
    pub fn id(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu(device) => &device.properties().id,
        }
    }

    /// The device, if it is one.
    pub fn device(&self) -> Option<&Device> {
        match self {
            Self::Cpu => None,
            Self::Gpu(device) => Some(device),
        }
    }
}

impl From<Device> for Target {
    fn from(device: Device) -> Self {
        Self::Gpu(device)
    }
}
