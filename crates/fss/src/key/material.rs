//! Where key material comes from and goes to.

use crate::error::Result;
use crate::secret::{Secret, SharedBytes, copy_on_all_cores};

/// Where a party's key material comes from, in the order in which it was dealt.
pub trait Material: Send + Sync {
    /// The next `count` bytes, all of which exist.
    fn take(&mut self, count: usize) -> Result<SharedBytes>;

    /// The next bytes, as many as there is room for, all of which exist.
    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        copy_on_all_cores(bytes, self.take(bytes.len())?.as_slice());
        Ok(())
    }
}

/// Where one party's key material goes while it is dealt.
pub trait KeySink: Send {
    /// Appends key material, which is secret.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
}

/// A buffer that has room for all of it: one that grew would leave secrets behind.
impl KeySink for Secret<u8> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.append(bytes);
        Ok(())
    }
}

/// Material that is all in memory: what is taken is what is left of it.
impl Material for SharedBytes {
    fn take(&mut self, count: usize) -> Result<SharedBytes> {
        Ok(self.take_front(count))
    }
}
