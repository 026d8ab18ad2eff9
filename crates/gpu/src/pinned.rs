//! Page-locked host memory in size classes, so that copies can overlap with compute.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard, Weak};

use bytemuck::Pod;
use serde::Serialize;

use crate::device::DeviceShared;
use crate::driver::{Driver, EventId};
use crate::locked::Locked;
use crate::order::Ordered as _;
use crate::stream::forbid_inside;
use crate::types::class_of;
use crate::{Device, Error, Result, Stream};

/// A bounded pool of page-locked blocks. Classes are powers of two; a returned block serves the next request
/// of its class as soon as no queued copy uses it.
#[derive(Clone)]
pub struct PinnedPool {
    shared: Arc<PoolShared>,
}

struct PoolShared {
    device: Weak<DeviceShared>,
    state: Locked<PoolState>,
}

#[derive(Default)]
struct PoolState {
    idle: HashMap<u64, Vec<Idle>>,
    limit: u64,
    held: u64,
    /// Bytes of rooms.
    rooms: u64,
    /// How many rooms are lent, and the most that one of them asked for as the least bound.
    lent: u64,
    lent_least: u64,
    hits: u64,
    misses: u64,
}

struct Idle {
    address: HostAddress,
    last_use: Option<EventId>,
}

/// Hits, misses and bytes of a pool.
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
        let state = Locked::new(PoolState { limit, ..PoolState::default() });
        Self { shared: Arc::new(PoolShared { device, state }) }
    }

    /// A zeroed block for `len` elements.
    pub fn take<T: Pod>(&self, len: usize) -> Result<Pinned<T>> {
        let pinned = self.take_as_is(len)?;
        // SAFETY: the block is as long and nobody else has it.
        unsafe { std::ptr::write_bytes(pinned.address(), 0, len * size_of::<T>()) };
        Ok(pinned)
    }

    /// A block for `len` elements, in which there is what its last user left, or zeros: for whoever
    /// overwrites all of it.
    pub fn take_as_is<T: Pod>(&self, len: usize) -> Result<Pinned<T>> {
        let device = Device { shared: self.shared.device.upgrade().ok_or_else(closed)? };
        let overflow = || Error::Length {
            call: "PinnedPool::take",
            message: format!(
                "{len} elements of {} bytes are more than this machine can address",
                size_of::<T>()
            ),
        };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(overflow)? as u64;
        let class = class_of(bytes).ok_or_else(overflow)?;
        let address = self.block(&device, class, bytes)?;
        let block =
            PinnedBlock { pool: self.shared.clone(), device, class, address, state: Locked::default() };
        Ok(Pinned { block: Arc::new(block), len, element: PhantomData })
    }

    /// Hits, misses and bytes so far.
    pub fn stats(&self) -> PinnedStats {
        let state = self.shared.lock();
        PinnedStats { hits: state.hits, misses: state.misses, held: state.held, limit: state.bound() }
    }

    /// Changes the bound; idle blocks beyond it are released.
    pub fn set_limit(&self, bytes: u64) {
        self.shared.lock().limit = bytes;
        if let Some(shared) = self.shared.device.upgrade() {
            self.release_idle(&Device { shared }, 0);
        }
    }

    /// Raises the bound, where it is lower, to `least` bytes and those of all rooms that there are. The bound
    /// stays when a room goes: the pool keeps what it has locked for whoever comes next.
    pub fn make_room(&self, least: u64, bytes: u64) -> PinnedRoom {
        let mut state = self.shared.lock();
        state.rooms += bytes;
        state.limit = state.limit.max(least.saturating_add(state.rooms));
        drop(state);
        PinnedRoom { pool: self.clone(), bytes, is_lent: false }
    }

    /// As [`PinnedPool::make_room`], for a single use: when the room goes, the bound is what it was before,
    /// and idle blocks beyond it are released.
    pub fn lend_room(&self, least: u64, bytes: u64) -> PinnedRoom {
        let mut state = self.shared.lock();
        state.rooms += bytes;
        state.lent += 1;
        state.lent_least = state.lent_least.max(least);
        drop(state);
        PinnedRoom { pool: self.clone(), bytes, is_lent: true }
    }

    /// Bytes of all rooms that there are.
    pub fn rooms(&self) -> u64 {
        self.shared.lock().rooms
    }

    fn block(&self, device: &Device, class: u64, asked: u64) -> Result<HostAddress> {
        self.block_after(device, class, asked, || ())
    }

    /// The same, where `meanwhile` happens between the first look for an idle block and the last.
    fn block_after(
        &self,
        device: &Device,
        class: u64,
        asked: u64,
        meanwhile: impl FnOnce(),
    ) -> Result<HostAddress> {
        if let Some(address) = self.shared.lock().take_idle(device, class) {
            return Ok(address);
        }
        self.release_idle(device, class);
        meanwhile();
        let refused =
            |state: &PoolState| Error::OutOfPinnedMemory { asked, held: state.held, limit: state.bound() };
        {
            let mut state = self.shared.lock();
            if state.held + class > state.bound() {
                // Another user may have given a block back since.
                return state.take_idle(device, class).ok_or_else(|| refused(&state));
            }
            state.misses += 1;
            state.held += class;
        }
        // Not under the lock: locking pages takes long, and others want blocks that are there.
        let allocated = device.driver().host_allocate(class as usize);
        if let Ok(Some(address)) = allocated {
            return Ok(HostAddress(address));
        }
        let mut state = self.shared.lock();
        state.held -= class;
        allocated.and(Err(refused(&state)))
    }

    /// Gives idle blocks back to the system until `room` more bytes fit under the bound.
    fn release_idle(&self, device: &Device, room: u64) {
        let mut state = self.shared.lock();
        let bound = state.bound();
        let state = &mut *state;
        for (&class, idle) in &mut state.idle {
            while state.held + room > bound {
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

/// Page-locked memory that was promised to somebody.
pub struct PinnedRoom {
    pool: PinnedPool,
    bytes: u64,
    is_lent: bool,
}

impl Drop for PinnedRoom {
    fn drop(&mut self) {
        {
            let mut state = self.pool.shared.lock();
            state.rooms -= self.bytes;
            if !self.is_lent {
                return;
            }
            state.lent -= 1;
            if state.lent == 0 {
                state.lent_least = 0;
            }
        }
        if let Some(shared) = self.pool.shared.device.upgrade() {
            self.pool.release_idle(&Device { shared }, 0);
        }
    }
}

impl PoolState {
    /// The bound in force: higher than the pool's own while rooms are lent.
    fn bound(&self) -> u64 {
        let of_rooms = if self.lent > 0 { self.lent_least.saturating_add(self.rooms) } else { 0 };
        self.limit.max(of_rooms)
    }

    /// An idle block of this class that no queued copy uses.
    fn take_idle(&mut self, device: &Device, class: u64) -> Option<HostAddress> {
        let idle = self.idle.entry(class).or_default();
        let free = idle.iter().position(|block| block.is_free(device.driver()))?;
        let block = idle.swap_remove(free);
        block.forget_use(device.driver());
        self.hits += 1;
        Some(block.address)
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
        self.state.lock()
    }
}

impl Drop for DeviceShared {
    fn drop(&mut self) {
        for stream in std::mem::take(self.idle_signals.get_mut()) {
            self.driver.stream_destroy(stream);
        }
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

/// What a queued copy does to pinned memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeviceUse {
    Reads,
    Writes,
}

/// One block on loan. It goes back to the pool when the last user, a graph perhaps, lets go.
pub(crate) struct PinnedBlock {
    pool: Arc<PoolShared>,
    device: Device,
    class: u64,
    address: HostAddress,
    state: Locked<BlockState>,
}

/// Who uses a block. A graph can be launched while the program holds a slice, so slices are counted.
#[derive(Default)]
pub(crate) struct BlockState {
    /// The last queued copy.
    last_use: Option<LastUse>,
    readers: usize,
    written: bool,
}

struct LastUse {
    /// A plain handle: an owning event would tie the pool to its own device.
    event: EventId,
    /// The line of the stream that it is on.
    line: u64,
    /// Whether it, or one before it, writes.
    writes: bool,
}

/// A use of page-locked memory by queued work.
pub(crate) type PinnedUse = (Arc<PinnedBlock>, DeviceUse);

/// Queues `work` on `stream`, after the uses of pinned memory that it conflicts with, and notes what it uses.
/// Refused while a slice of it is in the way.
pub(crate) fn queued<R>(
    stream: &Stream,
    mut uses: Vec<PinnedUse>,
    work: impl FnOnce() -> Result<R>,
) -> Result<R> {
    // Each block once, for the most that is done to it, in the one order in which everybody locks them.
    uses.sort_by_key(|(block, device_use)| (Arc::as_ptr(block), Reverse(*device_use)));
    uses.dedup_by(|(later, _), (earlier, _)| Arc::ptr_eq(later, earlier));
    let locked = uses.iter().map(|(block, device_use)| block.lock_for(*device_use));
    let mut states = locked.collect::<Result<Vec<_>>>()?;
    for (state, (_, device_use)) in states.iter().zip(&uses) {
        state.order(stream, *device_use)?;
    }
    let outcome = work();
    // Noted even if that failed: a part of it may be queued.
    let mut noted = Ok(());
    for (state, (_, device_use)) in states.iter_mut().zip(&uses) {
        noted = noted.and(state.note(stream, *device_use));
    }
    outcome.and_then(|outcome| noted.map(|()| outcome))
}

impl BlockState {
    /// Makes `stream` come after the uses that this one conflicts with.
    fn order(&self, stream: &Stream, device_use: DeviceUse) -> Result<()> {
        match &self.last_use {
            Some(last) if last.is_elsewhere(stream) && (last.writes || device_use == DeviceUse::Writes) => {
                stream.device().driver().stream_wait(stream.id(), last.event)
            }
            _ => Ok(()),
        }
    }

    /// Notes that `stream` uses the block up to here.
    fn note(&mut self, stream: &Stream, device_use: DeviceUse) -> Result<()> {
        let driver = stream.device().driver();
        let noted = (|| {
            let (event, written) = match &self.last_use {
                // One event must stand for all uses: this stream's mark comes after the earlier use as well.
                Some(last) => {
                    if last.is_elsewhere(stream) {
                        driver.stream_wait(stream.id(), last.event)?;
                    }
                    (last.event, last.writes)
                }
                None => (driver.event_create()?, false),
            };
            let writes = written || device_use == DeviceUse::Writes;
            self.last_use = Some(LastUse { event, line: stream.line().number(), writes });
            driver.event_record(event, stream.id())
        })();
        if noted.is_err() {
            // A copy that is not on record must not outlive this call.
            let _ = driver.stream_synchronize(stream.id());
        }
        noted
    }
}

impl LastUse {
    fn is_elsewhere(&self, stream: &Stream) -> bool {
        self.line != stream.line().number()
    }
}

impl PinnedBlock {
    /// Locks the block for a launch that uses it so, unless a slice is in the way.
    pub(crate) fn lock_for(&self, device_use: DeviceUse) -> Result<MutexGuard<'_, BlockState>> {
        let state = self.lock();
        if state.written || (device_use == DeviceUse::Writes && state.readers > 0) {
            let message = "it copies pinned memory of which the program holds a slice; drop the slice before the launch";
            return Err(Error::Graph { message: message.into() });
        }
        Ok(state)
    }

    /// Waits for the last queued copy, and counts a slice that is about to be handed out. The lock is held
    /// meanwhile: another thread that asks must wait too.
    fn borrow(&self, count: impl FnOnce(&mut BlockState)) -> Result<()> {
        forbid_inside("waiting for page-locked memory")?;
        let mut state = self.lock();
        if let Some(last) = state.last_use.take() {
            let outcome = self.device.driver().event_synchronize(last.event);
            self.device.driver().event_destroy(last.event);
            outcome?;
        }
        count(&mut state);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BlockState> {
        self.state.lock()
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        let last_use = self.lock().last_use.take().map(|last| last.event);
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
    pub fn read(&self) -> Result<PinnedRef<'_, T>> {
        self.block.borrow(|state| state.readers += 1)?;
        Ok(PinnedRef { pinned: self })
    }

    /// The elements, to change, after the last queued copy that uses them.
    pub fn write(&mut self) -> Result<PinnedMut<'_, T>> {
        self.block.borrow(|state| state.written = true)?;
        Ok(PinnedMut { pinned: self })
    }

    /// Waits for the last queued copy. From then on the elements are there to be read, by anybody and for as
    /// long as they are kept.
    pub fn into_read(self) -> Result<PinnedRead<T>> {
        self.block.borrow(|state| state.readers += 1)?;
        Ok(PinnedRead { pinned: self })
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

/// The elements of a [`Pinned`], to read. While it lives, no graph that writes them can be launched.
pub struct PinnedRef<'a, T: Pod> {
    pinned: &'a Pinned<T>,
}

impl<T: Pod> Deref for PinnedRef<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the block holds `len` initialised elements, aligned to a page. No queued copy writes them:
        // the last was waited for, a new one needs the `Pinned` exclusively, and a graph is refused while
        // this is counted.
        unsafe { std::slice::from_raw_parts(self.pinned.address().cast(), self.pinned.len) }
    }
}

impl<T: Pod> Drop for PinnedRef<'_, T> {
    fn drop(&mut self) {
        self.pinned.block.lock().readers -= 1;
    }
}

/// A [`Pinned`] that is only read from now on. While it lives, no graph that writes it can be launched.
pub struct PinnedRead<T: Pod> {
    pinned: Pinned<T>,
}

impl<T: Pod> PinnedRead<T> {
    /// The same, to be written again.
    pub fn into_pinned(self) -> Pinned<T> {
        let this = ManuallyDrop::new(self);
        this.pinned.block.lock().readers -= 1;
        // SAFETY: `this` is not dropped, and nobody uses it any more.
        unsafe { std::ptr::read(&this.pinned) }
    }
}

impl<T: Pod> AsRef<[T]> for PinnedRead<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: as for `PinnedRef`; nobody can queue a copy into it, since nobody else has the `Pinned`.
        unsafe { std::slice::from_raw_parts(self.pinned.address().cast(), self.pinned.len) }
    }
}

impl<T: Pod> Drop for PinnedRead<T> {
    fn drop(&mut self) {
        self.pinned.block.lock().readers -= 1;
    }
}

/// The elements of a [`Pinned`], to change. While it lives, no graph that copies them can be launched.
pub struct PinnedMut<'a, T: Pod> {
    pinned: &'a mut Pinned<T>,
}

impl<T: Pod> Deref for PinnedMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as for `PinnedRef`.
        unsafe { std::slice::from_raw_parts(self.pinned.address().cast(), self.pinned.len) }
    }
}

impl<T: Pod> DerefMut for PinnedMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `PinnedRef`; the `Pinned` is borrowed exclusively, and no queued copy reads the
        // elements either.
        unsafe { std::slice::from_raw_parts_mut(self.pinned.address().cast(), self.pinned.len) }
    }
}

impl<T: Pod> Drop for PinnedMut<'_, T> {
    fn drop(&mut self) {
        self.pinned.block.lock().written = false;
    }
}

fn closed() -> Error {
    Error::Graph { message: "the device of this pinned pool has been closed".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SMALLEST_CLASS;

    #[test]
    fn a_block_that_just_came_back_is_not_refused() {
        let device = Device::emulated(3).unwrap();
        let pool = device.pinned();
        pool.set_limit(SMALLEST_CLASS);
        let only = pool.take::<u8>(100).unwrap();
        assert!(matches!(pool.take::<u8>(100), Err(Error::OutOfPinnedMemory { .. })));
        // Its user gives it back after the first look, and after idle blocks have been looked through.
        let address = only.address();
        let found = pool.block_after(&device, SMALLEST_CLASS, 100, || drop(only)).unwrap();
        assert_eq!(found.0, address);
        assert_eq!(pool.stats().held, SMALLEST_CLASS);
        let idle = Idle { address: found, last_use: None };
        pool.shared.lock().idle.entry(SMALLEST_CLASS).or_default().push(idle);
    }

    #[test]
    fn rooms_of_one_device_add_up_from_whichever_thread() {
        let device = Device::emulated(3).unwrap();
        let (pool, least) = (device.pinned(), 1 << 40);
        let rooms: Vec<PinnedRoom> = std::thread::scope(|scope| {
            let make = |_| scope.spawn(|| (0..50).map(|_| pool.make_room(least, 7)).collect::<Vec<_>>());
            let threads: Vec<_> = (0..8).map(make).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!((pool.rooms(), pool.stats().limit), (400 * 7, least + 400 * 7));
        drop(rooms);
        assert_eq!((pool.rooms(), pool.stats().limit), (0, least + 400 * 7));
    }

    #[test]
    fn what_was_lent_is_given_back_with_its_pages() {
        let device = Device::emulated(3).unwrap();
        let pool = device.pinned();
        pool.set_limit(2 * SMALLEST_CLASS);
        let rooms = [pool.lend_room(SMALLEST_CLASS, 5 * SMALLEST_CLASS), pool.lend_room(0, SMALLEST_CLASS)];
        assert_eq!(pool.stats().limit, 7 * SMALLEST_CLASS);
        let blocks: Vec<_> = (0..7).map(|_| pool.take::<u8>(100).unwrap()).collect();
        drop(blocks);
        let [first, second] = rooms;
        drop(first);
        assert_eq!((pool.stats().limit, pool.stats().held), (2 * SMALLEST_CLASS, 2 * SMALLEST_CLASS));
        drop(second);
        assert_eq!((pool.stats().limit, pool.rooms()), (2 * SMALLEST_CLASS, 0));
    }

    #[test]
    fn a_refusal_says_whether_the_bound_or_the_system_refused() {
        let refused =
            |held: u64| Error::OutOfPinnedMemory { asked: 5000, held, limit: 2 * SMALLEST_CLASS }.to_string();
        // A block of 8192 bytes, which the bound leaves room for at first.
        assert!(refused(0).contains("ulimit -l"), "{}", refused(0));
        assert!(refused(1).contains("PinnedPool::set_limit"), "{}", refused(1));
    }
}
