//! What the gates run on.

use gatework_gpu::{Architecture, Device, Result};

/// The architecture that kernels are compiled for where there is no GPU to ask: Hopper.
const ABSENT_GPU: &str = "sm_90a";

/// Where the gates run: on a device, or with compilers alone.
#[derive(Debug, Clone)]
pub enum TestBed {
    /// An open device. On the emulated one every run gets a schedule of its own.
    Device(Device),
    /// No device: the compilers alone. The correctness gate is not run.
    CompilersOnly {
        /// Why there is no device, as a sentence.
        why: String,
    },
}

impl From<Device> for TestBed {
    fn from(device: Device) -> Self {
        Self::Device(device)
    }
}

impl TestBed {
    /// The device, if there is one.
    pub fn device(&self) -> Option<&Device> {
        match self {
            Self::Device(device) => Some(device),
            Self::CompilersOnly { .. } => None,
        }
    }

    /// The device's id, for a record.
    pub(super) fn name(&self) -> &str {
        self.device().map_or("no device", |device| &device.properties().id)
    }

    /// What kernels are compiled for: the card, or without one both compilers that may be there.
    pub(super) fn architectures(&self) -> Vec<Architecture> {
        match self.device() {
            Some(device) if !device.is_emulated() => vec![device.properties().architecture.clone()],
            _ => vec![Architecture::Emulated, Architecture::Sm(ABSENT_GPU.to_owned())],
        }
    }

    /// A device that answers, for one run. The emulated device is opened anew with `schedule`, so that a
    /// kernel that is right by luck of the order is found; a GPU is the same for all runs.
    pub(super) fn ready(device: &Device, schedule: u64) -> Result<Device> {
        if device.is_emulated() {
            return Device::emulated(schedule);
        }
        // A kernel that went astray leaves the card's context unusable: that is not the next workload's
        // fault.
        device.stream()?.synchronize()?;
        Ok(device.clone())
    }
}
