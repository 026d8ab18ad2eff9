//! Where an engine runs: the CPU, or a device.

use crate::{Device, Error, Result};

/// Where an engine runs. The CPU is not a [`Device`]: engines have native code for it, and no kernels.
#[derive(Debug, Clone)]
pub enum Target {
    /// The machine's own processor.
    Cpu,
    /// A device with kernels, the emulated one among them.
    Gpu(Device),
}

impl Target {
    /// Opens `cpu`, `auto` (the first CUDA device, else the CPU, with a warning in the log that says why), or what
    /// [`Device::open`] takes.
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
        match name {
            "cpu" => Ok(Self::Cpu),
            "auto" => {
                let (target, why) = Self::best()?;
                if let Some(why) = why {
                    tracing::warn!("{why}; running on the CPU");
                }
                Ok(target)
            }
            device => match Device::open(device) {
                Err(Error::UnknownDevice { given }) => Err(Error::UnknownTarget { given }),
                opened => Ok(Self::Gpu(opened?)),
            },
        }
    }

    /// The first CUDA device, or the CPU with why there is none. A card that is there and cannot be opened is an error:
    /// whoever has one does not mean the CPU.
    pub fn best() -> Result<(Self, Option<Error>)> {
        match Device::open("cuda") {
            Ok(device) => Ok((Self::Gpu(device), None)),
            Err(absent @ Error::NoCuda { .. }) => Ok((Self::Cpu, Some(absent))),
            Err(error) => Err(error),
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
