//! The emulated device behind the seam that the CUDA driver shares.

use std::any::Any;
use std::cell::Cell;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use super::cluster::Clusters;
use super::memory::Memory;
use super::module::{self, Entry};
use super::queue::{HostPointer, KernelLaunch, Op, Queues, Step};
use super::{compiler, launch, tensor_map};
use crate::driver::{
    Arguments, CopyEnds, Driver, EventId, Function, GraphId, HostFunction, HostMemory, MemoryInfo, NodeId,
    Pointer, Progress, StreamId,
};
use crate::locked::Locked;
use crate::types::{
    Architecture, Binary, Clocks, DeviceProperties, Emulation, Grid, Image, KernelInfo, Kind, Priority,
    Reach, RegisterFill, SuggestedBlock, TensorSpec, TensorWords,
};
use crate::{Error, Result};

/// Memory the device says it has: enough for tests, not enough to bring the machine down.
const MEMORY_BYTES: u64 = 4 << 30;
/// Few, so that grids made to fill the device stay small.
const MULTIPROCESSORS: u32 = 4;

/// One emulated device of a group. Devices of a group share their queues, so that streams of one wait for
/// events of another.
pub(super) struct EmulatedDriver {
    properties: DeviceProperties,
    /// Which of the group.
    device: usize,
    group: Arc<Group>,
}

/// Devices that know each other.
struct Group {
    queues: Locked<Queues>,
    /// Told whenever code of the program that a stream ran has ended.
    host_ended: Condvar,
    registers: RegisterFill,
}

thread_local! {
    /// Whether this thread runs code of the program for a stream.
    static RUNS_HOST_CODE: Cell<bool> = const { Cell::new(false) };
}

impl EmulatedDriver {
    /// A group of `count` devices, each with memory of its own.
    pub(super) fn group(how: Emulation, count: usize) -> Result<Vec<Self>> {
        let memories = (0..count).map(|_| Memory::new(MEMORY_BYTES)).collect();
        let queues = Locked::new(Queues::new(memories, how));
        let group = Arc::new(Group { queues, host_ended: Condvar::new(), registers: how.registers });
        let id = |device| if count == 1 { "emulated".into() } else { format!("emulated:{count}#{device}") };
        (0..count).map(|device| Self::new(id(device), device, &group)).collect()
    }

    fn new(id: String, device: usize, group: &Arc<Group>) -> Result<Self> {
        let properties = DeviceProperties {
            kind: Kind::Emulated,
            id,
            name: "Gatework emulated device".into(),
            compute_capability: (9, 0),
            architecture: Architecture::Emulated,
            multiprocessors: MULTIPROCESSORS,
            shared_memory_per_block: 227 << 10,
            shared_memory_per_multiprocessor: 228 << 10,
            registers_per_block: 65536,
            l2_bytes: 1 << 20,
            memory_bytes: MEMORY_BYTES,
            max_clock_mhz: None,
            max_memory_clock_mhz: None,
            memory_bus_bits: None,
            multi_process_service: false,
            driver: compiler::name()?,
        };
        Ok(Self { properties, device, group: group.clone() })
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.group.queues.lock()
    }

    /// Runs operations, in a random order of streams, until `done`.
    fn run_until<'a>(
        &'a self,
        mut queues: MutexGuard<'a, Queues>,
        done: impl Fn(&Queues) -> bool,
    ) -> (MutexGuard<'a, Queues>, Result<()>) {
        while !done(&queues) {
            let (held, ran) = self.run_one(queues);
            queues = held;
            if ran.is_err() {
                return (queues, ran);
            }
        }
        (queues, Ok(()))
    }

    /// Runs one operation, or waits for one that another thread runs.
    fn run_one<'a>(&'a self, mut queues: MutexGuard<'a, Queues>) -> (MutexGuard<'a, Queues>, Result<()>) {
        match queues.run_one() {
            Err(error) => (queues, Err(error)),
            Ok(Step::Done) => (queues, Ok(())),
            Ok(Step::Skipped(op)) => {
                drop(queues);
                drop(op);
                (self.queues(), Ok(()))
            }
            Ok(Step::Host(stream, function)) => {
                drop(queues);
                let outer = RUNS_HOST_CODE.replace(true);
                function();
                RUNS_HOST_CODE.set(outer);
                let mut queues = self.queues();
                queues.host_ended(stream);
                self.group.host_ended.notify_all();
                (queues, Ok(()))
            }
            Ok(Step::Busy) if RUNS_HOST_CODE.get() => {
                let message = "it waits for a stream that waits for it".into();
                (queues, Err(Error::HostFunction { message }))
            }
            Ok(Step::Busy) => {
                (self.group.host_ended.wait(queues).unwrap_or_else(PoisonError::into_inner), Ok(()))
            }
        }
    }

    /// Queues an operation, or records it. A queue that is full does its work now.
    fn submit(&self, stream: StreamId, op: Op) -> Result<()> {
        self.submit_by(stream, |queues| queues.submit(stream, op))
    }

    fn submit_by(
        &self,
        stream: StreamId,
        submit: impl FnOnce(&mut Queues) -> Result<(), Box<(Error, Op)>>,
    ) -> Result<()> {
        let mut queues = self.queues();
        if let Err(refused) = submit(&mut queues) {
            drop(queues);
            // The operation with it.
            let (error, _) = *refused;
            return Err(error);
        }
        if queues.is_full(stream) { self.finish(queues, stream) } else { Ok(()) }
    }

    /// Runs until the stream is empty, and reports what failed on it.
    fn finish(&self, queues: MutexGuard<'_, Queues>, stream: StreamId) -> Result<()> {
        let (mut queues, ran) = self.run_until(queues, |queues| queues.is_idle(stream));
        ran.and_then(|()| queues.failure_of(stream))
    }

    /// The same for who waits on the host: what it queues from now on comes after.
    fn wait_for(&self, stream: StreamId) -> Result<()> {
        let (mut queues, ran) = self.run_until(self.queues(), |queues| queues.is_idle(stream));
        queues.host_waited_for(stream);
        ran.and_then(|()| queues.failure_of(stream))
    }

    /// Does the work of a queue that is full. What fails on it stays for the next call that can say it.
    fn relieve(&self, queues: MutexGuard<'_, Queues>, stream: StreamId) -> Result<()> {
        let full = queues.is_full(stream);
        self.run_until(queues, |queues| !full || queues.is_idle(stream)).1
    }

    /// The other device, if it is one of this group.
    fn fellow<'a>(&self, other: &'a dyn Driver) -> Option<&'a Self> {
        let other: &Self = other.as_any().downcast_ref()?;
        Arc::ptr_eq(&self.group, &other.group).then_some(other)
    }
}

/// Blocks that one multiprocessor holds at once: it has room for 64 warps and 32 blocks, and keeps 1 KiB of
/// shared memory a block for itself.
fn resident_blocks(grid: &Grid, properties: &DeviceProperties) -> u64 {
    let by_threads = 64 / grid.threads_per_block().div_ceil(32).max(1);
    let shared = u64::from(grid.shared_bytes) + 1024;
    by_threads.min(u64::from(properties.shared_memory_per_multiprocessor) / shared).min(32)
}

fn no_fellow(call: &'static str) -> Error {
    let message = "the other device is not of the same group; open both at once, with Device::open_all";
    Error::Foreign { call, message: message.into() }
}

fn kernel_launch(function: &Function, grid: &Grid, arguments: Arguments<'_, '_>) -> Result<KernelLaunch> {
    let entry: Arc<Entry> = function.clone().downcast().map_err(|_| Error::Graph {
        message: "a kernel of another device was handed to the emulated one".into(),
    })?;
    let arguments = arguments.map(<[u8]>::to_vec).collect();
    Ok(KernelLaunch { entry, grid: *grid, arguments })
}

impl Driver for EmulatedDriver {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn definition(&self) -> Option<(&'static str, &'static str)> {
        match self.group.registers {
            RegisterFill::Any => None,
            RegisterFill::Ones => Some((compiler::LOCALS, "pattern")),
            RegisterFill::Zeros => Some((compiler::LOCALS, "zero")),
        }
    }

    fn memory(&self) -> Result<MemoryInfo> {
        let held = self.queues().memory(self.device).held;
        Ok(MemoryInfo { free: MEMORY_BYTES - held })
    }

    fn clocks(&self) -> Option<Clocks> {
        None
    }

    #[cfg(feature = "blas")]
    fn enter(&self, what: &str) -> Result<()> {
        Err(Error::NeedsCard { what: what.to_owned() })
    }

    fn synchronize(&self) -> Result<()> {
        let streams = self.queues().streams(self.device);
        streams.into_iter().try_for_each(|stream| self.stream_synchronize(stream))?;
        self.queues().host_waited_for_device(self.device);
        Ok(())
    }

    /// There is no cache to set anything aside in.
    fn disable_persisting_cache(&self) -> Result<()> {
        Ok(())
    }

    fn stream_create(&self, _priority: Priority) -> Result<StreamId> {
        Ok(self.queues().create_stream(self.device))
    }

    fn stream_destroy(&self, stream: StreamId) {
        let mut queues = self.queues();
        if !RUNS_HOST_CODE.get() {
            let (held, ran) = self.run_until(queues, |queues| queues.is_idle(stream));
            queues = held;
            if let Err(error) = ran {
                tracing::warn!("a stream was dropped that cannot end: {error}");
            }
        }
        queues.destroy_stream(stream);
    }

    fn stream_is_known(&self, stream: StreamId) -> Result<bool> {
        Ok(self.queues().has_stream(self.device, stream))
    }

    fn stream_synchronize(&self, stream: StreamId) -> Result<()> {
        self.wait_for(stream)
    }

    fn stream_wait(&self, stream: StreamId, event: EventId) -> Result<()> {
        let mut queues = self.queues();
        queues.wait(stream, event)?;
        self.relieve(queues, stream)
    }

    fn host(&self, stream: StreamId, function: HostFunction) -> Result<()> {
        self.submit(stream, Op::Host(Arc::new(Locked::new(Some(function)))))
    }

    /// A host function that another thread runs is not waited for: whoever asked is asked again.
    fn advance(&self) -> Result<Progress> {
        let queues = self.queues();
        let ran = if queues.is_busy() { Ok(()) } else { self.run_one(queues).1 };
        ran.map(|()| Progress::Asked)
    }

    fn event_create(&self) -> Result<EventId> {
        Ok(self.queues().create_event())
    }

    fn event_destroy(&self, event: EventId) {
        self.queues().destroy_event(event);
    }

    fn event_record(&self, event: EventId, stream: StreamId) -> Result<()> {
        let mut queues = self.queues();
        queues.record(event, stream)?;
        self.relieve(queues, stream)
    }

    fn event_is_complete(&self, event: EventId) -> Result<bool> {
        let mut queues = self.queues();
        let done = queues.event_done(event);
        if done {
            queues.host_waited_for_event(event);
        }
        Ok(done)
    }

    fn event_synchronize(&self, event: EventId) -> Result<()> {
        let (mut queues, ran) = self.run_until(self.queues(), |queues| queues.event_done(event));
        queues.host_waited_for_event(event);
        ran.and_then(|()| queues.failure_before(event))
    }

    fn event_elapsed(&self, start: EventId, end: EventId) -> Result<Duration> {
        let queues = self.queues();
        match (queues.event_time(start), queues.event_time(end)) {
            (Some(start), Some(end)) => Ok(end.saturating_duration_since(start)),
            _ => Err(Error::Graph { message: "an event that has not happened cannot be timed".into() }),
        }
    }

    fn allocate(&self, stream: StreamId, bytes: usize) -> Result<Option<Pointer>> {
        Ok(self.queues().allocate(self.device, stream, bytes).map(|start| Pointer(start as u64)))
    }

    fn free(&self, stream: StreamId, pointer: Pointer) {
        self.queues().submit_free(self.device, stream, pointer);
    }

    fn memory_is_known(&self, pointer: Pointer, bytes: usize) -> Result<bool> {
        Ok(self.queues().memory(self.device).holds(pointer.0 as usize, bytes))
    }

    fn host_allocate(&self, bytes: usize) -> Result<Option<*mut u8>> {
        Ok(self.queues().memory(self.device).allocate_of_host(bytes).map(|start| start as *mut u8))
    }

    unsafe fn host_free(&self, pointer: *mut u8, _bytes: usize) {
        self.queues().free_of_host(self.device, pointer as usize);
    }

    unsafe fn copy_to_device(
        &self,
        stream: StreamId,
        destination: Pointer,
        source: *const u8,
        bytes: usize,
        host: HostMemory,
    ) -> Result<()> {
        let op = match host {
            HostMemory::Pageable => {
                // SAFETY: the caller promises that the source is readable during this call.
                let bytes = unsafe { std::slice::from_raw_parts(source, bytes) }.to_vec();
                Op::CopyBytes { to: destination, bytes: Arc::new(bytes) }
            }
            HostMemory::Pinned => {
                Op::CopyFromHost { to: destination, from: HostPointer(source.cast_mut()), bytes }
            }
        };
        self.submit(stream, op)
    }

    unsafe fn copy_to_host(
        &self,
        stream: StreamId,
        destination: *mut u8,
        source: Pointer,
        bytes: usize,
        host: HostMemory,
    ) -> Result<()> {
        let to = HostPointer(destination);
        let queued = self.submit(stream, Op::CopyToHost { to, from: source, bytes });
        if host == HostMemory::Pinned {
            return queued;
        }
        let done = queued.and_then(|()| self.wait_for(stream));
        if done.is_err() {
            self.queues().retract_copies(stream, to);
        }
        done
    }

    fn copy_on_device(
        &self,
        stream: StreamId,
        destination: Pointer,
        source: Pointer,
        bytes: usize,
    ) -> Result<()> {
        self.submit(stream, Op::CopyOnDevice { to: destination, from: source, bytes })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn share(&self, number: usize, of: usize) -> Result<Box<dyn Driver>> {
        let id = format!("{}*{of}#{number}", self.properties.id);
        Ok(Box::new(Self::new(id, self.device, &self.group)?))
    }

    fn reach(&self, other: &dyn Driver) -> Result<Reach> {
        Ok(self.fellow(other).map_or(Reach::None, |_| Reach::Direct))
    }

    fn enable_peer_access(&self, other: &dyn Driver) -> Result<()> {
        let other = self.fellow(other).ok_or_else(|| no_fellow("Device::enable_peer_access"))?;
        self.queues().enable_peer(self.device, other.device);
        Ok(())
    }

    fn copy_from_peer(
        &self,
        stream: StreamId,
        destination: Pointer,
        other: &dyn Driver,
        source: Pointer,
        bytes: usize,
    ) -> Result<()> {
        let peer = self.fellow(other).ok_or_else(|| no_fellow("Stream::copy_from_peer"))?.device;
        self.submit(stream, Op::CopyFromPeer { to: destination, from: source, peer, bytes })
    }

    fn fill(&self, stream: StreamId, destination: Pointer, pattern: &[u8], count: usize) -> Result<()> {
        self.submit(stream, Op::Fill { to: destination, pattern: pattern.to_vec(), count })
    }

    fn load(&self, binary: &Binary, entry: &str) -> Result<(Function, KernelInfo)> {
        let (entry, info) = module::load(binary, entry)?;
        Ok((entry, info))
    }

    fn load_image(&self, image: &Image, _entry: &str) -> Result<(Function, KernelInfo)> {
        Err(Error::NeedsCard { what: format!("'{}', which was compiled elsewhere,", image.name()) })
    }

    fn launch(
        &self,
        stream: StreamId,
        function: &Function,
        grid: &Grid,
        arguments: Arguments<'_, '_>,
    ) -> Result<()> {
        let launch = kernel_launch(function, grid, arguments)?;
        let refuse = |message: String| Err(Error::Launch { kernel: launch.entry.name.clone(), message });
        if grid.cooperative && grid.block_count() * grid.threads_per_block() > launch::COOPERATIVE_THREADS {
            return refuse(format!(
                "a cooperative grid keeps all its threads at once, and the emulated device takes {} at most",
                launch::COOPERATIVE_THREADS
            ));
        }
        let room = u64::from(MULTIPROCESSORS) * resident_blocks(grid, &self.properties);
        if grid.cooperative && grid.block_count() > room {
            return refuse(format!(
                "a cooperative grid of {} blocks, of which the device holds {room} at once: ask \
                 Kernel::max_active_blocks",
                grid.block_count()
            ));
        }
        if grid.block_count() > launch::MOST_BLOCKS {
            return refuse(format!(
                "{} blocks, the emulated device takes {} at most",
                grid.block_count(),
                launch::MOST_BLOCKS
            ));
        }
        self.submit(stream, Op::Launch(launch))
    }

    fn max_active_blocks(&self, _function: &Function, threads: u32, shared_bytes: u32) -> Result<u32> {
        let grid = Grid::new([1; 3], [threads, 1, 1]).shared(shared_bytes);
        Ok(resident_blocks(&grid, &self.properties) as u32)
    }

    fn suggested_block(
        &self,
        _function: &Function,
        info: &KernelInfo,
        shared_bytes: u32,
    ) -> Result<SuggestedBlock> {
        let resident = |threads: u32| {
            resident_blocks(&Grid::new([1; 3], [threads, 1, 1]).shared(shared_bytes), &self.properties) as u32
        };
        let whole_warps = (1..=info.max_threads / 32).map(|warps| warps * 32);
        // Of those that are as good, the largest.
        let threads = whole_warps.max_by_key(|&threads| threads * resident(threads));
        let threads = threads.unwrap_or(info.max_threads);
        Ok(SuggestedBlock { threads, least_blocks: resident(threads) * MULTIPROCESSORS })
    }

    /// By threads and shared memory, on multiprocessors like Hopper's.
    fn max_active_clusters(&self, _function: &Function, grid: &Grid) -> Result<u32> {
        let blocks = u64::from(MULTIPROCESSORS) * resident_blocks(grid, &self.properties);
        Ok((blocks / Clusters::new(grid).size() as u64) as u32)
    }

    fn tensor_map(&self, spec: &TensorSpec<'_>) -> Result<TensorWords> {
        Ok(tensor_map::encode(spec))
    }

    fn capture_begin(&self, stream: StreamId) -> Result<()> {
        self.queues().begin_capture(stream);
        Ok(())
    }

    fn capture_last_node(&self, stream: StreamId) -> Result<NodeId> {
        let node = self.queues().last_node(stream);
        node.map(|node| NodeId(node as u64))
            .ok_or_else(|| Error::Graph { message: "the capture has no node".into() })
    }

    fn capture_child(&self, stream: StreamId, graph: GraphId) -> Result<NodeId> {
        self.graph_launch(graph, stream)?;
        self.capture_last_node(stream)
    }

    fn capture_end(&self, stream: StreamId) -> Result<GraphId> {
        self.queues().end_capture(stream).map(GraphId)
    }

    fn capture_abort(&self, stream: StreamId) {
        self.queues().abort_capture(stream);
    }

    fn graph_launch(&self, graph: GraphId, stream: StreamId) -> Result<()> {
        self.submit_by(stream, |queues| queues.launch_graph(graph.0, stream))
    }

    fn graph_update(
        &self,
        graph: GraphId,
        node: NodeId,
        function: &Function,
        grid: &Grid,
        arguments: Arguments<'_, '_>,
    ) -> Result<()> {
        let launch = kernel_launch(function, grid, arguments)?;
        self.queues().update_graph(graph.0, node.0 as usize, Op::Launch(launch));
        Ok(())
    }

    unsafe fn graph_update_copy(
        &self,
        graph: GraphId,
        node: NodeId,
        ends: CopyEnds,
        bytes: usize,
    ) -> Result<()> {
        let op = match ends {
            CopyEnds::OnDevice { to, from } => Op::CopyOnDevice { to, from, bytes },
            CopyEnds::ToDevice { to, from } => {
                Op::CopyFromHost { to, from: HostPointer(from.cast_mut()), bytes }
            }
            CopyEnds::ToHost { to, from } => Op::CopyToHost { to: HostPointer(to), from, bytes },
        };
        self.queues().update_graph(graph.0, node.0 as usize, op);
        Ok(())
    }

    fn graph_update_child(&self, graph: GraphId, node: NodeId, child: GraphId) -> Result<()> {
        self.queues().update_child(graph.0, node.0 as usize, child.0)
    }

    fn graph_destroy(&self, graph: GraphId) {
        self.queues().destroy_graph(graph.0);
    }
}
