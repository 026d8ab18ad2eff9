//! What a device must be able to do. Two implement it, [`crate::cuda`] and [`crate::emulated`]; the safe
//! types above own the handles and release each exactly once.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::types::{
    Binary, Clocks, DeviceProperties, Grid, Image, KernelInfo, Priority, Reach, SuggestedBlock, TensorSpec,
    TensorWords,
};

macro_rules! handle {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) struct $name(pub(crate) u64);
    )*};
}

handle! {
    /// A stream of one driver.
    StreamId;
    /// An event of one driver.
    EventId;
    /// An instantiated graph of one driver.
    GraphId;
    /// A node of a graph.
    NodeId;
    /// A device address.
    Pointer;
}

/// How host memory given to a copy behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostMemory {
    /// Ordinary memory: valid only until the call returns.
    Pageable,
    /// Page-locked memory: stays valid until the stream has passed the copy.
    Pinned,
}

/// Both ends of a copy in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyEnds {
    OnDevice { to: Pointer, from: Pointer },
    ToDevice { to: Pointer, from: *const u8 },
    ToHost { to: *mut u8, from: Pointer },
}

/// A kernel loaded on a device. The driver that made it knows what is inside.
pub(crate) type Function = Arc<dyn Any + Send + Sync>;

/// The bytes of each argument of a launch, in the order of the kernel's parameters.
pub(crate) type Arguments<'a, 'b> = &'a mut dyn ExactSizeIterator<Item = &'b [u8]>;

/// Code of the program that a stream runs, once. It does not panic.
pub(crate) type HostFunction = Box<dyn FnOnce() + Send>;

/// Whatever keeps a stream or memory of another user of the device alive.
pub(crate) type Owner = Box<dyn Any + Send + Sync>;

/// What the device has left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryInfo {
    /// Bytes that could be allocated.
    pub(crate) free: u64,
}

/// Who makes a device go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It works by itself.
    Own,
    /// It did one thing, because somebody asked.
    Asked,
}

/// The one seam between the safe layer and a device.
pub(crate) trait Driver: Send + Sync {
    fn properties(&self) -> &DeviceProperties;
    fn memory(&self) -> Result<MemoryInfo>;
    /// A name that is defined in all kernels of this device, and as what.
    fn definition(&self) -> Option<(&'static str, &'static str)> {
        None
    }
    /// Current clocks in MHz and temperature, where they can be read.
    fn clocks(&self) -> Option<Clocks>;

    /// Makes the device the calling thread's, for a library called `what` that works on the thread's device.
    #[cfg(feature = "blas")]
    fn enter(&self, what: &str) -> Result<()>;
    /// Waits for every stream of the device, those of other users of its context too.
    fn synchronize(&self) -> Result<()>;
    /// Gives back what of the level-2 cache is set aside for data that persists, and sets none aside any
    /// more.
    fn disable_persisting_cache(&self) -> Result<()>;

    fn stream_create(&self, priority: Priority) -> Result<StreamId>;
    fn stream_destroy(&self, stream: StreamId);
    /// Whether a handle from elsewhere is a stream of this device, as far as that can be told.
    fn stream_is_known(&self, stream: StreamId) -> Result<bool>;
    fn stream_synchronize(&self, stream: StreamId) -> Result<()>;
    /// Work queued on `stream` from now on runs after what `event` recorded.
    fn stream_wait(&self, stream: StreamId, event: EventId) -> Result<()>;

    /// Runs `function` on some thread when everything queued before is done, and what comes after when it has
    /// returned.
    fn host(&self, stream: StreamId, function: HostFunction) -> Result<()>;

    fn event_create(&self) -> Result<EventId>;
    fn event_destroy(&self, event: EventId);
    fn event_record(&self, event: EventId, stream: StreamId) -> Result<()>;
    fn event_is_complete(&self, event: EventId) -> Result<bool>;
    fn event_synchronize(&self, event: EventId) -> Result<()>;
    /// Lets the device go on, where it does so only when somebody waits. Whether it works by itself.
    fn advance(&self) -> Result<Progress>;
    fn event_elapsed(&self, start: EventId, end: EventId) -> Result<Duration>;

    /// Memory in the order of `stream`. `Ok(None)`: the device has no room.
    fn allocate(&self, stream: StreamId, bytes: usize) -> Result<Option<Pointer>>;
    /// Lets go of memory once `stream` has passed this point.
    fn free(&self, stream: StreamId, pointer: Pointer);
    /// Whether an address from elsewhere has so many bytes of this device behind it, as far as that can be
    /// told.
    fn memory_is_known(&self, pointer: Pointer, bytes: usize) -> Result<bool>;
    /// Page-locked host memory. `Ok(None)`: the machine has no room.
    fn host_allocate(&self, bytes: usize) -> Result<Option<*mut u8>>;
    /// # Safety
    /// `pointer` came from `host_allocate` with the same size and no queued copy uses it.
    unsafe fn host_free(&self, pointer: *mut u8, bytes: usize);

    /// # Safety
    /// `source` is readable for `bytes`, as long as `host` says.
    unsafe fn copy_to_device(
        &self,
        stream: StreamId,
        destination: Pointer,
        source: *const u8,
        bytes: usize,
        host: HostMemory,
    ) -> Result<()>;
    /// Pageable destinations are complete when this returns; pinned ones when the stream has passed the copy.
    ///
    /// # Safety
    /// `destination` is writable for `bytes`, as long as `host` says.
    unsafe fn copy_to_host(
        &self,
        stream: StreamId,
        destination: *mut u8,
        source: Pointer,
        bytes: usize,
        host: HostMemory,
    ) -> Result<()>;
    fn copy_on_device(
        &self,
        stream: StreamId,
        destination: Pointer,
        source: Pointer,
        bytes: usize,
    ) -> Result<()>;
    /// This driver itself, for what two of them do together.
    fn as_any(&self) -> &dyn Any;
    /// Another hold on the same device, the one with that number of so many.
    fn share(&self, number: usize, of: usize) -> Result<Box<dyn Driver>>;
    /// What this device can do with the memory and the events of another.
    fn reach(&self, other: &dyn Driver) -> Result<Reach>;
    /// Kernels of this device may load and store the other's memory from now on.
    fn enable_peer_access(&self, other: &dyn Driver) -> Result<()>;
    /// Copies from the memory of another device in the order of `stream`, which is this one's.
    fn copy_from_peer(
        &self,
        stream: StreamId,
        destination: Pointer,
        other: &dyn Driver,
        source: Pointer,
        bytes: usize,
    ) -> Result<()>;
    /// Repeats `pattern` (1, 2 or 4 bytes long) `count` times.
    fn fill(&self, stream: StreamId, destination: Pointer, pattern: &[u8], count: usize) -> Result<()>;

    /// Loads a compiled kernel and reads what it is.
    fn load(&self, binary: &Binary, entry: &str) -> Result<(Function, KernelInfo)>;
    /// Loads a kernel that was compiled elsewhere.
    fn load_image(&self, image: &Image, entry: &str) -> Result<(Function, KernelInfo)>;
    /// `arguments` have been checked against the kernel's parameters.
    fn launch(
        &self,
        stream: StreamId,
        function: &Function,
        grid: &Grid,
        arguments: Arguments<'_, '_>,
    ) -> Result<()>;

    /// Blocks of such a launch that one multiprocessor holds at once; 0 if it never holds one.
    fn max_active_blocks(&self, function: &Function, threads: u32, shared_bytes: u32) -> Result<u32>;
    /// The block with which most threads of the kernel are on a multiprocessor at once.
    fn suggested_block(
        &self,
        function: &Function,
        info: &KernelInfo,
        shared_bytes: u32,
    ) -> Result<SuggestedBlock>;
    /// Clusters of such a launch that the device holds at once; 0 if it never holds one.
    fn max_active_clusters(&self, function: &Function, grid: &Grid) -> Result<u32>;

    /// A tensor in device memory as bulk copies know it. Its layout was checked.
    fn tensor_map(&self, spec: &TensorSpec<'_>) -> Result<TensorWords>;

    fn capture_begin(&self, stream: StreamId) -> Result<()>;
    /// The node that the last launch or copy on `stream` added to the capture.
    fn capture_last_node(&self, stream: StreamId) -> Result<NodeId>;
    /// Adds a graph, as it is now, to the capture of `stream`.
    fn capture_child(&self, stream: StreamId, graph: GraphId) -> Result<NodeId>;
    fn capture_end(&self, stream: StreamId) -> Result<GraphId>;
    /// Ends a broken capture and throws away what it recorded; the streams of it are usable again.
    fn capture_abort(&self, stream: StreamId);

    fn graph_launch(&self, graph: GraphId, stream: StreamId) -> Result<()>;
    fn graph_update(
        &self,
        graph: GraphId,
        node: NodeId,
        function: &Function,
        grid: &Grid,
        arguments: Arguments<'_, '_>,
    ) -> Result<()>;
    /// Gives a copy other ends, of the same kind, and another length.
    ///
    /// # Safety
    /// What is of the host is page-locked, and stays valid as long as the graph has it.
    unsafe fn graph_update_copy(
        &self,
        graph: GraphId,
        node: NodeId,
        ends: CopyEnds,
        bytes: usize,
    ) -> Result<()>;
    /// Puts `child`, as it is now, where another graph of the same shape was.
    fn graph_update_child(&self, graph: GraphId, node: NodeId, child: GraphId) -> Result<()>;
    fn graph_destroy(&self, graph: GraphId);
}
