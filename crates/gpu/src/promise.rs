//! Memory that is set aside before it is allocated.

use crate::{Device, Result};

/// Bytes of a device that a job plans to hold, until this goes: two jobs that do not fit together are not
/// both begun.
#[derive(Debug)]
pub struct Promise {
    device: Device,
    bytes: u64,
}

impl Promise {
    /// None of a device's memory yet.
    pub fn of(device: &Device) -> Self {
        Self { device: device.clone(), bytes: 0 }
    }

    /// Sets aside so many bytes instead of those before. Where other promises leave no room, those before
    /// stay and this fails.
    pub fn resize(&mut self, bytes: u64) -> Result<()> {
        self.device.budget().promise(self.bytes, bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Bytes that it stands for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that all promises of the device may come to.
    pub fn limit(&self) -> u64 {
        self.device.budget().limit()
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        // Less always fits.
        let _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn promises_never_come_to_more_than_the_limit() {
        let device = Device::emulated(1).unwrap();
        device.budget().set_limit(100);
        let (mut one, mut other) = (Promise::of(&device), Promise::of(&device));
        one.resize(70).unwrap();
        let refused = other.resize(40).unwrap_err();
        assert!(
            matches!(refused, Error::OutOfMemory { asked: 40, held: 70, free: 30, limit: 100 }),
            "{refused}"
        );
        other.resize(30).unwrap();
        assert!(one.resize(71).is_err());
        assert_eq!((one.bytes(), device.budget().promised()), (70, 100));
        one.resize(10).unwrap();
        drop(other);
        assert_eq!(device.budget().promised(), 10);
        drop(one);
        assert_eq!((device.budget().promised(), device.budget().held()), (0, 0));
    }
}
