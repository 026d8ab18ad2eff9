//! Streams order work, events order streams. Nothing uses a default stream.

mod event;
mod host;
mod later;
mod queueing;
mod ready;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use bytemuck::Pod;

pub use event::Event;
pub use ready::EventReady;

use self::event::never_happens;
use self::host::Panicked;
pub(crate) use self::host::{forbid_inside, outside};
use self::queueing::Mark;
use crate::buffer::{Buffer, Use, View, ViewMut};
use crate::driver::{HostMemory, Owner, Pointer, StreamId};
use crate::graph::{Capture, CopyKind, Graph, Retained};
use crate::locked::Locked;
use crate::order::{Access, Line, Ordered as _};
use crate::pinned::{DeviceUse, Pinned, PinnedUse};
use crate::types::{Grid, Priority};
use crate::{Device, Error, Result, args, kernels};

/// An in-order queue of copies and launches. Cheap to clone; all clones are one queue.
///
/// Streams run beside each other, but not over each other: work that uses a buffer runs after what other
/// streams queued before it that writes the buffer, or that reads it, if this work writes. Where the order is
/// known already, by [`Stream::wait`] or because somebody waited for the end of that work, nothing is queued
/// for it. The unit is the whole buffer; [`Slice::assume_unshared`](crate::Slice::assume_unshared) is the way
/// to write parts of one on several streams at once. Addresses that kernels find in memory are not seen:
/// order those by events.
#[derive(Clone)]
pub struct Stream {
    shared: Arc<StreamShared>,
}

pub(crate) struct StreamShared {
    device: Device,
    id: StreamId,
    capture: Locked<Option<Arc<Capture>>>,
    /// Whether `capture` holds one: asked for every launch, and changed under its lock.
    captured: AtomicBool,
    /// The order of its work and that of others.
    line: Arc<Line>,
    mark: Locked<Option<Mark>>,
    panicked: Panicked,
    /// What keeps a stream alive that is not ours.
    owner: Option<Owner>,
}

impl Drop for StreamShared {
    fn drop(&mut self) {
        if let Some(mark) = self.mark.get_mut().take() {
            self.device.driver().event_destroy(mark.event);
        }
        if self.owner.is_none() {
            self.device.driver().stream_destroy(self.id);
        }
    }
}

impl Stream {
    pub(crate) fn new(device: &Device, priority: Priority) -> Result<Self> {
        let id = device.driver().stream_create(priority)?;
        Ok(Self::of(device, id, None))
    }

    fn of(device: &Device, id: StreamId, owner: Option<Owner>) -> Self {
        let shared = StreamShared {
            device: device.clone(),
            id,
            capture: Locked::default(),
            captured: AtomicBool::new(false),
            line: Line::new(),
            mark: Locked::default(),
            panicked: Panicked::default(),
            owner,
        };
        Self { shared: Arc::new(shared) }
    }

    /// A stream of somebody else's.
    pub(crate) fn lent(device: &Device, id: StreamId, owner: Owner) -> Self {
        Self::of(device, id, Some(owner))
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
        let mut buffer = Buffer::new(self, len)?;
        let bytes = buffer.bytes() as usize;
        let target = self.target(&mut buffer, len, "Stream::alloc_zeros")?;
        self.queue_retained(&[target.used], || {
            self.device().driver().fill(self.id(), target.pointer, &[0], bytes)
        })?;
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
        self.queue_retained(&[target.used], || unsafe {
            self.device().driver().copy_to_device(
                self.id(),
                target.pointer,
                bytes.as_ptr(),
                bytes.len(),
                HostMemory::Pageable,
            )
        })
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
        let before = self.line().mark();
        // SAFETY: `bytes` is writable during the call, and a pageable copy is complete when it returns.
        self.queue_retained(&[source.used], || unsafe {
            self.device().driver().copy_to_host(self.id(), pointer, source.pointer, len, HostMemory::Pageable)
        })?;
        before.complete();
        self.report_panic()
    }

    /// Queues a copy from page-locked memory. `host` may be used again at once: touching it waits for the
    /// copy.
    pub fn copy_from_pinned<T: Pod>(&self, host: &Pinned<T>, device: &mut impl ViewMut<T>) -> Result<()> {
        const CALL: &str = "Stream::copy_from_pinned";
        self.device().require_same(host.device(), CALL)?;
        let target = self.target(device, host.len(), CALL)?;
        let bytes = host.len() * size_of::<T>();
        let pinned = Some((host.block(), DeviceUse::Reads));
        // SAFETY: the block outlives the copy: it is returned to the pool only after an event recorded behind
        // it, and a captured copy keeps the block alive with the graph.
        self.queue_copy(CopyKind::FromPinned, bytes, [target.used], pinned, || unsafe {
            self.device().driver().copy_to_device(
                self.id(),
                target.pointer,
                host.address(),
                bytes,
                HostMemory::Pinned,
            )
        })
    }

    /// Queues a copy into page-locked memory. Reading `host` waits for the copy.
    pub fn copy_to_pinned<T: Pod>(&self, device: &impl View<T>, host: &mut Pinned<T>) -> Result<()> {
        const CALL: &str = "Stream::copy_to_pinned";
        self.device().require_same(host.device(), CALL)?;
        let source = self.source(device, host.len(), CALL)?;
        let bytes = host.len() * size_of::<T>();
        let pinned = Some((host.block(), DeviceUse::Writes));
        // SAFETY: as in `copy_from_pinned`; the exclusive borrow ends before the copy does, and reading
        // waits.
        self.queue_copy(CopyKind::ToPinned, bytes, [source.used], pinned, || unsafe {
            self.device().driver().copy_to_host(
                self.id(),
                host.address(),
                source.pointer,
                bytes,
                HostMemory::Pinned,
            )
        })
    }

    /// Queues a copy between two device buffers.
    pub fn copy<T: Pod>(&self, from: &impl View<T>, to: &mut impl ViewMut<T>) -> Result<()> {
        const CALL: &str = "Stream::copy";
        let len = to.view().len();
        let source = self.source(from, len, CALL)?;
        let target = self.target(to, len, CALL)?;
        let bytes = len * size_of::<T>();
        self.queue_copy(CopyKind::OnDevice, bytes, [source.used, target.used], None, || {
            self.device().driver().copy_on_device(self.id(), target.pointer, source.pointer, bytes)
        })
    }

    /// Sets every element to `value`.
    pub fn fill<T: Pod>(&self, buffer: &mut impl ViewMut<T>, value: T) -> Result<()> {
        let len = buffer.view().len();
        let target = self.target(buffer, len, "Stream::fill")?;
        let pattern = bytemuck::bytes_of(&value);
        match pattern.len() {
            0 => Ok(()),
            _ if len == 0 => Ok(()),
            1 | 2 | 4 => self.queue_retained(&[target.used], || {
                self.device().driver().fill(self.id(), target.pointer, pattern, len)
            }),
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
        Event::record(self)
    }

    /// Work queued from now on runs after what `event` marked, on this device or on another that this one
    /// reaches. A stream that waits for an event of a capture joins it.
    pub fn wait(&self, event: &Event) -> Result<()> {
        const CALL: &str = "Stream::wait";
        forbid_inside(CALL)?;
        self.device().require_reach(event.device(), CALL)?;
        let joins = match (self.capture_state(), event.capture()) {
            (None, Some(of_event)) if !self.device().same_as(event.device()) => {
                return Err(
                    of_event.broken_by(CALL, "a graph is of one device, and a stream of another waits")
                );
            }
            (Some(mine), Some(of_event)) if Arc::ptr_eq(&mine, of_event) => None,
            (Some(mine), _) => {
                let reason =
                    "the event was recorded outside of the capture; wait for it before the capture begins";
                return Err(mine.broken_by(CALL, reason));
            }
            (None, Some(of_event)) if of_event.is_open() => Some(of_event.clone()),
            (None, Some(_)) => return Err(never_happens(CALL)),
            (None, None) => None,
        };
        if let Some(capture) = joins {
            let mut state = self.lock();
            self.mark()?;
            self.device().driver().stream_wait(self.id(), event.id())?;
            capture.join(self);
            *state = Some(capture);
            self.shared.captured.store(true, Ordering::Release);
        } else {
            self.device().driver().stream_wait(self.id(), event.id())?;
        }
        self.current_line().learn(event.clock());
        Ok(())
    }

    /// Waits until everything queued so far is done. Errors of that work surface here.
    pub fn synchronize(&self) -> Result<()> {
        forbid_inside("Stream::synchronize")?;
        self.forbid_in_capture(
            "Stream::synchronize",
            "a captured stream has not run anything that could be waited for",
        )?;
        let before = self.line().mark();
        self.device().driver().stream_synchronize(self.id())?;
        before.complete();
        self.report_panic()
    }

    /// Records what `body` queues on this stream (and on streams that join it through events) into a
    /// [`Graph`].
    ///
    /// Whatever happens inside, the stream is usable again afterwards; a call that cannot be captured breaks
    /// the capture, and the error names it.
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
            none => {
                self.mark()?;
                *none = Some(capture.clone());
                self.shared.captured.store(true, Ordering::Release);
            }
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
        if !self.shared.captured.load(Ordering::Acquire) {
            return None;
        }
        self.lock().clone()
    }

    pub(crate) fn leave_capture(&self) {
        let mut capture = self.lock();
        self.shared.captured.store(false, Ordering::Release);
        *capture = None;
    }

    /// The order that what is queued now belongs to: the capture's, in a capture.
    fn current_line(&self) -> Arc<Line> {
        self.capture_state().map_or_else(|| self.line().clone(), |capture| capture.line_of(self))
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

    /// Queues what uses device memory, and no graph can change.
    pub(crate) fn queue_retained(&self, uses: &[Use<'_>], work: impl FnOnce() -> Result<()>) -> Result<()> {
        for used in uses {
            self.retain_in_capture(|| Retained::Device(used.allocation.clone(), used.access));
        }
        self.queue(uses.iter().copied(), Vec::new(), work)
    }

    /// Queues a copy that a graph can change.
    fn queue_copy<const N: usize>(
        &self,
        kind: CopyKind,
        bytes: usize,
        uses: [Use<'_>; N],
        pinned: Option<PinnedUse>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.queue(uses.into_iter(), pinned.iter().cloned().collect(), work)?;
        self.capture_state().map_or(Ok(()), |capture| capture.add_copy(self, kind, bytes, &uses, pinned))
    }

    fn source<'a, T: Pod>(
        &self,
        view: &'a impl View<T>,
        len: usize,
        call: &'static str,
    ) -> Result<Place<'a>> {
        let view = view.view();
        self.device().require_same(view.device(), call)?;
        if view.len() != len {
            let message = format!("the source has {} elements and the destination {len}", view.len());
            return Err(Error::Length { call, message });
        }
        Ok(Place { pointer: view.pointer(), used: view.used(Access::Read) })
    }

    fn target<'a, T: Pod>(
        &self,
        view: &'a mut impl ViewMut<T>,
        len: usize,
        call: &'static str,
    ) -> Result<Place<'a>> {
        let view = view.view_mut().into_slice();
        self.device().require_same(view.device(), call)?;
        if view.len() != len {
            let message = format!("the source has {len} elements and the destination {}", view.len());
            return Err(Error::Length { call, message });
        }
        Ok(Place { pointer: view.pointer(), used: view.used(Access::Write) })
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

/// Where a copy starts or ends.
#[derive(Clone, Copy)]
struct Place<'a> {
    pointer: Pointer,
    used: Use<'a>,
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

fn pad_word(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(word)
}
