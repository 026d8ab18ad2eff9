//! `--device-memory`.

use clap::Args;
use gatework_gpu::{Device, Target};

use super::ending::Failure;

const VARIABLE: &str = "GATEWORK_DEVICE_MEMORY";

/// How much of a device may be used.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct MemoryOptions {
    /// Most device memory to use, as 8GiB or 512MiB [default: all that is free]
    #[arg(long, value_name = "SIZE", env = VARIABLE, value_parser = size)]
    pub(crate) device_memory: Option<u64>,
}

impl MemoryOptions {
    /// The target, with no more memory than was said. On the CPU there is nothing to limit: an option that
    /// says so is refused, and a variable of the environment, which is there for other commands, is not.
    pub(crate) fn limited(self, target: Target) -> Result<Target, Failure> {
        match target.device() {
            Some(device) => self.limit(device),
            None if self.device_memory.is_none() || self.is_of_the_environment() => (),
            None => {
                let sentence = "--device-memory is of a device, and this runs on the CPU: leave it out, or name a \
                                device with --device";
                return Err(Failure::input(sentence.into()));
            }
        }
        Ok(target)
    }

    /// Whether the environment says the same, so that nothing else need have been said.
    fn is_of_the_environment(self) -> bool {
        let given = std::env::var(VARIABLE).ok().and_then(|given| size(&given).ok());
        given.is_some() && given == self.device_memory
    }

    /// Lets a device hold no more than was said.
    pub(crate) fn limit(self, device: &Device) {
        if let Some(bytes) = self.device_memory {
            device.budget().set_limit(bytes.min(device.budget().limit()));
        }
    }

    /// The same options on the command line of another process.
    pub(crate) fn arguments(self) -> Vec<String> {
        let bytes = self.device_memory.iter();
        bytes.flat_map(|bytes| ["--device-memory".to_owned(), bytes.to_string()]).collect()
    }
}

/// Bytes, with a unit or without.
fn size(given: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
    let (number, shift) = units
        .into_iter()
        .find_map(|(unit, shift)| Some((given.strip_suffix(unit)?.trim(), shift)))
        .ok_or("it must be a number of bytes")?;
    let number: u64 =
        number.parse().map_err(|_| "write it as 8GiB, 512MiB or a number of bytes".to_owned())?;
    number.checked_mul(1 << shift).filter(|&bytes| bytes > 0).ok_or_else(|| "no device has that".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!((size("8GiB"), size("512 MiB"), size("77")), (Ok(8 << 30), Ok(512 << 20), Ok(77)));
        for wrong in ["", "8GB", "-1", "0", "99999999TiB", "GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
