//! The stream of a backend, on which its kernels run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;

use bytemuck::Pod;
use gatework_gpu::{Arg, Buffer, Device, Grid, Module, Pinned, PinnedRoom, Stream};

use crate::error::Result;

use super::staging::{SecretBlock, Wiper};

/// Work that is launched on a device, in order. Clones are one queue.
#[derive(Clone)]
pub(super) struct Queue {
    stream: Stream,
    number: u64,
    wiper: Arc<Wiper>,
}

/// Page-locked memory for all but keys that are brought near as a whole.
const PINNED_AT_LEAST: u64 = 4 << 30;

impl Queue {
    pub(super) fn new(device: &Device) -> Result<Self> {
        Self::on(device.stream()?)
    }

    /// A queue whose kernels run on a stream that others may use too.
    pub(super) fn on(stream: Stream) -> Result<Self> {
        static QUEUES: AtomicU64 = AtomicU64::new(0);
        let number = QUEUES.fetch_add(1, Ordering::Relaxed);
        Ok(Self { stream, number, wiper: Arc::default() })
    }

    /// Where kernels run.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Which of this process's queues it is.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Who wipes what was used.
    pub(super) fn wiper(&self) -> &Wiper {
        &self.wiper
    }

    pub(super) fn device(&self) -> &Device {
        self.stream.device()
    }

    /// Lets the pool of page-locked memory grow by so many bytes beyond those of other rooms of this device.
    /// The pool keeps what it has locked for whoever comes next: locking pages takes longer than filling
    /// them.
    pub(super) fn make_room(&self, bytes: u64) -> PinnedRoom {
        self.device().pinned().make_room(PINNED_AT_LEAST, bytes)
    }

    /// Page-locked bytes that keys of so many bytes take beside what the pool has idle.
    pub(super) fn staging_bytes(&self, keys: u64) -> u64 {
        let pool = self.device().pinned();
        keys.saturating_sub(pool.stats().held.saturating_sub(pool.rooms()))
    }

    /// Uninitialised memory.
    pub(super) fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        self.alloc_on(&self.stream, len)
    }

    /// The same in the order of another stream.
    pub(super) fn alloc_on<T: Pod>(&self, stream: &Stream, len: usize) -> Result<Buffer<T>> {
        Ok(stream.alloc(len)?)
    }

    /// A copy of something public, by way of page-locked memory, so that nothing waits for what was queued
    /// before.
    pub(super) fn upload<T: Pod>(&self, host: &[T]) -> Result<Buffer<T>> {
        self.upload_with(host.len(), |staged| staged.copy_from_slice(host))
    }

    /// The same of what `write` puts into page-locked memory, all of which it must set.
    pub(super) fn upload_with<T: Pod>(&self, len: usize, write: impl FnOnce(&mut [T])) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(len)?;
        if len == 0 {
            return Ok(buffer);
        }
        let staged = self.staged(len, write)?;
        self.stream.copy_from_pinned(&staged, &mut buffer)?;
        Ok(buffer)
    }

    /// Page-locked memory with what `write` puts there, all of which it must set.
    pub(super) fn staged<T: Pod>(&self, len: usize, write: impl FnOnce(&mut [T])) -> Result<Pinned<T>> {
        let mut staged = self.device().pinned().take_as_is::<T>(len)?;
        write(&mut staged.write()?);
        Ok(staged)
    }

    /// A copy of something secret. The page-locked memory behind it is wiped once it is copied, and nobody
    /// waits for that.
    pub(super) fn upload_secret<T: Pod>(&self, host: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(host.len())?;
        if host.is_empty() {
            return Ok(buffer);
        }
        let bytes: &[u8] = bytemuck::cast_slice(host);
        let mut block = SecretBlock::take(self.device(), bytes.len())?;
        block.fill_with(bytes)?;
        let copied = block.copy_to(&self.stream, &mut buffer.slice_mut(..).as_bytes_mut());
        // Dropping it waits for the copy. Without a thread that happens here, when the closure goes.
        let _ = Builder::new().name("fss-wipe".into()).spawn(move || drop(block));
        copied?;
        Ok(buffer)
    }

    /// Queues kernel `entry` of `module`.
    pub(super) fn launch(
        &self,
        module: &Module,
        entry: &'static str,
        grid: &Grid,
        arguments: &[Arg<'_>],
    ) -> Result<()> {
        let kernel = self.device().kernel_of(module, entry)?;
        // Products and comparisons of two streams overlap.
        Ok(kernel.launch(&self.stream, &grid.side_by_side(), arguments)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_of_all_queues_of_a_device_add_up() {
        let device = Device::emulated(4).unwrap();
        let queues = [Queue::new(&device).unwrap(), Queue::new(&device).unwrap()];
        let rooms = queues.each_ref().map(|queue| queue.make_room(5 << 30));
        assert!(device.pinned().stats().limit >= PINNED_AT_LEAST + (10 << 30));
        drop(rooms);
        assert_eq!(device.pinned().rooms(), 0);
    }
}
