//! The emulated device behind the seam that the CUDA driver shares.

use std::any::Any;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::cluster::Clusters;
use super::memory::Memory;
use super::module::{self, Entry};
use super::queue::{HostPointer, KernelLaunch, Op, Queues};
use super::{compiler, launch, tensor_map};
use crate::driver::{
    Arguments, Driver, EventId, Function, GraphId, HostMemory, MemoryInfo, NodeId, Pointer, StreamId,
};
use crate::locked::Locked;
use crate::types::{
    Architecture, Binary, Clocks, DeviceProperties, Grid, KernelInfo, Kind, Priority, Reach, TensorSpec,
    TensorWords,
};
use crate::{Error, Result};

/// Memory the device says it has: enough for tests, not enough to bring the machine down.
const MEMORY_BYTES: u64 = 4 << 30;
/// Few, so that grids made to fill the device stay small.
const MULTIPROCESSORS: u32 = 4;

/// One emulated device of a group. Devices of a group share their queues, so that streams of one wait for events of
/// another.
pub(super) struct EmulatedDriver {
    properties: DeviceProperties,
    /// Which of the group.
    device: usize,
    queues: Arc<Locked<Queues>>,
}

impl EmulatedDriver {
    /// A group of `count` devices, each with memory of its own.
    pub(super) fn group(seed: u64, count: usize) -> Result<Vec<Self>> {
        let memories = (0..count).map(|_| Memory::new(MEMORY_BYTES)).collect();
        let queues = Arc::new(Locked::new(Queues::new(memories, seed)));
        let id = |device| if count == 1 { "emulated".into() } else { format!("emulated:{count}#{device}") };
        (0..count).map(|device| Self::new(id(device), device, &queues)).collect()
    }

    fn new(id: String, device: usize, queues: &Arc<Locked<Queues>>) -> Result<Self> {
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
        Ok(Self { properties, device, queues: queues.clone() })
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock()
    }

    /// The other device, if it is one of this group.
    fn fellow<'a>(&self, other: &'a dyn Driver) -> Option<&'a Self> {
        let other: &Self = other.as_any().downcast_ref()?;
        Arc::ptr_eq(&self.queues, &other.queues).then_some(other)
    }
}

/// Blocks that one multiprocessor holds at once: it has room for 64 warps and 32 blocks, and keeps 1 KiB of shared memory
/// a block for itself.
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

    fn memory(&self) -> Result<MemoryInfo> {
        let held = self.queues().memory(self.device).held;
        Ok(MemoryInfo { free: MEMORY_BYTES - held })
    }

    fn clocks(&self) -> Option<Clocks> {
        None
    }

    fn synchronize(&self) -> Result<()> {
        self.queues().synchronize_all(self.device)
    }

    /// There is no cache to set anything aside in.
    fn disable_persisting_cache(&self) -> Result<()> {
        Ok(())
    }

    fn stream_create(&self, _priority: Priority) -> Result<StreamId> {
        Ok(self.queues().create_stream(self.device))
    }

    fn stream_destroy(&self, stream: StreamId) {
        self.queues().destroy_stream(stream);
    }

    fn stream_is_known(&self, stream: StreamId) -> Result<bool> {
        Ok(self.queues().has_stream(self.device, stream))
    }

    fn stream_synchronize(&self, stream: StreamId) -> Result<()> {
        self.queues().synchronize(stream)
    }

    fn stream_wait(&self, stream: StreamId, event: EventId) -> Result<()> {
        self.queues().wait(stream, event)
    }

    fn event_create(&self) -> Result<EventId> {
        Ok(self.queues().create_event())
    }

    fn event_destroy(&self, event: EventId) {
        self.queues().destroy_event(event);
    }

    fn event_record(&self, event: EventId, stream: StreamId) -> Result<()> {
        self.queues().record(event, stream)
    }

    fn event_is_complete(&self, event: EventId) -> Result<bool> {
        Ok(self.queues().event_done(event))
    }

    fn event_synchronize(&self, event: EventId) -> Result<()> {
        self.queues().synchronize_event(event)
    }

    fn event_elapsed(&self, start: EventId, end: EventId) -> Result<Duration> {
        let queues = self.queues();
        match (queues.event_time(start), queues.event_time(end)) {
            (Some(start), Some(end)) => Ok(end.saturating_duration_since(start)),
            _ => Err(Error::Graph { message: "an event that has not happened cannot be timed".into() }),
        }
    }

    fn allocate(&self, _stream: StreamId, bytes: usize) -> Result<Option<Pointer>> {
        Ok(self.queues().memory(self.device).allocate(bytes).map(|start| Pointer(start as u64)))
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
        self.queues().memory(self.device).free_of_host(pointer as usize);
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
        self.queues().submit(stream, op)
    }

    unsafe fn copy_to_host(
        &self,
        stream: StreamId,
        destination: *mut u8,
        source: Pointer,
        bytes: usize,
        host: HostMemory,
    ) -> Result<()> {
        let mut queues = self.queues();
        let to = HostPointer(destination);
        let queued = queues.submit(stream, Op::CopyToHost { to, from: source, bytes });
        if host == HostMemory::Pinned {
            return queued;
        }
        let done = queued.and_then(|()| queues.synchronize(stream));
        if done.is_err() {
            queues.retract_copies(stream, to);
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
        self.queues().submit(stream, Op::CopyOnDevice { to: destination, from: source, bytes })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn share(&self, number: usize, of: usize) -> Result<Box<dyn Driver>> {
        let id = format!("{}*{of}#{number}", self.properties.id);
        Ok(Box::new(Self::new(id, self.device, &self.queues)?))
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
        self.queues().submit(stream, Op::CopyFromPeer { to: destination, from: source, peer, bytes })
    }

    fn fill(&self, stream: StreamId, destination: Pointer, pattern: &[u8], count: usize) -> Result<()> {
        self.queues().submit(stream, Op::Fill { to: destination, pattern: pattern.to_vec(), count })
    }

    fn load(&self, binary: &Binary, entry: &str) -> Result<(Function, KernelInfo)> {
        let (entry, info) = module::load(binary, entry)?;
        Ok((entry, info))
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
        if grid.block_count() > launch::MOST_BLOCKS {
            return refuse(format!(
                "{} blocks, the emulated device takes {} at most",
                grid.block_count(),
                launch::MOST_BLOCKS
            ));
        }
        self.queues().submit(stream, Op::Launch(launch))
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

    fn capture_end(&self, stream: StreamId) -> Result<GraphId> {
        self.queues().end_capture(stream).map(GraphId)
    }

    fn capture_abort(&self, stream: StreamId) {
        self.queues().abort_capture(stream);
    }

    fn graph_launch(&self, graph: GraphId, stream: StreamId) -> Result<()> {
        self.queues().submit_graph(graph.0, stream)
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
        self.queues().update_graph(graph.0, node.0 as usize, launch);
        Ok(())
    }

    fn graph_destroy(&self, graph: GraphId) {
        self.queues().destroy_graph(graph.0);
    }
}
