//! [`Driver`] on the CUDA driver API. Handles of the safe layer are the driver's own pointers.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fs;
use std::ptr;
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

use cudarc::driver::sys::{
    self, CUdevice, CUevent, CUresult, CUstream, CUstream_flags, CUstreamCaptureStatus,
};

use crate::cuda::address;
use crate::cuda::blocks::{self, Blocks};
use crate::cuda::context::Context;
use crate::cuda::event;
use crate::cuda::fill;
use crate::cuda::function::{Cubin, LoadedFunction};
use crate::cuda::graph::{self, Templates};
use crate::cuda::link;
use crate::cuda::nvml::Nvml;
use crate::cuda::peer;
use crate::cuda::pool::Pool;
use crate::cuda::properties;
use crate::cuda::staging::{self, Staging};
use crate::cuda::status::{check, check_release, failure};
use crate::cuda::tensor;
use crate::driver::{
    Arguments, CopyEnds, Driver, EventId, Function, GraphId, HostFunction, HostMemory, MemoryInfo, NodeId,
    Pointer, Progress, StreamId,
};
use crate::locked::Locked;
use crate::types::{
    Binary, Clocks, DeviceProperties, Grid, Image, ImageCode, KernelInfo, Priority, Reach, SuggestedBlock,
    TensorSpec, TensorWords,
};
use crate::{Error, Result};

/// One part in so many of the device's memory is kept for the streams that freed it, at most.
const KEPT_SHARE: u64 = 4;

/// An open CUDA device.
pub(super) struct CudaDriver {
    properties: DeviceProperties,
    pool: Pool,
    /// Where small blocks come from.
    small_pool: Pool,
    /// Blocks that streams freed.
    blocks: Locked<Blocks>,
    /// For the small copies of each of our streams.
    staging: Locked<HashMap<StreamId, Arc<Staging>>>,
    /// Whether the card fetches ordinary host memory itself, after the copy call has returned.
    reads_pageable_memory: bool,
    templates: Locked<Templates>,
    /// Looked up at the first question for clocks, which most programs never ask.
    nvml: OnceLock<Option<Nvml>>,
    /// Last: what is above is let go of before it.
    context: Arc<Context>,
}

impl CudaDriver {
    /// Opens a device of an initialised driver.
    pub(super) fn open(ordinal: usize, device: CUdevice) -> Result<Self> {
        Self::hold(properties::read(ordinal, device)?, device, 1)
    }

    /// One of so many holds on the device. They share its context and the driver's default pool, and divide
    /// what of its memory is kept for streams.
    fn hold(properties: DeviceProperties, device: CUdevice, of: usize) -> Result<Self> {
        let context = Context::retain(device)?;
        Ok(Self {
            pool: Pool::default_of(device)?,
            small_pool: Pool::create(device)?,
            blocks: Locked::new(Blocks::new(properties.memory_bytes / KEPT_SHARE / of.max(1) as u64)),
            staging: Locked::default(),
            reads_pageable_memory: properties::reads_pageable_memory(device)?,
            context,
            properties,
            templates: Locked::default(),
            nvml: OnceLock::new(),
        })
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    fn of_peer<'a>(other: &'a dyn Driver, call: &'static str) -> Result<&'a Self> {
        other.as_any().downcast_ref().ok_or_else(|| Error::Foreign {
            call,
            message: format!("{} is no CUDA device", other.properties().id),
        })
    }

    /// Enters the context where an error cannot be returned; whether the call that follows makes sense.
    fn enter_to_release(&self) -> bool {
        self.context.enter().inspect_err(|error| tracing::warn!("{error}")).is_ok()
    }

    fn load_cubin(&self, cubin: &Cubin<'_>, entry: &str) -> Result<(Function, KernelInfo)> {
        self.context.enter()?;
        let most_shared = self.properties.shared_memory_per_block;
        let (function, info) = LoadedFunction::load(&self.context, cubin, entry, most_shared)?;
        Ok((Arc::new(function), info))
    }

    /// One attempt to take memory from a pool.
    fn try_allocate(&self, stream: StreamId, bytes: usize) -> Result<Option<Pointer>> {
        let pool = if blocks::is_small(bytes) { &self.small_pool } else { &self.pool };
        let mut pointer = 0;
        // SAFETY: the stream and the pool are alive, and `pointer` is written by the call.
        match unsafe { sys::cuMemAllocFromPoolAsync(&mut pointer, bytes, pool.raw(), raw_stream(stream)) } {
            CUresult::CUDA_SUCCESS => Ok(Some(Pointer(pointer))),
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            status => Err(failure("cuMemAllocFromPoolAsync", status)),
        }
    }

    /// Waits for `stream`. The caller has entered the context.
    fn wait_for(&self, stream: StreamId) -> Result<()> {
        let staging = self.staging().get(&stream).cloned();
        let mark = staging.as_ref().map(|staging| staging.mark());
        wait(stream)?;
        if let (Some(staging), Some(mark)) = (staging, mark) {
            staging.rewind(mark);
        }
        Ok(())
    }

    /// The page-locked memory of `stream`, if it is one of ours and the copy is small.
    fn staging_for(&self, stream: StreamId, bytes: usize, host: HostMemory) -> Option<Arc<Staging>> {
        let small = host == HostMemory::Pageable && (1..=staging::LARGEST).contains(&bytes);
        if small { self.staging().get(&stream).cloned() } else { None }
    }

    fn staging(&self) -> MutexGuard<'_, HashMap<StreamId, Arc<Staging>>> {
        self.staging.lock()
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock()
    }

    /// Gives the blocks that all streams keep back to the pools, and waits until they are there. Those of a
    /// stream that is being captured stay: they would be freed by the graph. The caller has entered the
    /// context.
    fn release_idle_blocks(&self) -> Result<()> {
        // Under the lock, so that no stream ends meanwhile.
        let mut blocks = self.blocks();
        for stream in blocks.streams() {
            if !is_captured(stream)? {
                release(stream, blocks.drain(stream));
                wait(stream)?;
            }
        }
        Ok(())
    }

    fn templates(&self) -> MutexGuard<'_, Templates> {
        self.templates.lock()
    }
}

impl Driver for CudaDriver {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory(&self) -> Result<MemoryInfo> {
        self.context.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both numbers are written by the call.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        let idle = self.pool.idle_bytes()? + self.small_pool.idle_bytes()? + self.blocks().idle_bytes();
        Ok(MemoryInfo { free: free as u64 + idle })
    }

    fn clocks(&self) -> Option<Clocks> {
        let find = || Nvml::for_device(&properties::pci_bus_id(self.context.device()).ok()?);
        self.nvml.get_or_init(find).as_ref()?.clocks()
    }

    #[cfg(feature = "blas")]
    fn enter(&self, _what: &str) -> Result<()> {
        self.context.enter()
    }

    fn synchronize(&self) -> Result<()> {
        self.context.synchronize()
    }

    fn disable_persisting_cache(&self) -> Result<()> {
        self.context.disable_persisting_cache()
    }

    fn stream_create(&self, priority: Priority) -> Result<StreamId> {
        self.context.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both numbers are written by the call.
        let status = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) };
        check("cuCtxGetStreamPriorityRange", status)?;
        let level = match priority {
            Priority::High => greatest,
            Priority::Normal => least,
        };
        let mut stream = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `stream` is written by the call.
        let status = unsafe { sys::cuStreamCreateWithPriority(&mut stream, flags, level) };
        check("cuStreamCreateWithPriority", status)?;
        let stream = StreamId(stream as u64);
        self.blocks().open(stream);
        self.staging().insert(stream, Arc::default());
        Ok(stream)
    }

    fn stream_destroy(&self, stream: StreamId) {
        if self.enter_to_release() {
            let mut blocks = self.blocks();
            release(stream, blocks.close(stream));
            // Under the lock till here: an allocation that fails releases the blocks of every stream that is
            // open.
            drop(blocks);
            let staging = self.staging().remove(&stream);
            if staging.as_ref().is_some_and(|staging| staging.is_busy()) {
                // Its memory goes with `staging`.
                let _ = wait(stream).inspect_err(|error| tracing::warn!("{error}"));
            }
            // SAFETY: the safe layer destroys each stream once; work still queued on it completes.
            check_release("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(raw_stream(stream)) });
        }
    }

    fn stream_is_known(&self, stream: StreamId) -> Result<bool> {
        self.context.owns(raw_stream(stream))
    }

    fn stream_synchronize(&self, stream: StreamId) -> Result<()> {
        self.context.enter()?;
        self.wait_for(stream)
    }

    fn stream_wait(&self, stream: StreamId, event: EventId) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the stream and the event are alive.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(raw_stream(stream), raw_event(event), 0) })
    }

    fn host(&self, stream: StreamId, function: HostFunction) -> Result<()> {
        self.context.enter()?;
        // A thin pointer to a fat one. Lost, and never run, if the context fails before the stream comes to
        // it.
        let data = Box::into_raw(Box::new(function));
        // SAFETY: the stream is alive; the driver calls `run_host_function` once with `data`, which is of its
        // type.
        let status =
            unsafe { sys::cuLaunchHostFunc(raw_stream(stream), Some(run_host_function), data.cast()) };
        if status != CUresult::CUDA_SUCCESS {
            // SAFETY: the call failed, so that nobody else has the box.
            drop(unsafe { Box::from_raw(data) });
        }
        check("cuLaunchHostFunc", status)
    }

    fn advance(&self) -> Result<Progress> {
        Ok(Progress::Own)
    }

    fn event_create(&self) -> Result<EventId> {
        self.context.enter()?;
        Ok(EventId(event::create()? as u64))
    }

    fn event_destroy(&self, event: EventId) {
        if self.enter_to_release() {
            event::destroy(raw_event(event));
        }
    }

    fn event_record(&self, event: EventId, stream: StreamId) -> Result<()> {
        self.context.enter()?;
        event::record(raw_event(event), raw_stream(stream))
    }

    fn event_is_complete(&self, event: EventId) -> Result<bool> {
        self.context.enter()?;
        event::is_complete(raw_event(event))
    }

    fn event_synchronize(&self, event: EventId) -> Result<()> {
        self.context.enter()?;
        event::synchronize(raw_event(event))
    }

    fn event_elapsed(&self, start: EventId, end: EventId) -> Result<Duration> {
        self.context.enter()?;
        event::elapsed(raw_event(start), raw_event(end))
    }

    fn allocate(&self, stream: StreamId, bytes: usize) -> Result<Option<Pointer>> {
        self.context.enter()?;
        let size = blocks::rounded(bytes);
        if let Some(pointer) = self.blocks().take(stream, size) {
            return Ok(Some(pointer));
        }
        let mut allocated = self.try_allocate(stream, size)?;
        if allocated.is_none() {
            // What was freed is kept in pieces that may be too small. Better to wait here than to refuse.
            self.release_idle_blocks()?;
            self.wait_for(stream)?;
            self.pool.trim()?;
            self.small_pool.trim()?;
            allocated = self.try_allocate(stream, size)?;
        }
        if let Some(pointer) = allocated {
            self.blocks().lend(pointer, size);
        }
        Ok(allocated)
    }

    fn free(&self, stream: StreamId, pointer: Pointer) {
        let freed = self.blocks().put(stream, pointer);
        if freed.is_empty() {
            return;
        }
        if self.enter_to_release() {
            release(stream, freed);
        }
    }

    fn memory_is_known(&self, pointer: Pointer, bytes: usize) -> Result<bool> {
        self.context.enter()?;
        address::is_memory_of(self.context.device(), pointer.0, bytes)
    }

    fn host_allocate(&self, bytes: usize) -> Result<Option<*mut u8>> {
        self.context.enter()?;
        let mut address: *mut c_void = ptr::null_mut();
        // SAFETY: `address` is written by the call.
        match unsafe { sys::cuMemHostAlloc(&mut address, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) } {
            CUresult::CUDA_SUCCESS => Ok(Some(address.cast())),
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            status => Err(failure("cuMemHostAlloc", status)),
        }
    }

    unsafe fn host_free(&self, pointer: *mut u8, _bytes: usize) {
        if self.enter_to_release() {
            // SAFETY: the caller promises that the pointer came from `host_allocate` and that no copy uses
            // it.
            check_release("cuMemFreeHost", unsafe { sys::cuMemFreeHost(pointer.cast()) });
        }
    }

    unsafe fn copy_to_device(
        &self,
        stream: StreamId,
        destination: Pointer,
        source: *const u8,
        bytes: usize,
        host: HostMemory,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.enter()?;
        let queue = |source: *const u8| {
            // SAFETY: the caller promises `bytes` readable bytes, or they are staged and stay until the
            // stream was waited for; the destination lies inside an allocation.
            let status =
                unsafe { sys::cuMemcpyHtoDAsync_v2(destination.0, source.cast(), bytes, raw_stream(stream)) };
            check("cuMemcpyHtoDAsync", status)
        };
        if let Some(staging) = self.staging_for(stream, bytes, host) {
            // SAFETY: the caller promises `bytes` readable bytes, and they are few.
            return unsafe { staging.send(&self.context, source, bytes, || wait(stream), queue) };
        }
        // Otherwise the driver moves pageable bytes into a staging buffer before it returns.
        let fetched_later =
            host == HostMemory::Pageable && (self.reads_pageable_memory || address::is_page_locked(source)?);
        queue(source)?;
        if fetched_later {
            self.wait_for(stream)?;
        }
        Ok(())
    }

    unsafe fn copy_to_host(
        &self,
        stream: StreamId,
        destination: *mut u8,
        source: Pointer,
        bytes: usize,
        host: HostMemory,
    ) -> Result<()> {
        self.context.enter()?;
        let queue = |target: *mut u8| {
            // SAFETY: the caller promises `bytes` writable bytes, or they are page-locked; the source lies
            // inside an allocation.
            let status =
                unsafe { sys::cuMemcpyDtoHAsync_v2(target.cast(), source.0, bytes, raw_stream(stream)) };
            check("cuMemcpyDtoHAsync", status)
        };
        if let Some(staging) = self.staging_for(stream, bytes, host) {
            let receive = |target| queue(target).and_then(|()| self.wait_for(stream));
            // SAFETY: the caller promises `bytes` writable bytes, and they are few.
            return unsafe { staging.receive(&self.context, destination, bytes, receive) };
        }
        if bytes > 0 {
            queue(destination)?;
        }
        match host {
            HostMemory::Pageable => self.wait_for(stream),
            HostMemory::Pinned => Ok(()),
        }
    }

    fn copy_on_device(
        &self,
        stream: StreamId,
        destination: Pointer,
        source: Pointer,
        bytes: usize,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.enter()?;
        // SAFETY: both runs lie inside allocations of this device, which outlive the copy.
        let status = unsafe { sys::cuMemcpyDtoDAsync_v2(destination.0, source.0, bytes, raw_stream(stream)) };
        check("cuMemcpyDtoDAsync", status)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn share(&self, number: usize, of: usize) -> Result<Box<dyn Driver>> {
        let id = format!("{}*{of}#{number}", self.properties.id);
        let properties = DeviceProperties { id, ..self.properties.clone() };
        Ok(Box::new(Self::hold(properties, self.context.device(), of)?))
    }

    fn reach(&self, other: &dyn Driver) -> Result<Reach> {
        let Some(other) = other.as_any().downcast_ref::<Self>() else { return Ok(Reach::None) };
        let (device, peer) = (self.context.device(), other.context.device());
        let direct = device == peer || peer::can_access(device, peer)?;
        Ok(if direct { Reach::Direct } else { Reach::Copies })
    }

    fn enable_peer_access(&self, other: &dyn Driver) -> Result<()> {
        let other = Self::of_peer(other, "Device::enable_peer_access")?;
        if self.context.device() == other.context.device() {
            return Ok(());
        }
        peer::enable_access(&self.context, &other.context, [other.pool.raw(), other.small_pool.raw()])
    }

    fn copy_from_peer(
        &self,
        stream: StreamId,
        destination: Pointer,
        other: &dyn Driver,
        source: Pointer,
        bytes: usize,
    ) -> Result<()> {
        let other = Self::of_peer(other, "Stream::copy_from_peer")?;
        if bytes == 0 || self.context.device() == other.context.device() {
            return self.copy_on_device(stream, destination, source, bytes);
        }
        peer::copy(raw_stream(stream), (&self.context, destination), (&other.context, source), bytes)
    }

    fn fill(&self, stream: StreamId, destination: Pointer, pattern: &[u8], count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        self.context.enter()?;
        fill::queue(raw_stream(stream), destination, pattern, count)
    }

    fn load(&self, binary: &Binary, entry: &str) -> Result<(Function, KernelInfo)> {
        let bytes =
            fs::read(&binary.path).map_err(|source| Error::Io { path: binary.path.clone(), source })?;
        self.load_cubin(&Cubin::of(binary, bytes), entry)
    }

    fn load_image(&self, image: &Image, entry: &str) -> Result<(Function, KernelInfo)> {
        self.context.enter()?;
        let bytes = match image.code() {
            ImageCode::Cubin(bytes) => bytes.to_vec(),
            ImageCode::Ptx(text) => link::cubin(image.name(), text)?,
        };
        self.load_cubin(&Cubin::from_elsewhere(image.name(), image.key(), bytes), entry)
    }

    fn launch(
        &self,
        stream: StreamId,
        function: &Function,
        grid: &Grid,
        arguments: Arguments<'_, '_>,
    ) -> Result<()> {
        self.context.enter()?;
        loaded(function)?.launch(raw_stream(stream), grid, arguments)
    }

    fn max_active_blocks(&self, function: &Function, threads: u32, shared_bytes: u32) -> Result<u32> {
        self.context.enter()?;
        loaded(function)?.max_active_blocks(threads, shared_bytes)
    }

    fn suggested_block(
        &self,
        function: &Function,
        _info: &KernelInfo,
        shared_bytes: u32,
    ) -> Result<SuggestedBlock> {
        self.context.enter()?;
        loaded(function)?.suggested_block(shared_bytes)
    }

    fn max_active_clusters(&self, function: &Function, grid: &Grid) -> Result<u32> {
        self.context.enter()?;
        loaded(function)?.max_active_clusters(grid)
    }

    fn tensor_map(&self, spec: &TensorSpec<'_>) -> Result<TensorWords> {
        self.context.enter()?;
        tensor::encode(spec)
    }

    fn capture_begin(&self, stream: StreamId) -> Result<()> {
        self.context.enter()?;
        graph::begin_capture(raw_stream(stream))
    }

    fn capture_last_node(&self, stream: StreamId) -> Result<NodeId> {
        self.context.enter()?;
        Ok(NodeId(graph::last_node(raw_stream(stream))? as u64))
    }

    fn capture_child(&self, stream: StreamId, graph: GraphId) -> Result<NodeId> {
        self.context.enter()?;
        Ok(NodeId(graph::add_child(raw_stream(stream), self.templates().of(graph)?)? as u64))
    }

    fn capture_end(&self, stream: StreamId) -> Result<GraphId> {
        self.context.enter()?;
        let (template, executable) = graph::end_capture(raw_stream(stream))?;
        Ok(self.templates().keep(executable, template))
    }

    fn capture_abort(&self, stream: StreamId) {
        if self.enter_to_release() {
            graph::abort_capture(raw_stream(stream));
        }
    }

    fn graph_launch(&self, graph: GraphId, stream: StreamId) -> Result<()> {
        self.context.enter()?;
        // Graphs may be launched from several threads, and the driver wants calls on one graph one after
        // another.
        let _one_at_a_time = self.templates();
        graph::launch(graph.0 as _, raw_stream(stream))
    }

    fn graph_update(
        &self,
        graph: GraphId,
        node: NodeId,
        function: &Function,
        grid: &Grid,
        arguments: Arguments<'_, '_>,
    ) -> Result<()> {
        self.context.enter()?;
        let _one_at_a_time = self.templates();
        loaded(function)?.update_node(graph.0 as _, node.0 as _, grid, arguments)
    }

    unsafe fn graph_update_copy(
        &self,
        graph: GraphId,
        node: NodeId,
        ends: CopyEnds,
        bytes: usize,
    ) -> Result<()> {
        self.context.enter()?;
        let _one_at_a_time = self.templates();
        // SAFETY: the graph and its template are alive, and the caller promises that both ends are.
        unsafe { graph::update_copy(graph.0 as _, node.0 as _, ends, bytes, self.context.raw()) }
    }

    fn graph_update_child(&self, graph: GraphId, node: NodeId, child: GraphId) -> Result<()> {
        self.context.enter()?;
        let templates = self.templates();
        graph::update_child(graph.0 as _, node.0 as _, templates.of(child)?)
    }

    fn graph_destroy(&self, graph: GraphId) {
        let template = self.templates().take(graph);
        if self.enter_to_release() {
            graph::destroy(graph.0 as _);
            graph::destroy_template(template);
        }
    }
}

/// Whether work on `stream` goes into a graph.
fn is_captured(stream: StreamId) -> Result<bool> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is alive, and `status` is written by the call.
    check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(raw_stream(stream), &mut status) })?;
    Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Gives blocks back to their pools.
fn release(stream: StreamId, blocks: Vec<Pointer>) {
    for pointer in blocks {
        // SAFETY: the pointer came from the pool by way of this stream, and nobody has it.
        check_release("cuMemFreeAsync", unsafe { sys::cuMemFreeAsync(pointer.0, raw_stream(stream)) });
    }
}

/// Waits for `stream`, in a context that has been entered.
fn wait(stream: StreamId) -> Result<()> {
    // SAFETY: the stream is alive.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(raw_stream(stream)) })
}

/// What the driver calls for [`Driver::host`], on a thread of its own.
unsafe extern "C" fn run_host_function(data: *mut c_void) {
    // SAFETY: `data` is the box that `host` gave away, and this is called once.
    let function: Box<HostFunction> = unsafe { Box::from_raw(data.cast()) };
    function();
}

fn raw_stream(stream: StreamId) -> CUstream {
    stream.0 as CUstream
}

fn raw_event(event: EventId) -> CUevent {
    event.0 as CUevent
}

fn loaded(function: &Function) -> Result<&LoadedFunction> {
    function.downcast_ref().ok_or_else(|| Error::Launch {
        kernel: "a kernel of another device".into(),
        message: "it was not loaded by the CUDA driver".into(),
    })
}
