//! What devices do with each other's memory.

use bytemuck::Pod;

use crate::buffer::{Use, View, ViewMut};
use crate::order::Access;
use crate::types::Reach;
use crate::{Device, Error, Result, Stream};

/// Copies that are timed.
const COPIES: usize = 12;

impl Device {
    /// What this device can do with the memory of another: nothing, copies, or loads and stores of kernels
    /// too.
    ///
    /// Virtual devices of one card reach each other directly, and so do emulated devices that were opened at
    /// once.
    pub fn reach(&self, other: &Device) -> Result<Reach> {
        if self.same_as(other) { Ok(Reach::Direct) } else { self.driver().reach(other.driver()) }
    }

    /// Whether kernels of this device could load and store memory of another, as the driver reports it.
    pub fn can_access_peer(&self, other: &Device) -> Result<bool> {
        Ok(self.reach(other)? == Reach::Direct)
    }

    /// From now on kernels of this device may load and store memory of `other`, which they find by its
    /// address ([`Slice::as_raw`](crate::Slice::as_raw)). Copies need no such leave.
    ///
    /// A kernel that uses memory by address alone keeps nobody from freeing it: keep the buffer until it is
    /// done, and order the streams of both devices by events.
    pub fn enable_peer_access(&self, other: &Device) -> Result<()> {
        const CALL: &str = "Device::enable_peer_access";
        self.require_reach(other, CALL)?;
        if self.same_as(other) { Ok(()) } else { self.driver().enable_peer_access(other.driver()) }
    }

    /// Bytes a second that copies of so many bytes reach from `other` to this device: the best of some, each
    /// timed by events of this device. `None` where its clock says nothing, as on the emulated device.
    ///
    /// Between cards it [enables](Device::enable_peer_access) the direct way, if there is one.
    pub fn measure_copies_from(&self, other: &Device, bytes: usize) -> Result<Option<f64>> {
        if self.is_emulated() {
            return Ok(None);
        }
        if self.can_access_peer(other)? {
            self.enable_peer_access(other)?;
        }
        let (here, there) = (self.stream()?, other.stream()?);
        let from = there.alloc_zeros::<u8>(bytes)?;
        let mut to = here.alloc::<u8>(bytes)?;
        here.wait(&there.record()?)?;
        let mut best = None;
        // The first copies map memory and wake the link up.
        for _ in 0..COPIES {
            let start = here.record()?;
            here.copy_from_peer(&from, &mut to)?;
            let end = here.record()?;
            end.synchronize()?;
            let seconds = end.since(&start)?.as_secs_f64();
            if seconds > 0.0 {
                best = Some(best.map_or(seconds, |best: f64| best.min(seconds)));
            }
        }
        Ok(best.map(|seconds| bytes as f64 / seconds))
    }
}

impl Stream {
    /// Queues a copy from the memory of another device, or of this one, in the order of this stream.
    ///
    /// It runs after what streams of either device queued before that writes `from` or uses `to`, as with
    /// [`Stream::copy`]. `from` may be dropped at once.
    ///
    /// Between cards without a direct way the driver copies through the host.
    ///
    /// ```
    /// use gatework_gpu::Device;
    ///
    /// let devices = Device::open_all("emulated:2")?;
    /// let (here, there) = (devices[0].stream()?, devices[1].stream()?);
    /// let from = there.upload(&[1u32, 2, 3])?;
    /// let mut to = here.alloc::<u32>(3)?;
    /// here.copy_from_peer(&from, &mut to)?;
    /// assert_eq!(here.download(&to)?, [1, 2, 3]);
    /// # Ok::<(), gatework_gpu::Error>(())
    /// ```
    pub fn copy_from_peer<T: Pod>(&self, from: &impl View<T>, to: &mut impl ViewMut<T>) -> Result<()> {
        let source = from.view().used(Access::Read);
        self.queue_from_peer(from, to, Some(source))
    }

    /// As [`Stream::copy_from_peer`]. The caller sees to it that this comes after what wrote `from`, and that
    /// `from` is neither written nor freed before this stream has passed the copy.
    pub(crate) fn queue_copy_from_peer<T: Pod>(
        &self,
        from: &impl View<T>,
        to: &mut impl ViewMut<T>,
    ) -> Result<()> {
        self.queue_from_peer(from, to, None)
    }

    fn queue_from_peer<T: Pod>(
        &self,
        from: &impl View<T>,
        to: &mut impl ViewMut<T>,
        source: Option<Use<'_>>,
    ) -> Result<()> {
        const CALL: &str = "Stream::copy_from_peer";
        let (from, to) = (from.view(), to.view_mut().into_slice());
        self.device().require_same(to.device(), CALL)?;
        self.device().require_reach(from.device(), CALL)?;
        self.forbid_in_capture(CALL, "a graph is of one device; copy before or after it")?;
        if from.len() != to.len() {
            let message = format!("the source has {} elements and the destination {}", from.len(), to.len());
            return Err(Error::Length { call: CALL, message });
        }
        let (driver, bytes) = (self.device().driver(), to.len() * size_of::<T>());
        self.queue([to.used(Access::Write)].into_iter().chain(source), Vec::new(), || {
            if self.device().same_as(from.device()) {
                return driver.copy_on_device(self.id(), to.pointer(), from.pointer(), bytes);
            }
            driver.copy_from_peer(self.id(), to.pointer(), from.device().driver(), from.pointer(), bytes)
        })
    }
}
