//! Where a proof is made: a device or several, streams of its own, and threads that know of them.

use std::sync::Arc;
use std::time::Duration;

use gatework_gpu::fabric::{Fabric, Traffic};
use gatework_gpu::{Device, Observer, PinnedRoom, Stream};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::constraints::{Tier, Workshop};
use crate::cuda::modules_of_proofs;
use crate::error::catch;
use crate::queue::Queue;
use crate::ranks::Ranks;
use crate::stages::Stages;
use crate::streaming::Streams;
use crate::{Error, Result, Stage, Streaming, Way};

/// Page-locked memory that what is uploaded and read goes through.
const STAGED: u64 = 64 << 20;

/// A device, a stream of its own, and a pool of threads that prove on it.
///
/// stwo's traits are static: they name a backend and no device. Inside [`Context::scope`] the device is this
/// one, in every rayon worker too. Contexts are independent: several provers run at once, each in its own.
///
/// ```
/// use gatework_stark::{Context, CudaBackend};
/// use stwo::core::fields::m31::BaseField;
/// use stwo::prover::backend::{Col, Column};
///
/// let device = gatework_gpu::Device::open("emulated")?;
/// let context = Context::new(&device)?;
/// let sum = context.scope(|| {
///     let column: Col<CudaBackend, BaseField> = (1..5u32).map(BaseField::from).collect();
///     column.to_cpu().iter().map(|value| value.0).sum::<u32>()
/// })?;
/// assert_eq!(sum, 10);
/// # Ok::<(), gatework_stark::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    queue: Queue,
    pool: Arc<ThreadPool>,
}

impl Context {
    /// A context on `device`, with a stream of its own.
    pub fn new(device: &Device) -> Result<Self> {
        Self::on(device.stream()?)
    }

    /// A context on several devices, for proofs that one of them has no memory or no time for: emulated devices
    /// of one group, virtual devices of a card, or cards. There are 1, 2, 4, 8 and so on; the first is the
    /// [`Context::device`].
    ///
    /// Columns are dealt out to the devices when they are brought there ([`upload`](crate::upload()),
    /// [`ToDevice`](crate::ToDevice) and the like), and are transformed and sampled where they lie. Leaves are
    /// hashed and constraints evaluated by rows, for which each device fetches its rows of the columns of all
    /// others. The transcript, trees, the composition polynomial and FRI are the first device's. Proofs are
    /// the same, byte for byte.
    ///
    /// ```
    /// use gatework_gpu::Device;
    /// use gatework_stark::airs::{Input, WideFibonacci, prove, verify};
    /// use gatework_stark::{Context, CudaBackend};
    /// use stwo::core::pcs::PcsConfig;
    ///
    /// let context = Context::over(&Device::open_all("emulated:2")?)?;
    /// let (air, config) = (WideFibonacci { log_rows: 5, columns: 6 }, PcsConfig::default());
    /// let proved = context.scope(|| prove(&air, config, Input::<CudaBackend>::new(&air, config)))??;
    /// assert!(verify(&air, config, proved).is_ok());
    /// assert!(context.traffic().bytes(1, 0) > 0);
    /// # Ok::<(), gatework_stark::Error>(())
    /// ```
    pub fn over(devices: &[Device]) -> Result<Self> {
        if !devices.len().is_power_of_two() {
            let what = format!("a proof over {} devices: use 1, 2, 4, 8 and so on", devices.len());
            return Err(Error::Unsupported { what });
        }
        for (rank, device) in devices.iter().enumerate() {
            if let Some(first) = devices[..rank].iter().position(|other| other.same_as(device)) {
                let what = format!(
                    "a proof over {0}, which is device {first} and device {rank}: name each device once, or make \
                     several of one with Device::split",
                    device.properties().id
                );
                return Err(Error::Unsupported { what });
            }
        }
        // Ranks of a fabric are devices that reach each other, by the direct way where there is one.
        drop(Fabric::new().over(devices)?);
        let streams = devices.iter().map(Device::stream).collect::<Result<Vec<_>, _>>()?;
        Self::with_threads(streams, 0)
    }

    /// A context whose work is queued on `stream`.
    ///
    /// On a card every kernel that a proof may need is compiled now, on all cores, or found in the cache.
    pub fn on(stream: Stream) -> Result<Self> {
        Self::with_threads(vec![stream], 0)
    }

    /// A context for one of many proofs at once, each of which has one thread of the host.
    pub(crate) fn of_one_thread(stream: Stream) -> Result<Self> {
        Self::with_threads(vec![stream], 1)
    }

    /// Zero threads are as many as the host has cores.
    fn with_threads(streams: Vec<Stream>, threads: usize) -> Result<Self> {
        // On the emulated device most programs launch a few of them, and each is compiled when it is.
        for stream in streams.iter().filter(|stream| !stream.device().is_emulated()) {
            stream.device().prepare(&modules_of_proofs())?;
        }
        let queue = Ranks::led(Queue::several(streams));
        let of_workers = queue.downgrade();
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("stark-{index}"))
            .start_handler(move |_| of_workers.make_current())
            .build()
            .map_err(|error| Error::Unsupported { what: format!("a pool of threads ({error})") })?;
        Ok(Self { queue, pool: Arc::new(pool) })
    }

    /// Runs `body` with this context's device behind [`CudaBackend`](crate::CudaBackend).
    ///
    /// A fault of the device inside, wherever it happens, ends `body` and is returned; everything that `body`
    /// held is dropped, and the context can be used again. Outside of scopes, as where a column is read
    /// later, a fault is a panic that says what it was.
    pub fn scope<R: Send>(&self, body: impl FnOnce() -> R + Send) -> Result<R> {
        let done = catch(|| self.pool.install(body))?;
        Ranks::settle(&self.queue)?;
        Ok(done)
    }

    /// The device, the first where there are several.
    pub fn device(&self) -> &Device {
        self.queue.stream().device()
    }

    /// How constraints are evaluated from now on. Default: generated on CUDA, interpreted on the emulated
    /// device.
    pub fn set_tier(&self, tier: Tier) {
        Ranks::all(&self.queue).iter().for_each(|queue| Workshop::of(queue).set_tier(tier));
    }

    /// How columns are streamed that are brought to the device from now on, by [`upload`](crate::upload()),
    /// [`ToDevice`](crate::ToDevice) and the like: they stay in page-locked memory of the host, as does what
    /// proofs make of them, and are on the device while they are used. `None`, as in the beginning: they are
    /// in device memory.
    ///
    /// Proofs are the same, byte for byte. The bound on page-locked memory is that of
    /// [`Device::pinned`](gatework_gpu::Device::pinned). In a context of several devices columns are not
    /// streamed: bringing them is an error.
    pub fn set_streaming(&self, streaming: Option<Streaming>) {
        Streams::of(&self.queue).set(streaming);
    }

    /// Goes the way that a [`Plan`](crate::Plan) chose, from now on: [`Context::set_streaming`], and the
    /// bound on page-locked memory is raised for as much as the way takes, as long as what comes back is
    /// kept. Then the bound is what it was, and what nobody uses of the memory beyond it is released.
    pub fn follow(&self, way: &Way) -> Option<PinnedRoom> {
        self.set_streaming(way.streaming);
        way.streaming.map(|_| self.device().pinned().lend_room(STAGED, way.pinned_bytes))
    }

    /// Waits until all kernels are compiled that were begun for [`Tier::Adaptive`].
    pub fn wait_for_kernels(&self) {
        Ranks::all(&self.queue).iter().for_each(|queue| Workshop::of(queue).wait());
    }

    /// Waits until everything queued so far is done.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.stream().synchronize()?;
        Ranks::settle(&self.queue)
    }

    /// Bytes that went from device to device so far, by the places of the devices in [`Context::over`].
    pub fn traffic(&self) -> Traffic {
        self.queue.meter().read()
    }

    /// Bytes of each device for rows of columns that lie on others while leaves are hashed, half of which are
    /// in use while the others are on their way. At least sixteen columns are at a time. Default: 256
    /// megabytes.
    pub fn set_window(&self, bytes: u64) {
        self.queue.set_window(bytes);
    }

    /// Tells `observer` of every [`Stage`] of a proof from now on, by its name, on the thread that proves.
    pub fn watch(&self, observer: Arc<dyn Observer>) {
        Stages::of(&self.queue).watch(observer);
    }

    /// Keeps the time of each stage of what is proved from now on. The device is waited for at the end of
    /// each.
    pub fn keep_times(&self) {
        Stages::of(&self.queue).keep_times();
    }

    /// Takes the recorded times; recording stops.
    pub fn take_times(&self) -> Vec<(Stage, Duration)> {
        Stages::of(&self.queue).take_times()
    }

    /// Number of allocations made so far.
    pub fn allocations(&self) -> u64 {
        self.queue.allocations()
    }

    /// Makes allocation number `number` of those made from now on fail, as if memory had run out: for tests
    /// of what happens then.
    #[cfg(feature = "testing")]
    pub fn refuse_allocation(&self, number: u64) {
        self.queue.refuse_allocation(number);
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context on {:?}", self.device())
    }
}
