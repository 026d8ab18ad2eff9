//! Device memory: [`Buffer`] owns, [`Slice`] and [`SliceMut`] borrow.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;

use crate::driver::{Owner, Pointer};
use crate::locked::Locked;
use crate::order::{Access, Ordered as _, Tracking};
use crate::stream::{Event, Stream, forbid_inside, outside};
use crate::{Device, Error, Result};

/// One block of the stream-ordered pool. Freed in the order of the stream it came from, after every other
/// stream that used it has passed its last use.
pub(crate) struct Allocation {
    pub(crate) stream: Stream,
    pub(crate) pointer: Pointer,
    bytes: u64,
    /// Streams other than `stream` that were given this memory.
    visitors: Locked<Vec<Stream>>,
    /// Streams that were given it for a while, each with the event after which it has done with it.
    departures: Locked<Vec<(Stream, Event)>>,
    /// The line of the one that was given it last.
    last_visitor: AtomicU64,
    /// Who used it last.
    pub(crate) tracking: Tracking<Stream>,
    /// What keeps the memory alive, if it is not the pool's.
    owner: Option<Owner>,
}

impl Allocation {
    pub(crate) fn new(stream: &Stream, bytes: u64) -> Result<Arc<Self>> {
        let device = stream.device();
        forbid_inside("Stream::alloc")?;
        stream.forbid_in_capture(
            "Stream::alloc",
            "memory cannot be allocated inside a capture; allocate before it",
        )?;
        #[cfg(feature = "testing")]
        device.faults().count(bytes, device.budget())?;
        device.budget().reserve(bytes)?;
        // The pool hands out at least one byte, so that an empty buffer still has an address of its own.
        let allocated = device.driver().allocate(stream.id(), (bytes as usize).max(1));
        match allocated {
            Ok(Some(pointer)) => Ok(Arc::new(Self::on(stream, pointer, bytes, None))),
            other => {
                let budget = device.budget();
                budget.release(bytes);
                let free = device.driver().memory().map(|memory| memory.free).unwrap_or(0);
                Err(other.err().unwrap_or(Error::OutOfMemory {
                    asked: bytes,
                    held: budget.held(),
                    free,
                    limit: budget.limit(),
                }))
            }
        }
    }

    /// Memory that is there from this point of `stream` on.
    fn on(stream: &Stream, pointer: Pointer, bytes: u64, owner: Option<Owner>) -> Self {
        let tracking = Tracking::written_by(stream);
        Self {
            stream: stream.clone(),
            pointer,
            bytes,
            visitors: Locked::default(),
            departures: Locked::default(),
            last_visitor: AtomicU64::new(0),
            tracking,
            owner,
        }
    }

    /// Notes that `stream` was given this memory, so that freeing waits for it.
    pub(crate) fn visit(&self, stream: &Stream) {
        let number = stream.line().number();
        let was_last = || self.last_visitor.load(Ordering::Acquire) == number;
        // A stream that has a lane was noted when it got it.
        if stream.is_same(&self.stream) || was_last() || self.tracking.has_lane(stream.line()) {
            return;
        }
        let mut visitors = self.visitors.lock();
        self.last_visitor.store(number, Ordering::Release);
        if !visitors.iter().any(|seen| seen.is_same(stream)) {
            visitors.push(stream.clone());
        }
    }

    /// Notes that `stream` has done with this memory after an event of its own, so that freeing waits for no
    /// more than that.
    fn depart(&self, stream: &Stream, event: &Event) {
        let mut departures = self.departures.lock();
        // A later event of a stream comes after its earlier ones.
        departures.retain(|(seen, _)| !seen.is_same(stream));
        departures.push((stream.clone(), event.clone()));
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let visitors = std::mem::take(self.visitors.get_mut());
        let free = DeferredFree {
            stream: self.stream.clone(),
            pointer: self.pointer,
            bytes: self.bytes,
            visitors,
            departures: std::mem::take(self.departures.get_mut()),
            owner: self.owner.take(),
        };
        let capture = free.visitors.iter().chain([&free.stream]).find_map(Stream::capture_state);
        match capture {
            Some(capture) => capture.free_after_end(free),
            // It queues events, which a host function may not.
            None => outside(free),
        }
    }
}

/// A block that goes back to the pool, or to its owner, when this is dropped, which must not be inside a
/// capture of any of its streams.
pub(crate) struct DeferredFree {
    stream: Stream,
    pointer: Pointer,
    bytes: u64,
    visitors: Vec<Stream>,
    departures: Vec<(Stream, Event)>,
    owner: Option<Owner>,
}

impl Drop for DeferredFree {
    fn drop(&mut self) {
        // A capture may have begun since this was put aside.
        if let Some(capture) = self.stream.capture_state() {
            return capture.free_after_end(Self {
                stream: self.stream.clone(),
                pointer: self.pointer,
                bytes: self.bytes,
                visitors: std::mem::take(&mut self.visitors),
                departures: std::mem::take(&mut self.departures),
                owner: self.owner.take(),
            });
        }
        for (_, event) in &self.departures {
            let _ = self.stream.wait(event);
        }
        for visitor in &self.visitors {
            // Of a stream that is being captured this is what it had queued before. One that can no longer be
            // waited for has failed: its work is over.
            let _ = self.stream.run_after(visitor);
        }
        // An owner is let go of with this, now that the stream runs after every use.
        if self.owner.is_none() {
            let device = self.stream.device();
            device.driver().free(self.stream.id(), self.pointer);
            device.budget().release(self.bytes);
        }
    }
}

/// `len` elements of device memory.
///
/// Its contents start undefined unless it was uploaded or zeroed (poisoned, on the emulated device).
pub struct Buffer<T: Pod> {
    allocation: Arc<Allocation>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    pub(crate) fn new(stream: &Stream, len: usize) -> Result<Self> {
        let bytes = (len as u64).checked_mul(size_of::<T>() as u64).ok_or_else(|| Error::Length {
            call: "Stream::alloc",
            message: format!("{len} elements of {} bytes overflow the address space", size_of::<T>()),
        })?;
        Ok(Self { allocation: Allocation::new(stream, bytes)?, len, element: PhantomData })
    }

    /// Memory of somebody else's.
    pub(crate) fn lent(stream: &Stream, pointer: Pointer, len: usize, owner: Owner) -> Self {
        let bytes = (len * size_of::<T>()) as u64;
        let allocation = Arc::new(Allocation::on(stream, pointer, bytes, Some(owner)));
        Self { allocation, len, element: PhantomData }
    }

    pub(crate) fn address(&self) -> Pointer {
        self.allocation.pointer
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }

    /// The stream in whose order this memory is freed.
    pub fn stream(&self) -> &Stream {
        &self.allocation.stream
    }

    /// The device this memory is on.
    pub fn device(&self) -> &Device {
        self.allocation.stream.device()
    }

    /// Elements `range`, to read. Panics if the range is out of bounds, as slicing does.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        self.view().slice(range)
    }

    /// Elements `range`, to write. Panics if the range is out of bounds, as slicing does.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        let slice = self.slice(range);
        SliceMut { slice: Slice { allocation: &self.allocation, ..slice } }
    }
}

impl<T: Pod> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.allocation.stream.break_capture(
            "dropping a Buffer",
            "a buffer of the captured stream was dropped inside the capture, which would hide a free in the graph; \
             keep it until the capture has ended",
        );
    }
}

impl<T: Pod> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer<{}>[{}] on {:?}", std::any::type_name::<T>(), self.len, self.device())
    }
}

/// What queued work does to one block.
#[derive(Clone, Copy)]
pub(crate) struct Use<'a> {
    pub(crate) allocation: &'a Arc<Allocation>,
    pub(crate) access: Access,
}

/// A borrowed run of elements on the device.
#[derive(Clone, Copy)]
pub struct Slice<'a, T: Pod> {
    pub(crate) allocation: &'a Arc<Allocation>,
    offset: usize,
    len: usize,
    /// Whether the runtime orders its uses, and not who made it.
    ordered: bool,
    element: PhantomData<T>,
}

impl<'a, T: Pod> Slice<'a, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A narrower run. Panics if the range is out of bounds, as slicing does.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'a, T> {
        let (start, end) = resolve(range, self.len);
        Slice { offset: self.offset + start, len: end - start, ..*self }
    }

    /// The same memory as bytes.
    pub fn as_bytes(&self) -> Slice<'a, u8> {
        let size = size_of::<T>();
        Slice {
            allocation: self.allocation,
            offset: self.offset * size,
            len: self.len * size,
            ordered: self.ordered,
            element: PhantomData,
        }
    }

    /// The same memory as elements of another type. Panics if it is no whole number of them or not aligned
    /// for them, as `bytemuck::cast_slice` does.
    pub fn cast<U: Pod>(&self) -> Slice<'a, U> {
        let (start, bytes, size) = (self.offset * size_of::<T>(), self.len * size_of::<T>(), size_of::<U>());
        assert!(
            size > 0 && start.is_multiple_of(size) && bytes.is_multiple_of(size),
            "{bytes} bytes from byte {start} on are no elements of {size} bytes"
        );
        Slice {
            allocation: self.allocation,
            offset: start / size,
            len: bytes / size,
            ordered: self.ordered,
            element: PhantomData,
        }
    }

    /// The device's own address: for tables of addresses that kernels read, as long as the buffer lives and
    /// in the order of its streams.
    pub fn as_raw(&self) -> u64 {
        self.pointer().0
    }

    /// The same memory, to write, where several owners share one buffer and each has a part of it.
    ///
    /// The runtime orders streams by whole buffers: two that write different parts of one would wait for each
    /// other. What is queued with the result is not ordered at all, nor is anything after it.
    ///
    /// # Safety
    ///
    /// Until what is queued with the result is done, nobody else writes these elements, or reads them, but in
    /// the order of the same stream. What was queued before and touches them is done, or before it in the
    /// order of that stream.
    pub unsafe fn assume_unshared(self) -> SliceMut<'a, T> {
        SliceMut { slice: Slice { ordered: false, ..self } }
    }

    /// A use of it that does no more than `access`.
    pub(crate) fn used(&self, access: Access) -> Use<'a> {
        Use { allocation: self.allocation, access: if self.ordered { access } else { Access::Unordered } }
    }

    pub(crate) fn pointer(&self) -> Pointer {
        Pointer(self.allocation.pointer.0 + (self.offset * size_of::<T>()) as u64)
    }

    pub(crate) fn device(&self) -> &'a Device {
        self.allocation.stream.device()
    }
}

/// A run of bytes on the device with a hold on its buffer: a slice that another thread may read.
#[derive(Clone)]
pub(crate) struct Held {
    allocation: Arc<Allocation>,
    offset: usize,
    len: usize,
}

impl Slice<'_, u8> {
    pub(crate) fn hold(&self) -> Held {
        Held { allocation: self.allocation.clone(), offset: self.offset, len: self.len }
    }
}

impl Held {
    /// Notes that `stream` reads it until an event of its own; for ever, as far as is known, if that could
    /// not be recorded.
    pub(crate) fn read_until(&self, stream: &Stream, event: Option<&Event>) {
        match event {
            Some(event) => self.allocation.depart(stream, event),
            None => self.allocation.visit(stream),
        }
    }
}

impl View<u8> for Held {
    fn view(&self) -> Slice<'_, u8> {
        Slice {
            allocation: &self.allocation,
            offset: self.offset,
            len: self.len,
            ordered: true,
            element: PhantomData,
        }
    }
}

/// A run of elements on the device, borrowed to write.
pub struct SliceMut<'a, T: Pod> {
    slice: Slice<'a, T>,
}

impl<'a, T: Pod> SliceMut<'a, T> {
    pub(crate) fn into_slice(self) -> Slice<'a, T> {
        self.slice
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.slice.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slice.len == 0
    }

    /// A narrower run. Panics if the range is out of bounds, as slicing does.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        SliceMut { slice: self.slice.slice(range) }
    }

    /// The same memory as bytes.
    pub fn as_bytes_mut(&mut self) -> SliceMut<'_, u8> {
        SliceMut { slice: self.slice.as_bytes() }
    }
}

/// Anything that can be read as a run of device elements: a buffer or a slice of one.
pub trait View<T: Pod> {
    /// The whole of it.
    fn view(&self) -> Slice<'_, T>;
}

/// Anything that can be written as a run of device elements.
pub trait ViewMut<T: Pod>: View<T> {
    /// The whole of it.
    fn view_mut(&mut self) -> SliceMut<'_, T>;
}

impl<T: Pod> View<T> for Buffer<T> {
    fn view(&self) -> Slice<'_, T> {
        Slice { allocation: &self.allocation, offset: 0, len: self.len, ordered: true, element: PhantomData }
    }
}

impl<T: Pod> ViewMut<T> for Buffer<T> {
    fn view_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut { slice: self.view() }
    }
}

impl<T: Pod> View<T> for Slice<'_, T> {
    fn view(&self) -> Slice<'_, T> {
        *self
    }
}

impl<T: Pod> View<T> for SliceMut<'_, T> {
    fn view(&self) -> Slice<'_, T> {
        self.slice
    }
}

impl<T: Pod> ViewMut<T> for SliceMut<'_, T> {
    fn view_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut { slice: self.slice }
    }
}

fn resolve(range: impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end + 1,
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    assert!(start <= end && end <= len, "range {start}..{end} is out of bounds for {len} device elements");
    (start, end)
}
