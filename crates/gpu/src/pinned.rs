//! Page-locked host memory in size classes, so that copies can overlap with compute.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytemuck::Pod;
use serde::Serialize;

use crate::device::DeviceShared;
use crate::driver::{Driver, EventId};
use crate::{Device, Error, Result, Stream};

/// Smallest block the pool hands out.
const SMALLEST_CLASS: u64 = 4096;

/// A bounded pool of page-locked blocks. Classes are powers of two; a returned block serves the next request of its
/// class as soon as no queued copy uses it.
#[derive(Clone)]
pub struct PinnedPool {
    shared: Arc<PoolShared>,
}

struct PoolShared {
    device: Weak<DeviceShared>,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    idle: HashMap<u64, Vec<Idle>>,
    limit: u64,
    held: u64,
    hits: u64,
    misses: u64,
}

struct Idle {
    address: HostAddress,
    last_use: Option<EventId>,
}

/// What a pool did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PinnedStats {
    /// Requests served by a block that was there.
    pub hits: u64,
    /// Requests that had to lock new pages.
    pub misses: u64,
    /// Bytes locked now, lent or idle.
    pub held: u64,
    /// The bound on `held`.
    pub limit: u64,
}

#[derive(Clone, Copy)]
struct HostAddress(*mut u8);
// SAFETY: the address is of memory that belongs to the pool, not to a thread.
unsafe impl Send for HostAddress {}
// SAFETY: as above; access to the bytes goes through `Pinned`, which follows Rust's borrow rules.
unsafe impl Sync for HostAddress {}

impl PinnedPool {
    pub(crate) fn new(device: Weak<DeviceShared>, limit: u64) -> Self {
        let state = Mutex::new(PoolState { limit, ..PoolState::default() });
        Self { shared: Arc::new(PoolShared { device, state }) }
    }

    /// A zeroed block for `len` elements.
    pub fn take<T: Pod>(&self, len: usize) -> Result<Pinned<T>> {
        let device = Device { shared: self.shared.device.upgrade().ok_or_else(closed)? };
        let overflow = || Error::Length {
            call: "PinnedPool::take",
            message: format!(
                "{len} elements of {} bytes are more than this machine can address",
                size_of::<T>()
            ),
        };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(overflow)? as u64;
        let class = bytes.max(SMALLEST_CLASS).checked_next_power_of_two().ok_or_else(overflow)?;
        let address = self.block(&device, class, bytes)?;
        // SAFETY: the block is `class >= bytes` long and nobody else has it.
        unsafe { std::ptr::write_bytes(address.0, 0, bytes as usize) };
        let block =
            PinnedBlock { pool: self.shared.clone(), device, class, address, last_use: Mutex::default() };
        Ok(Pinned { block: Arc::new(block), len, element: PhantomData })
    }

    /// Hits, misses and bytes so far.
    pub fn stats(&self) -> PinnedStats {
        let state = self.shared.lock();
        PinnedStats { hits: state.hits, misses: state.misses, held: state.held, limit: state.limit }
    }

    /// Changes the bound; idle blocks beyond it are released.
    pub fn set_limit(&self, bytes: u64) {
        self.shared.lock().limit = bytes;
        if let Some(shared) = self.shared.device.upgrade() {
            self.release_idle(&Device { shared }, 0);
        }
    }

    fn block(&self, device: &Device, class: u64, asked: u64) -> Result<HostAddress> {
        {
            let mut state = self.shared.lock();
            let idle = state.idle.entry(class).or_default();
            if let Some(free) = idle.iter().position(|block| block.is_free(device.driver())) {
                let block = idle.swap_remove(free);
                block.forget_use(device.driver());
                state.hits += 1;
                return Ok(block.address);
            }
            state.misses += 1;
        }
        self.release_idle(device, class);
        let mut state = self.shared.lock();
        let refused =
            |state: &PoolState| Error::OutOfPinnedMemory { asked, held: state.held, limit: state.limit };
        if state.held + class > state.limit {
            return Err(refused(&state));
        }
        let address = device.driver().host_allocate(class as usize)?.ok_or_else(|| refused(&state))?;
        state.held += class;
        Ok(HostAddress(address))
    }

    /// Gives idle blocks back to the system until `room` more bytes fit under the bound.
    fn release_idle(&self, device: &Device, room: u64) {
        let mut state = self.shared.lock();
        let state = &mut *state;
        for (&class, idle) in &mut state.idle {
            while state.held + room > state.limit {
                let Some(free) = idle.iter().position(|block| block.is_free(device.driver())) else { break };
                let block = idle.swap_remove(free);
                block.forget_use(device.driver());
                // SAFETY: the block came from this driver with this size and its last copy is complete.
                unsafe { device.driver().host_free(block.address.0, class as usize) };
                state.held -= class;
            }
        }
    }
}

impl Idle {
    fn is_free(&self, driver: &dyn Driver) -> bool {
        // An event that cannot be read belongs to a device that failed: the block is never reused.
        self.last_use.is_none_or(|event| driver.event_is_complete(event).unwrap_or(false))
    }

    fn forget_use(&self, driver: &dyn Driver) {
        if let Some(event) = self.last_use {
            driver.event_destroy(event);
        }
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeviceShared {
    fn drop(&mut self) {
        let idle = std::mem::take(&mut self.pinned.shared.lock().idle);
        for (class, blocks) in idle {
            for block in blocks {
                if let Some(event) = block.last_use {
                    let _ = self.driver.event_synchronize(event);
                }
                block.forget_use(self.driver.as_ref());
                // SAFETY: the block came from this driver with this size and no copy uses it any more.
                unsafe { self.driver.host_free(block.address.0, class as usize) };
            }
        }
    }
}

/// One block on loan. It goes back to the pool when the last user, a graph perhaps, lets go.
pub(crate) struct PinnedBlock {
    pool: Arc<PoolShared>,
    device: Device,
    class: u64,
    address: HostAddress,
    /// The last queued copy. A plain handle: an owning event would tie the pool to its own device.
    last_use: Mutex<Option<EventId>>,
}

impl PinnedBlock {
    /// Notes that `stream` uses the block up to here. Inside a capture nothing runs yet: the graph's launches note it.
    pub(crate) fn used_by(&self, stream: &Stream) -> Result<()> {
        if stream.capture_state().is_some() {
            return Ok(());
        }
        let driver = self.device.driver();
        let mut last_use = self.last_use();
        let event = match *last_use {
            // One event must stand for all uses: this stream's mark comes after the earlier use as well.
            Some(previous) => {
                driver.stream_wait(stream.id(), previous)?;
                previous
            }
            None => driver.event_create()?,
        };
        *last_use = Some(event);
        driver.event_record(event, stream.id())
    }

    /// Waits for the last queued copy.
    fn settle(&self) -> Result<()> {
        let last_use = self.last_use().take();
        let Some(event) = last_use else { return Ok(()) };
        let outcome = self.device.driver().event_synchronize(event);
        self.device.driver().event_destroy(event);
        outcome
    }

    fn last_use(&self) -> MutexGuard<'_, Option<EventId>> {
        self.last_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        let last_use = self.last_use().take();
        let idle = Idle { address: self.address, last_use };
        self.pool.lock().idle.entry(self.class).or_default().push(idle);
    }
}

/// `len` elements of page-locked host memory.
pub struct Pinned<T: Pod> {
    block: Arc<PinnedBlock>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Pinned<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, after the last queued copy that uses them.
    pub fn read(&self) -> Result<&[T]> {
        self.block.settle()?;
        // SAFETY: the block holds `len` initialised elements, aligned to a page, and no queued copy touches it now.
        Ok(unsafe { std::slice::from_raw_parts(self.block.address.0.cast(), self.len) })
    }

    /// The elements, to change, after the last queued copy that uses them.
    pub fn write(&mut self) -> Result<&mut [T]> {
        self.block.settle()?;
        // SAFETY: as in `read`, and the borrow is exclusive. A graph that copies from this block reads it only while
        // it runs, which records a use through `Graph::launch`.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.block.address.0.cast(), self.len) })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.block.device
    }

    pub(crate) fn block(&self) -> Arc<PinnedBlock> {
        self.block.clone()
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.block.address.0
    }
}

fn closed() -> Error {
    Error::Graph { message: "the device of this pinned pool has been closed".into() }
}
