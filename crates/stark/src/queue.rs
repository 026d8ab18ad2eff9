//! The stream of a context, with its kernels: what columns carry and threads of the pool know.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use bytemuck::Pod;
use gatework_gpu::{Arg, Buffer, Grid, Kernel, Notice, Observer, Stream};

use crate::constraints::{Cache, Tier};
use crate::error::{OrRaise as _, raise};
use crate::kernels::{self, KernelKey, Module};
use crate::stages::{Stage, Times};
use crate::staging::Staging;
use crate::{Error, Result};

thread_local! {
    /// The queue of the context whose pool this thread works for. Weak: a stream is not let go of while its thread ends.
    static CURRENT: RefCell<Weak<Shared>> = const { RefCell::new(Weak::new()) };
}

/// Longer than a module takes that is in the cache.
const UNCACHED: Duration = Duration::from_millis(200);

/// Bytes that the stream copies by way of page-locked memory of its own.
const SMALL: usize = 64 << 10;

/// Who is told of stages.
pub(crate) type Watcher = Arc<dyn Observer>;

/// A stream, and the kernels that were launched on it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
}

struct Shared {
    stream: Stream,
    /// By short names: finding a kernel by its source hashes the whole text, which is too slow for every launch.
    kernels: RwLock<HashMap<KernelKey, Kernel>>,
    /// Whether all modules were compiled after the first.
    compiled: AtomicBool,
    allocations: AtomicU64,
    /// The allocation that fails.
    refused: AtomicU64,
    tier: RwLock<Tier>,
    constraints: Cache,
    /// Told of every stage that begins or ends.
    watcher: RwLock<Option<Watcher>>,
    /// Times of stages, where they are kept.
    times: Mutex<Option<Times>>,
}

/// A queue that is there as long as its context or a column is.
pub(crate) struct WeakQueue {
    shared: Weak<Shared>,
}

impl WeakQueue {
    /// Makes it the queue of this thread.
    pub(crate) fn make_current(&self) {
        CURRENT.set(self.shared.clone());
    }
}

impl Queue {
    pub(crate) fn new(stream: Stream) -> Self {
        let device = stream.device();
        // The emulated device is for kernels as they are; an AIR's own need a compiler for each.
        let tier = if device.is_emulated() { Tier::Interpreted } else { Tier::Generated };
        let shared = Shared {
            stream,
            kernels: RwLock::default(),
            compiled: AtomicBool::new(false),
            allocations: AtomicU64::new(0),
            refused: AtomicU64::new(u64::MAX),
            tier: RwLock::new(tier),
            constraints: Cache::default(),
            watcher: RwLock::default(),
            times: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The queue of the scope this runs in.
    ///
    /// Panics outside of one: that is a mistake in the program, not a state of the device.
    pub(crate) fn current() -> Self {
        let shared = CURRENT.with_borrow(Weak::upgrade);
        Self { shared: shared.expect("CudaBackend is used inside Context::scope, which names the device") }
    }

    /// Whether this thread works for a context: it then does so inside of a scope, which catches faults.
    pub(crate) fn is_in_scope() -> bool {
        CURRENT.with_borrow(|shared| !shared.ptr_eq(&Weak::new()))
    }

    pub(crate) fn downgrade(&self) -> WeakQueue {
        WeakQueue { shared: Arc::downgrade(&self.shared) }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.shared.stream
    }

    pub(crate) fn tier(&self) -> Tier {
        *self.shared.tier.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_tier(&self, tier: Tier) {
        *self.shared.tier.write().unwrap_or_else(PoisonError::into_inner) = tier;
    }

    pub(crate) fn constraints(&self) -> &Cache {
        &self.shared.constraints
    }

    pub(crate) fn watch(&self, watcher: Watcher) {
        *self.shared.watcher.write().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }

    pub(crate) fn tell(&self, notice: Notice<'_>) {
        if let Some(watcher) = &*self.shared.watcher.read().unwrap_or_else(PoisonError::into_inner) {
            watcher.hear(notice);
        }
    }

    pub(crate) fn keep_times(&self) {
        *self.times() = Some(Times::new());
    }

    pub(crate) fn take_times(&self) -> Times {
        self.times().take().unwrap_or_default()
    }

    pub(crate) fn times_are_kept(&self) -> bool {
        self.times().is_some()
    }

    pub(crate) fn add_time(&self, stage: Stage, time: Duration) {
        if let Some(times) = &mut *self.times() {
            times.push((stage, time));
        }
    }

    fn times(&self) -> MutexGuard<'_, Option<Times>> {
        self.shared.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses memory of another queue: work on this one would not wait for what is queued there. All memory that kernels are
    /// given is asked for with the queue that they run on, and comes by here.
    pub(crate) fn require_own(&self, owner: &Queue) {
        if !Arc::ptr_eq(&self.shared, &owner.shared) {
            raise(Error::TwoContexts)
        }
    }

    pub(crate) fn allocations(&self) -> u64 {
        self.shared.allocations.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse_allocation(&self, number: u64) {
        self.shared.refused.store(self.allocations().saturating_add(number), Ordering::Relaxed);
    }

    /// Uninitialised memory.
    pub(crate) fn alloc<T: Pod>(&self, len: usize) -> Buffer<T> {
        let number = self.shared.allocations.fetch_add(1, Ordering::Relaxed);
        if number == self.shared.refused.load(Ordering::Relaxed) {
            let budget = self.stream().device().budget();
            let asked = (len * size_of::<T>()) as u64;
            let (held, limit) = (budget.held(), budget.limit());
            raise(gatework_gpu::Error::OutOfMemory { asked, held, free: 0, limit });
        }
        self.stream().alloc(len).or_raise()
    }

    /// A copy of `host` on the device, by way of page-locked memory: a pageable copy may wait for everything queued before. For small
    /// copies a stream of ours has some of its own.
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
        self.kernel(module, entry)
            .and_then(|kernel| Ok(kernel.launch(self.stream(), grid, arguments)?))
            .or_raise();
    }

    fn kernel(&self, module: &Module, entry: &'static str) -> Result<Kernel> {
        let kernels = self.shared.kernels.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(&module.key(entry)) {
            return Ok(kernel.clone());
        }
        drop(kernels);
        let start = Instant::now();
        let device = self.stream().device();
        let kernel = device.kernel_named(&module.source(), entry)?;
        // Where one was not in the cache, none is: the others are compiled at once, on all cores.
        if start.elapsed() > UNCACHED
            && !device.is_emulated()
            && !self.shared.compiled.swap(true, Ordering::Relaxed)
        {
            kernels::compile_all(&device.properties().architecture);
        }
        let mut kernels = self.shared.kernels.write().unwrap_or_else(PoisonError::into_inner);
        kernels.insert(module.key(entry), kernel.clone());
        Ok(kernel)
    }
}

#[cfg(test)]
mod tests {
    use gatework_gpu::{Device, args};

    use super::*;

    #[test]
    fn entries_of_two_modules_may_have_one_name() {
        let modules = [
            Module::new("writes_one", "#include \"gw/gw.cuh\"\nGW_KERNEL(write)(u32* to) { to[0] = 1; }"),
            Module::new("writes_two", "#include \"gw/gw.cuh\"\nGW_KERNEL(write)(u32* to) { to[0] = 2; }"),
        ];
        let queue = Queue::new(Device::emulated(1).unwrap().stream().unwrap());
        let found = modules.map(|module| {
            let mut word = queue.alloc::<u32>(1);
            queue.launch(&module, "write", &Grid::new([1; 3], [1; 3]), &args![&mut word]);
            queue.stream().download(&word).unwrap()[0]
        });
        assert_eq!(found, [1, 2]);
    }
}
