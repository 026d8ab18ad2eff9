//! Page-locked memory that holds secrets for a while.

use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use gatework_gpu::{Device, Pinned, PinnedRead, PinnedRef, Slice, Stream, View as _, ViewMut};
use rayon::iter::ParallelIterator as _;
use rayon::slice::ParallelSliceMut as _;

use crate::error::Result;
use crate::key::KeySection;
use crate::secret::copy_on_all_cores;

/// Bytes that one thread wipes.
const SHARE: usize = 512 << 10;

/// Bytes that are wiped when they go, after the last copy that was queued for them.
pub(super) struct SecretBlock(Pinned<u8>);

impl SecretBlock {
    /// Memory with anything in it.
    pub(super) fn take(device: &Device, count: usize) -> Result<Self> {
        Ok(Self(device.pinned().take_as_is(count)?))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Copies as many bytes from memory that may be paged.
    pub(super) fn fill_with(&mut self, bytes: &[u8]) -> Result<()> {
        copy_on_all_cores(&mut self.0.write()?, bytes);
        Ok(())
    }

    /// Reads as many bytes of a section.
    pub(super) fn read_from(&mut self, section: &mut KeySection) -> Result<()> {
        section.read(&mut self.0.write()?)
    }

    /// Queues a copy to the device.
    pub(super) fn copy_to(&self, stream: &Stream, device: &mut impl ViewMut<u8>) -> Result<()> {
        Ok(stream.copy_from_pinned(&self.0, device)?)
    }

    /// Queues a copy from the device.
    pub(super) fn copy_from(&mut self, stream: &Stream, device: Slice<'_, u8>) -> Result<()> {
        Ok(stream.copy_to_pinned(&device.view(), &mut self.0)?)
    }

    /// The bytes, after the last copy.
    pub(super) fn read(&self) -> Result<PinnedRef<'_, u8>> {
        Ok(self.0.read()?)
    }

    /// Waits for the last copy, after which nothing writes the block. It is wiped when it has come
    /// [back](Self::from_read).
    pub(super) fn into_read(self) -> Result<PinnedRead<u8>> {
        // Whatever fails, fails here, where it is still wiped.
        drop(self.read()?);
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, and nobody uses it any more.
        Ok(unsafe { std::ptr::read(&this.0) }.into_read()?)
    }

    /// A block that was only read.
    pub(super) fn from_read(bytes: PinnedRead<u8>) -> Self {
        Self(bytes.into_pinned())
    }
}

impl Drop for SecretBlock {
    fn drop(&mut self) {
        match self.0.write() {
            Ok(mut bytes) => bytes.par_chunks_mut(SHARE).for_each(|share| share.fill(0)),
            Err(error) => tracing::warn!("secrets may be left in page-locked memory: {error}"),
        }
    }
}

/// Blocks that are wiped on threads of their own: gigabytes take a while, and whoever has just got a result
/// should not wait for it.
#[derive(Default)]
pub(super) struct Wiper(Mutex<Vec<JoinHandle<()>>>);

impl Wiper {
    /// Wipes them, beside whatever comes next.
    pub(super) fn wipe(&self, blocks: Vec<SecretBlock>) {
        if blocks.is_empty() {
            return;
        }
        // Without a thread they are wiped here, when the closure goes.
        let thread = Builder::new().name("wipe".into()).spawn(move || drop(blocks));
        let mut threads = self.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.extend(thread.ok());
    }

    /// Waits until all of them are.
    pub(super) fn wait(&self) {
        let threads = std::mem::take(&mut *self.lock());
        for thread in threads {
            // A panic there was printed, and who waits cannot do anything about it.
            let _ = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Wiper {
    fn drop(&mut self) {
        self.wait();
    }
}
