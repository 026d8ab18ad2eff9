//! The stream of a context: what columns carry and threads of the pool know.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytemuck::Pod;
use gatework_gpu::fabric::Meter;
use gatework_gpu::{Arg, Buffer, Grid, Locked, Module, Pinned, Slice, SliceMut, Stream};

use crate::Error;
use crate::error::{OrRaise as _, raise, work_inside_of_a_scope};
use crate::staging::Staging;

thread_local! {
    /// The queue of the context whose pool this thread works for. Weak: a stream is not let go of while its
    /// thread ends.
    static CURRENT: RefCell<Weak<Shared>> = const { RefCell::new(Weak::new()) };
}

/// Bytes that the stream copies by way of page-locked memory of its own.
const SMALL: usize = 64 << 10;

/// A stream, with what is kept for it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
}

struct Shared {
    stream: Stream,
    /// The number of its device among those of the context.
    rank: usize,
    /// Words of columns of M31 that are there.
    columns: AtomicU64,
    common: Arc<Common>,
    /// What other rooms of the engine keep for the queue, one value of each type.
    kept: Locked<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

/// What the queues of a context share.
struct Common {
    allocations: AtomicU64,
    /// The allocation that fails.
    #[cfg(feature = "testing")]
    refused: AtomicU64,
    /// Bytes that go from device to device.
    meter: Meter,
    /// Bytes of each device for rows of columns that lie on others.
    window: AtomicU64,
}

/// Two groups of columns of 128 megabytes: longer copies are no faster.
pub(crate) const WINDOW: u64 = 256 << 20;

/// A queue that is there as long as its context or a column is.
pub(crate) struct WeakQueue {
    shared: Weak<Shared>,
}

impl WeakQueue {
    /// Makes it the queue of this thread.
    pub(crate) fn make_current(&self) {
        CURRENT.set(self.shared.clone());
        work_inside_of_a_scope();
    }
}

impl Queue {
    /// The queue of a context on one device.
    #[cfg(test)]
    pub(crate) fn new(stream: Stream) -> Self {
        let Some(queue) = Self::several(vec![stream]).pop() else { unreachable!("one for one stream") };
        queue
    }

    /// The queues of a context on several devices, in their order.
    pub(crate) fn several(streams: Vec<Stream>) -> Vec<Self> {
        let common = Arc::new(Common {
            allocations: AtomicU64::new(0),
            #[cfg(feature = "testing")]
            refused: AtomicU64::new(u64::MAX),
            meter: Meter::new(streams.len()),
            window: AtomicU64::new(WINDOW),
        });
        let queue = |(rank, stream)| {
            let (columns, kept) = (AtomicU64::new(0), Locked::default());
            let shared = Shared { stream, rank, columns, common: common.clone(), kept };
            Self { shared: Arc::new(shared) }
        };
        streams.into_iter().enumerate().map(queue).collect()
    }

    /// The queue of the scope this runs in.
    ///
    /// Panics outside of one: that is a mistake in the program, not a state of the device.
    pub(crate) fn current() -> Self {
        let shared = CURRENT.with_borrow(Weak::upgrade);
        Self { shared: shared.expect("CudaBackend is used inside Context::scope, which names the device") }
    }

    pub(crate) fn downgrade(&self) -> WeakQueue {
        WeakQueue { shared: Arc::downgrade(&self.shared) }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.shared.stream
    }

    /// The value of type `T` that is kept for this queue; `first` makes it when it is asked for the first
    /// time.
    pub(crate) fn keeps<T: Send + Sync + 'static>(&self, first: impl FnOnce(&Stream) -> T) -> Arc<T> {
        let mut kept = self.shared.kept.lock();
        let value = kept.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(first(self.stream())));
        value.clone().downcast().unwrap_or_else(|_| unreachable!("it lies under its type"))
    }

    /// Refuses memory of another queue: work on this one would not wait for what is queued there. All memory
    /// that kernels are given is asked for with the queue that they run on, and comes by here.
    pub(crate) fn require_own(&self, owner: &Queue) {
        if !self.is(owner) {
            raise(Error::TwoContexts)
        }
    }

    /// Whether both are one queue.
    pub(crate) fn is(&self, other: &Queue) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether both are of one context.
    pub(crate) fn is_beside(&self, other: &Queue) -> bool {
        Arc::ptr_eq(&self.shared.common, &other.shared.common)
    }

    /// Refuses what is of another context.
    pub(crate) fn require_beside(&self, other: &Queue) {
        if !self.is_beside(other) {
            raise(Error::TwoContexts)
        }
    }

    /// The number of its device among those of the context.
    pub(crate) fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Words of columns of M31 that are on the device.
    pub(crate) fn column_words(&self) -> u64 {
        self.shared.columns.load(Ordering::Relaxed)
    }

    /// Says that so many words of columns are there from now on.
    pub(crate) fn count_columns(&self, words: usize) {
        self.shared.columns.fetch_add(words as u64, Ordering::Relaxed);
    }

    /// Says that so many of them are gone.
    pub(crate) fn forget_columns(&self, words: usize) {
        self.shared.columns.fetch_sub(words as u64, Ordering::Relaxed);
    }

    /// Bytes that went from device to device of the context.
    pub(crate) fn meter(&self) -> &Meter {
        &self.shared.common.meter
    }

    /// Bytes of each device for rows of columns that lie on others.
    pub(crate) fn window(&self) -> u64 {
        self.shared.common.window.load(Ordering::Relaxed)
    }

    pub(crate) fn set_window(&self, bytes: u64) {
        self.shared.common.window.store(bytes, Ordering::Relaxed);
    }

    /// Queues a copy on `stream`, one of this queue's device, of memory of `owner`, a queue of the same
    /// context, and counts it. The caller sees to it that it comes after what kernels wrote there by address,
    /// and before what they write next.
    pub(crate) fn pull(
        &self,
        stream: &Stream,
        owner: &Queue,
        from: &Slice<'_, u32>,
        to: &mut SliceMut<'_, u32>,
    ) {
        self.require_beside(owner);
        self.meter().add(owner.rank(), self.rank(), from.len() * size_of::<u32>());
        stream.copy_from_peer(from, to).or_raise();
    }

    pub(crate) fn allocations(&self) -> u64 {
        self.shared.common.allocations.load(Ordering::Relaxed)
    }

    #[cfg(feature = "testing")]
    pub(crate) fn refuse_allocation(&self, number: u64) {
        self.shared.common.refused.store(self.allocations().saturating_add(number), Ordering::Relaxed);
    }

    /// Uninitialised memory.
    pub(crate) fn alloc<T: Pod>(&self, len: usize) -> Buffer<T> {
        if self.next_is_refused() {
            let budget = self.stream().device().budget();
            let asked = (len * size_of::<T>()) as u64;
            let (held, limit) = (budget.held(), budget.limit());
            raise(gatework_gpu::Error::OutOfMemory { asked, held, free: 0, limit });
        }
        self.stream().alloc(len).or_raise()
    }

    /// Page-locked memory of the host, all of which the caller writes.
    pub(crate) fn lock_pages<T: Pod>(&self, len: usize) -> Pinned<T> {
        let pool = self.stream().device().pinned();
        if self.next_is_refused() {
            let (asked, stats) = ((len * size_of::<T>()) as u64, pool.stats());
            let (held, limit) = (stats.held, stats.limit);
            raise(gatework_gpu::Error::OutOfPinnedMemory { asked, held, limit });
        }
        pool.take_as_is(len).or_raise()
    }

    /// Counts an allocation, of the device or of pages. Whether it is the one that a test has fail.
    fn next_is_refused(&self) -> bool {
        let _number = self.shared.common.allocations.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "testing")]
        let refused = _number == self.shared.common.refused.load(Ordering::Relaxed);
        #[cfg(not(feature = "testing"))]
        let refused = false;
        refused
    }

    /// A copy of `host` on the device, by way of page-locked memory: a pageable copy may wait for everything
    /// queued before. For small copies a stream of ours has some of its own.
    pub(crate) fn upload<T: Pod + Send + Sync>(&self, host: &[T]) -> Buffer<T> {
        let mut buffer = self.alloc(host.len());
        if size_of_val(host) <= SMALL {
            self.stream().copy_from_host(host, &mut buffer).or_raise();
        } else {
            Staging::new().copy(self.stream(), host, &mut buffer.slice_mut(..));
        }
        buffer
    }

    /// Queues kernel `entry` of `module`.
    pub(crate) fn launch(&self, module: &Module, entry: &'static str, grid: &Grid, arguments: &[Arg<'_>]) {
        let kernel = self.stream().device().kernel_of(module, entry).or_raise();
        kernel.launch(self.stream(), grid, arguments).or_raise();
    }
}

#[cfg(test)]
mod tests {
    use gatework_gpu::{Device, args};

    use super::*;

    #[test]
    fn entries_of_two_modules_may_have_one_name() {
        static MODULES: [Module; 2] = [
            Module::new(
                "writes_one",
                "#include \"gw/gw.cuh\"\nGW_KERNEL(write)(u32* to) { to[0] = 1; }",
                &[],
            ),
            Module::new(
                "writes_two",
                "#include \"gw/gw.cuh\"\nGW_KERNEL(write)(u32* to) { to[0] = 2; }",
                &[],
            ),
        ];
        let queue = Queue::new(Device::emulated(1).unwrap().stream().unwrap());
        let found = MODULES.each_ref().map(|module| {
            let mut word = queue.alloc::<u32>(1);
            queue.launch(module, "write", &Grid::new([1; 3], [1; 3]), &args![&mut word]);
            queue.stream().download(&word).unwrap()[0]
        });
        assert_eq!(found, [1, 2]);
    }

    #[test]
    fn what_is_kept_is_made_once_for_each_queue() {
        let queues = [1, 2].map(|seed| Queue::new(Device::emulated(seed).unwrap().stream().unwrap()));
        let kept = |queue: &Queue, first: u32| *queue.keeps(|_| first);
        assert_eq!([kept(&queues[0], 3), kept(&queues[0], 4), kept(&queues[1], 5)], [3, 3, 5]);
    }
}
