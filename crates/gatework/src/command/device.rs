//! Which device a command runs on.

use std::str::FromStr;

use gatework_gpu::{Device, Error, Presence, Target, presence};
use gatework_lab::TestBed;

use crate::command::ending::Failure;
use crate::command::progress::Progress;

/// What `--device` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// CUDA if there is a usable card, else the CPU.
    Auto,
    /// The CPU, whatever else there is.
    Cpu,
    /// A CUDA device by its number.
    Cuda(usize),
    /// The emulated device: only ever asked for by name.
    Emulated,
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(given: &str) -> Result<Self, Self::Err> {
        match given {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            "emulated" => Ok(Self::Emulated),
            _ => given
                .strip_prefix("cuda:")
                .and_then(|ordinal| ordinal.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| format!("unknown device '{given}': use auto, cpu, cuda, cuda:N or emulated")),
        }
    }
}

/// The test bed for gates. Kernels have no form that runs on the CPU, so that `auto` without CUDA is an error.
pub(crate) fn test_bed(choice: &DeviceChoice) -> Result<TestBed, Failure> {
    match choice {
        DeviceChoice::Auto => match Device::open("auto") {
            Err(error @ Error::NoCuda { .. }) => {
                Err(Failure::Device(format!("{error}; to check kernels without one, use --device emulated")))
            }
            opened => Ok(opened?.into()),
        },
        DeviceChoice::Cpu => Ok(TestBed::CompilersOnly {
            why: "kernels do not run on the CPU; use --device emulated or cuda".to_owned(),
        }),
        DeviceChoice::Cuda(ordinal) => Ok(Device::open(&format!("cuda:{ordinal}"))?.into()),
        DeviceChoice::Emulated => Ok(open_emulated()?.into()),
    }
}

/// Where an engine runs. `auto` without a card is the CPU, and a line that says so.
pub(crate) fn target(choice: &DeviceChoice, progress: &Progress) -> Result<Target, Failure> {
    match choice {
        DeviceChoice::Auto => {
            let (target, why) = Target::best()?;
            if let Some(why) = why {
                progress.say(&format!("{why}; running on the CPU"));
            }
            Ok(target)
        }
        DeviceChoice::Cpu => Ok(Target::Cpu),
        DeviceChoice::Cuda(ordinal) => Ok(Device::open(&format!("cuda:{ordinal}"))?.into()),
        DeviceChoice::Emulated => Ok(open_emulated()?.into()),
    }
}

/// The emulated device, if the compiler it needs for every kernel is there.
pub(crate) fn open_emulated() -> Result<Device, Failure> {
    match presence::cxx() {
        Presence::Found { .. } => Ok(Device::open("emulated")?),
        Presence::Missing { reason } => Err(Failure::Device(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
        assert_eq!("emulated".parse(), Ok(DeviceChoice::Emulated));
        for unknown in ["", "gpu", "cuda:", "cuda:x", "CUDA", "cuda:-1"] {
            assert!(unknown.parse::<DeviceChoice>().unwrap_err().contains("use auto, cpu"), "{unknown}");
        }
    }
}
