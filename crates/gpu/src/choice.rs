//! Names of targets, as command lines and environment variables have them.

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::devices::DeviceSet;

/// A target by its name, not opened yet: what `--device` says.
///
/// ```
/// use gatework_gpu::DeviceChoice;
///
/// assert_eq!("cuda:1".parse::<DeviceChoice>()?, DeviceChoice::Cuda(1));
/// assert_eq!(DeviceChoice::Cuda(1).to_string(), "cuda:1");
/// # Ok::<(), gatework_gpu::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first CUDA device if there is one, else the CPU.
    Auto,
    /// The CPU, whatever else there is.
    Cpu,
    /// A CUDA device by its number.
    Cuda(usize),
    /// The emulated device: only ever asked for by name.
    Emulated,
    /// Several devices. What runs on one refuses them.
    Several(DeviceSet),
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(given: &str) -> Result<Self, Error> {
        match given {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            "emulated" => Ok(Self::Emulated),
            _ => given
                .strip_prefix("cuda:")
                .and_then(|ordinal| ordinal.parse().ok())
                .map(Self::Cuda)
                .or_else(|| DeviceSet::parse(given).map(Self::Several))
                .ok_or_else(|| Error::UnknownTarget { given: given.to_owned() }),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Self::Emulated => f.write_str("emulated"),
            Self::Several(set) => set.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        let read = |given: &str| given.parse::<DeviceChoice>();
        assert_eq!(read("cuda").unwrap(), DeviceChoice::Cuda(0));
        for choice in [DeviceChoice::Auto, DeviceChoice::Cpu, DeviceChoice::Cuda(3), DeviceChoice::Emulated] {
            assert_eq!(read(&choice.to_string()).unwrap(), choice);
        }
        for several in ["emulated:4", "emulated*2", "cuda:0,1", "cuda:0*4", "cuda:all"] {
            let choice = read(several).unwrap();
            assert!(matches!(choice, DeviceChoice::Several(_)), "{several}");
            assert_eq!(choice.to_string(), several);
        }
        for unknown in ["", "emulated:0", "emulated:x", "gpu", "cuda:", "cuda:x", "CUDA", "cuda:-1"] {
            assert!(read(unknown).unwrap_err().to_string().contains("use auto, cpu"), "{unknown}");
        }
    }
}
