//! Streams order work, events order streams. Nothing uses a default stream.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytemuck::Pod;

use crate::buffer::{Allocation, Buffer, View, ViewMut};
use crate::driver::{EventId, HostMemory, Owner, Pointer, StreamId};
use crate::graph::{Capture, Graph, Retained};
use crate::locked::Locked;
use crate::pinned::{DeviceUse, Pinned};
use crate::types::{Grid, Priority};
use crate::{Device, Error, Result, args, kernels};

/// An in-order queue of copies and launches. Cheap to clone; all clones are one queue.
#[derive(Clone)]
pub struct Stream {
    shared: Arc<StreamShared>,
}

pub(crate) struct StreamShared {
    device: Device,
    id: StreamId,
    capture: Locked<Option<Arc<Capture>>>,
    /// What keeps a stream alive that is not ours.
    owner: Option<Owner>,
}

impl Drop for StreamShared {
    fn drop(&mut self) {
        if self.owner.is_none() {
            self.device.driver().stream_destroy(self.id);
        }
    }
}

impl Stream {
    pub(crate) fn new(device: &Device, priority: Priority) -> Result<Self> {
        let id = device.driver().stream_create(priority)?;
        let shared = StreamShared { device: device.clone(), id, capture: Locked::default(), owner: None };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A stream of somebody else's.
    pub(crate) fn lent(device: &Device, id: StreamId, owner: Owner) -> Self {
        let owner = Some(owner);
        Self {
            shared: Arc::new(StreamShared { device: device.clone(), id, capture: Locked::default(), owner }),
        }
    }

    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Uninitialised memory for `len` elements.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::new(self, len)
    }

    /// Zeroed memory for `len` elements.
    pub fn alloc_zeros<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        let buffer = Buffer::new(self, len)?;
        let bytes = buffer.bytes() as usize;
        self.device().driver().fill(self.id(), buffer.view().pointer(), &[0], bytes)?;
        Ok(buffer)
    }

    /// A new buffer with a copy of `host`.
    pub fn upload<T: Pod>(&self, host: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(host.len())?;
        self.copy_from_host(host, &mut buffer)?;
        Ok(buffer)
    }

    /// Copies `host` to the device. The slice may change as soon as this returns.
    pub fn copy_from_host<T: Pod>(&self, host: &[T], device: &mut impl ViewMut<T>) -> Result<()> {
        const CALL: &str = "Stream::copy_from_host";
        self.forbid_in_capture(
            CALL,
            "ordinary host memory may be gone when the graph runs; use pinned memory",
        )?;
        let target = self.target(device, host.len(), CALL)?;
        let bytes: &[u8] = bytemuck::cast_slice(host);
        // SAFETY: `bytes` is readable during the call, which is all that pageable copies ask.
        unsafe {
            self.device().driver().copy_to_device(
                self.id(),
                target,
                bytes.as_ptr(),
                bytes.len(),
                HostMemory::Pageable,
            )
        }
    }

    /// Copies device memory into a new vector, after everything queued before. This waits for the device.
    pub fn download<T: Pod>(&self, device: &impl View<T>) -> Result<Vec<T>> {
        let mut host = vec![T::zeroed(); device.view().len()];
        self.copy_to_host(device, &mut host)?;
        Ok(host)
    }

    /// Copies device memory into `host`, after everything queued before. This waits for the device.
    pub fn copy_to_host<T: Pod>(&self, device: &impl View<T>, host: &mut [T]) -> Result<()> {
        const CALL: &str = "Stream::copy_to_host";
        self.forbid_in_capture(CALL, "it waits for the device; copy to pinned memory instead")?;
        let source = self.source(device, host.len(), CALL)?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(host);
        let (pointer, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: `bytes` is writable during the call, and a pageable copy is complete when it returns.
        unsafe { self.device().driver().copy_to_host(self.id(), pointer, source, len, HostMemory::Pageable) }
    }

    /// Queues a copy from page-locked memory. `host` may be used again at once: touching it waits for the copy.
    pub fn copy_from_pinned<T: Pod>(&self, host: &Pinned<T>, device: &mut impl ViewMut<T>) -> Result<()> {
        const CALL: &str = "Stream::copy_from_pinned";
        self.device().require_same(host.device(), CALL)?;
        let target = self.target(device, host.len(), CALL)?;
        let bytes = host.len() * size_of::<T>();
        self.retain_in_capture(|| Retained::Pinned(host.block(), DeviceUse::Reads));
        // SAFETY: the block outlives the copy: it is returned to the pool only after the event recorded below, and a
        // captured copy keeps the block alive with the graph.
        unsafe {
            self.device().driver().copy_to_device(
                self.id(),
                target,
                host.address(),
                bytes,
                HostMemory::Pinned,
            )?;
        }
        host.block().used_by(self)
    }

    /// Queues a copy into page-locked memory. Reading `host` waits for the copy.
    pub fn copy_to_pinned<T: Pod>(&self, device: &impl View<T>, host: &mut Pinned<T>) -> Result<()> {
        const CALL: &str = "Stream::copy_to_pinned";
        self.device().require_same(host.device(), CALL)?;
        let source = self.source(device, host.len(), CALL)?;
        let bytes = host.len() * size_of::<T>();
        self.retain_in_capture(|| Retained::Pinned(host.block(), DeviceUse::Writes));
        // SAFETY: as in `copy_from_pinned`; the exclusive borrow ends before the copy does, and reading waits.
        unsafe {
            self.device().driver().copy_to_host(
                self.id(),
                host.address(),
                source,
                bytes,
                HostMemory::Pinned,
            )?;
        }
        host.block().used_by(self)
    }

    /// Queues a copy between two device buffers.
    pub fn copy<T: Pod>(&self, from: &impl View<T>, to: &mut impl ViewMut<T>) -> Result<()> {
        const CALL: &str = "Stream::copy";
        let len = to.view().len();
        let source = self.source(from, len, CALL)?;
        let target = self.target(to, len, CALL)?;
        self.device().driver().copy_on_device(self.id(), target, source, len * size_of::<T>())
    }

    /// Sets every element to `value`.
    pub fn fill<T: Pod>(&self, buffer: &mut impl ViewMut<T>, value: T) -> Result<()> {
        let len = buffer.view().len();
        let target = self.target(buffer, len, "Stream::fill")?;
        let pattern = bytemuck::bytes_of(&value);
        match pattern.len() {
            0 => Ok(()),
            _ if len == 0 => Ok(()),
            1 | 2 | 4 => self.device().driver().fill(self.id(), target, pattern, len),
            width => {
                let words: Vec<u32> = pattern.chunks(4).map(pad_word).collect();
                let kernel = self.device().kernel_of(&kernels::fill(width as u32), "fill")?;
                let mut pattern = [0u32; kernels::FILL_MAX_BYTES / 4];
                pattern
                    .get_mut(..words.len())
                    .ok_or_else(|| Error::Length {
                        call: "Stream::fill",
                        message: format!(
                            "elements of {width} bytes are too wide, {} at most",
                            kernels::FILL_MAX_BYTES
                        ),
                    })?
                    .copy_from_slice(&words);
                let grid = Grid::covering(len, 256);
                let mut view = buffer.view_mut();
                kernel.launch(self, &grid, &args![view.as_bytes_mut(), crate::ByValue(&pattern), len as u64])
            }
        }
    }

    /// `to[i] = from[indices[i]]`. An index past the end of `from` leaves `to[i]` all-ones and is never read.
    pub fn gather<T: Pod>(
        &self,
        from: &impl View<T>,
        indices: &impl View<u32>,
        to: &mut impl ViewMut<T>,
    ) -> Result<()> {
        let len = to.view().len();
        let found = indices.view().len();
        if found != len {
            let message = format!("{found} indices for {len} elements");
            return Err(Error::Length { call: "Stream::gather", message });
        }
        if len == 0 || size_of::<T>() == 0 {
            return Ok(());
        }
        let kernel = self.device().kernel_of(&kernels::gather(size_of::<T>() as u32), "gather")?;
        let (from, indices, mut to) = (from.view(), indices.view(), to.view_mut());
        let from_len = from.len() as u64;
        let grid = Grid::covering(len, 256);
        kernel.launch(self, &grid, &args![from.as_bytes(), indices, to.as_bytes_mut(), from_len, len as u64])
    }

    /// Marks this point of the queue.
    pub fn record(&self) -> Result<Event> {
        let event = Event::new(self.device())?;
        self.device().driver().event_record(event.shared.id, self.id())?;
        *event.lock() = self.capture_state();
        Ok(event)
    }

    /// Work queued from now on runs after what `event` marked, on this device or on another that this one reaches. A stream
    /// that waits for an event of a capture joins it.
    pub fn wait(&self, event: &Event) -> Result<()> {
        const CALL: &str = "Stream::wait";
        self.device().require_reach(&event.shared.device, CALL)?;
        let joins = match (self.capture_state(), event.lock().clone()) {
            (None, Some(of_event)) if !self.device().same_as(&event.shared.device) => {
                return Err(
                    of_event.broken_by(CALL, "a graph is of one device, and a stream of another waits")
                );
            }
            (Some(mine), Some(of_event)) if Arc::ptr_eq(&mine, &of_event) => None,
            (Some(mine), _) => {
                let reason =
                    "the event was recorded outside of the capture; wait for it before the capture begins";
                return Err(mine.broken_by(CALL, reason));
            }
            (None, Some(of_event)) if of_event.is_open() => Some(of_event),
            (None, Some(_)) => return Err(never_happens(CALL)),
            (None, None) => None,
        };
        self.device().driver().stream_wait(self.id(), event.shared.id)?;
        if let Some(capture) = joins {
            capture.join(self);
            *self.lock() = Some(capture);
        }
        Ok(())
    }

    /// Waits until everything queued so far is done. Errors of that work surface here.
    pub fn synchronize(&self) -> Result<()> {
        self.forbid_in_capture(
            "Stream::synchronize",
            "a captured stream has not run anything that could be waited for",
        )?;
        self.device().driver().stream_synchronize(self.id())
    }

    /// Records what `body` queues on this stream (and on streams that join it through events) into a [`Graph`].
    ///
    /// Whatever happens inside, the stream is usable again afterwards; a call that cannot be captured breaks the
    /// capture, and the error names it.
    pub fn capture(&self, body: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        let capture = Arc::new(Capture::new(self));
        // Known here before the driver begins: a call from another thread must not slip between the two.
        match &mut *self.lock() {
            Some(_) => {
                return Err(Error::Capture {
                    call: "Stream::capture".into(),
                    reason: "the stream is being captured already".into(),
                });
            }
            none => *none = Some(capture.clone()),
        }
        if let Err(error) = self.device().driver().capture_begin(self.id()) {
            capture.abort(self);
            return Err(error);
        }
        // Ends the capture on a panic in `body` too, so that the stream is not left behind unusable.
        let guard = EndCapture { stream: self, capture: &capture, ended: false };
        let outcome = body(self);
        guard.finish(outcome)
    }

    pub(crate) fn id(&self) -> StreamId {
        self.shared.id
    }

    pub(crate) fn is_same(&self, other: &Stream) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(crate) fn capture_state(&self) -> Option<Arc<Capture>> {
        self.lock().clone()
    }

    pub(crate) fn leave_capture(&self) {
        *self.lock() = None;
    }

    /// Refuses a call that cannot be captured, and marks the capture as broken by it.
    pub(crate) fn forbid_in_capture(&self, call: &str, reason: &str) -> Result<()> {
        match self.capture_state() {
            None => Ok(()),
            Some(capture) => Err(capture.broken_by(call, reason)),
        }
    }

    /// Marks the capture, if there is one, as broken by something that cannot return an error.
    pub(crate) fn break_capture(&self, call: &str, reason: &str) {
        if let Some(capture) = self.capture_state() {
            let _ = capture.broken_by(call, reason);
        }
    }

    pub(crate) fn retain_in_capture(&self, retained: impl FnOnce() -> Retained) {
        if let Some(capture) = self.capture_state() {
            capture.retain(retained());
        }
    }

    pub(crate) fn adopt(&self, allocation: &Arc<Allocation>) {
        allocation.visit(self);
        self.retain_in_capture(|| Retained::Device(allocation.clone()));
    }

    fn source<T: Pod>(&self, view: &impl View<T>, len: usize, call: &'static str) -> Result<Pointer> {
        let view = view.view();
        self.device().require_same(view.device(), call)?;
        if view.len() != len {
            let message = format!("the source has {} elements and the destination {len}", view.len());
            return Err(Error::Length { call, message });
        }
        self.adopt(view.allocation);
        Ok(view.pointer())
    }

    fn target<T: Pod>(&self, view: &mut impl ViewMut<T>, len: usize, call: &'static str) -> Result<Pointer> {
        let view = view.view();
        self.device().require_same(view.device(), call)?;
        if view.len() != len {
            let message = format!("the source has {len} elements and the destination {}", view.len());
            return Err(Error::Length { call, message });
        }
        self.adopt(view.allocation);
        Ok(view.pointer())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Capture>>> {
        self.shared.capture.lock()
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({:?}, {})", self.device(), self.id().0)
    }
}

struct EndCapture<'a> {
    stream: &'a Stream,
    capture: &'a Arc<Capture>,
    ended: bool,
}

impl EndCapture<'_> {
    fn finish(mut self, outcome: Result<()>) -> Result<Graph> {
        self.ended = true;
        self.capture.end(self.stream, outcome)
    }
}

impl Drop for EndCapture<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.capture.abort(self.stream);
        }
    }
}

/// A point in a stream: to wait for, to order other streams by, to time between.
#[derive(Clone)]
pub struct Event {
    shared: Arc<EventShared>,
}

struct EventShared {
    device: Device,
    id: EventId,
    capture: Locked<Option<Arc<Capture>>>,
}

impl Event {
    fn new(device: &Device) -> Result<Self> {
        let id = device.driver().event_create()?;
        Ok(Self { shared: Arc::new(EventShared { device: device.clone(), id, capture: Locked::default() }) })
    }

    /// Whether the stream has passed it.
    pub fn is_complete(&self) -> Result<bool> {
        self.require_real("Event::is_complete")?;
        self.shared.device.driver().event_is_complete(self.shared.id)
    }

    /// Waits until the stream has passed it.
    pub fn synchronize(&self) -> Result<()> {
        self.require_real("Event::synchronize")?;
        self.shared.device.driver().event_synchronize(self.shared.id)
    }

    /// Device time from `start` to this event; both must have happened.
    pub fn since(&self, start: &Event) -> Result<Duration> {
        self.shared.device.require_same(&start.shared.device, "Event::since")?;
        self.require_real("Event::since")?;
        start.require_real("Event::since")?;
        self.shared.device.driver().event_elapsed(start.shared.id, self.shared.id)
    }

    fn require_real(&self, call: &str) -> Result<()> {
        if self.lock().is_some() { Err(never_happens(call)) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Capture>>> {
        self.shared.capture.lock()
    }
}

fn never_happens(call: &str) -> Error {
    let reason = "the event was recorded inside a capture and never happens by itself";
    Error::Capture { call: call.to_owned(), reason: reason.into() }
}

impl Drop for EventShared {
    fn drop(&mut self) {
        self.device.driver().event_destroy(self.id);
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({:?}, {})", self.shared.device, self.shared.id.0)
    }
}

fn pad_word(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(word)
}
