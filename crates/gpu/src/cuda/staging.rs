//! Page-locked memory of a stream, that small copies between ordinary memory and the device go through: the
//! driver's own way waits for everything queued before, or takes several calls.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, MutexGuard};

use cudarc::driver::sys;

use crate::Result;
use crate::cuda::context::Context;
use crate::cuda::status::{check, check_release};
use crate::locked::Locked;

/// Largest copy that goes this way.
pub(super) const LARGEST: usize = 64 << 10;
/// Bytes for copies to the device that are on their way.
const UPWARD: usize = 1 << 20;
/// Copies start at multiples of this.
const ALIGNMENT: usize = 64;

/// Page-locked memory for the small copies of one stream, made at the first.
#[derive(Default)]
pub(super) struct Staging {
    upward: Locked<Upward>,
    downward: Locked<Option<PageLocked>>,
}

/// What is on its way to the device.
#[derive(Default)]
struct Upward {
    memory: Option<PageLocked>,
    places: Places,
}

/// Which bytes of a block of [`UPWARD`] copies may still use.
#[derive(Default)]
struct Places {
    used: usize,
    /// Copies so far.
    count: u64,
}

impl Places {
    /// Where the next copy of `bytes` goes, if there is room.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let place = self.used;
        let end = place.checked_add(bytes).filter(|&end| end <= UPWARD)?;
        self.used = end.next_multiple_of(ALIGNMENT);
        self.count += 1;
        Some(place)
    }

    /// After a wait that began when there were `count` copies: all bytes are free, unless another copy came
    /// meanwhile.
    fn rewind(&mut self, count: u64) {
        if self.count == count {
            self.used = 0;
        }
    }
}

/// Bytes from `cuMemHostAlloc`.
struct PageLocked {
    context: Arc<Context>,
    address: *mut u8,
}

// SAFETY: the memory belongs to no thread; all access is behind the locks of `Staging`.
unsafe impl Send for PageLocked {}

impl PageLocked {
    fn new(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        let mut address: *mut c_void = ptr::null_mut();
        // SAFETY: `address` is written by the call.
        let status = unsafe { sys::cuMemHostAlloc(&mut address, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        check("cuMemHostAlloc", status)?;
        Ok(Self { context: context.clone(), address: address.cast() })
    }
}

impl Drop for PageLocked {
    fn drop(&mut self) {
        match self.context.enter() {
            // SAFETY: allocated once in `new`, and the owner has waited for the stream's copies.
            Ok(()) => check_release("cuMemFreeHost", unsafe { sys::cuMemFreeHost(self.address.cast()) }),
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

impl Staging {
    /// Has `copy` queue a copy from staged bytes of `source`; `wait` waits for the stream if there is no more
    /// room. The caller has entered the context.
    ///
    /// # Safety
    /// `source` has `bytes` readable bytes, at most [`LARGEST`].
    pub(super) unsafe fn send(
        &self,
        context: &Arc<Context>,
        source: *const u8,
        bytes: usize,
        wait: impl FnOnce() -> Result<()>,
        copy: impl FnOnce(*const u8) -> Result<()>,
    ) -> Result<()> {
        let mut upward = self.upward();
        let Upward { memory, places } = &mut *upward;
        let place = match places.take(bytes) {
            Some(place) => place,
            None => {
                wait()?;
                let count = places.count;
                places.rewind(count);
                places.take(bytes).expect("an empty block has room for a small copy")
            }
        };
        let memory = match memory {
            Some(memory) => memory.address,
            None => memory.insert(PageLocked::new(context, UPWARD)?).address,
        };
        // SAFETY: the memory has UPWARD bytes, and the place is among them.
        let staged = unsafe { memory.add(place) };
        // SAFETY: the source is the caller's promise; the place is that of no copy that may be on its way.
        unsafe { ptr::copy_nonoverlapping(source, staged, bytes) };
        copy(staged)
    }

    /// Has `copy` bring bytes from the device into page-locked memory, and wait for them; then they are in
    /// `target`. The caller has entered the context.
    ///
    /// # Safety
    /// `target` has `bytes` writable bytes, at most [`LARGEST`].
    pub(super) unsafe fn receive(
        &self,
        context: &Arc<Context>,
        target: *mut u8,
        bytes: usize,
        copy: impl FnOnce(*mut u8) -> Result<()>,
    ) -> Result<()> {
        let mut downward = self.downward.lock();
        let memory = match &*downward {
            Some(memory) => memory.address,
            None => downward.insert(PageLocked::new(context, LARGEST)?).address,
        };
        copy(memory)?;
        // SAFETY: the target is the caller's promise, and the memory has LARGEST bytes, which only this lock
        // gives access to.
        unsafe { ptr::copy_nonoverlapping(memory, target, bytes) };
        Ok(())
    }

    /// How many copies there were before a wait for the stream.
    pub(super) fn mark(&self) -> u64 {
        self.upward().places.count
    }

    /// After that wait: all memory is free again, unless another copy came meanwhile.
    pub(super) fn rewind(&self, mark: u64) {
        self.upward().places.rewind(mark);
    }

    /// Whether copies may be on their way.
    pub(super) fn is_busy(&self) -> bool {
        self.upward().places.used > 0
    }

    fn upward(&self) -> MutexGuard<'_, Upward> {
        self.upward.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_until_the_stream_was_waited_for() {
        let mut places = Places::default();
        let mut taken = Vec::new();
        while let Some(place) = places.take(LARGEST - 1) {
            taken.push(place);
        }
        assert_eq!(taken.len(), UPWARD / LARGEST);
        assert!(taken.windows(2).all(|pair| pair[0] + LARGEST - 1 <= pair[1]));
        assert!(taken.iter().all(|place| place % ALIGNMENT == 0));
        let mark = places.count;
        places.rewind(mark);
        assert_eq!(places.take(1), Some(0));
    }

    #[test]
    fn a_copy_that_comes_during_a_wait_keeps_its_place() {
        let mut places = Places::default();
        places.take(100);
        let mark = places.count;
        let during = places.take(100);
        places.rewind(mark);
        assert!(places.take(100) > during);
        // As many copies after a rewind as before are other copies.
        places.rewind(places.count);
        let mark = places.count;
        places.rewind(mark);
        places.take(8);
        places.rewind(mark);
        assert_eq!(places.take(8), Some(ALIGNMENT));
    }
}
