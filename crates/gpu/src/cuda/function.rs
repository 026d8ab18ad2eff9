//! Kernels on the device: loading a cubin, and launching or updating what is in it.

use std::cell::RefCell;
use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUfunction, CUfunction_attribute as Attribute, CUgraphExec, CUgraphNode,
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUmodule, CUresult,
    CUstream,
};

use crate::cuda::context::Context;
use crate::cuda::cubin;
use crate::cuda::status::{check, check_release, failure};
use crate::driver::Arguments;
use crate::types::{Binary, Grid, KernelInfo, Resources, SuggestedBlock};
use crate::{Error, Result};

/// A cubin and where it came from.
pub(super) struct Cubin<'a> {
    name: &'a str,
    key: String,
    hash: String,
    resources: &'a [(String, Resources)],
    bytes: Vec<u8>,
}

impl<'a> Cubin<'a> {
    /// What was compiled here.
    pub(super) fn of(binary: &'a Binary, bytes: Vec<u8>) -> Self {
        let (key, hash) = (binary.key.clone(), binary.hash.clone());
        Self { name: &binary.name, key, hash, resources: &binary.resources, bytes }
    }

    /// What somebody else compiled. Nobody knows its spills.
    pub(super) fn from_elsewhere(name: &'a str, key: String, bytes: Vec<u8>) -> Self {
        let hash = blake3::hash(&bytes).to_hex().to_string();
        Self { name, key, hash, resources: &[], bytes }
    }
}

/// A kernel and the module it lives in, which is unloaded with it.
pub(super) struct LoadedFunction {
    _module: Module,
    raw: CUfunction,
    /// Dynamic shared memory a launch may ask for now, in bytes. 48 KB less static memory until more is
    /// asked.
    dynamic_limit: AtomicU32,
    /// What the limit can be raised to.
    dynamic_ceiling: u32,
    /// Whether it was allowed clusters that not every device takes.
    wide_clusters: AtomicBool,
    /// Whether it asks for as much shared memory as a multiprocessor has.
    side_by_side: AtomicBool,
}

// SAFETY: modules and functions belong to the context, not to a thread; the driver's calls on them may come
// from any.
unsafe impl Send for LoadedFunction {}
// SAFETY: as above; the only state kept here is atomic.
unsafe impl Sync for LoadedFunction {}

struct Module {
    context: Arc<Context>,
    raw: CUmodule,
}

impl LoadedFunction {
    /// Loads the kernel `entry` of a cubin and reads what the driver knows of it. The caller has entered the
    /// context.
    pub(super) fn load(
        context: &Arc<Context>,
        cubin: &Cubin<'_>,
        entry: &str,
        shared_memory_per_block: u32,
    ) -> Result<(Self, KernelInfo)> {
        let module = Module::load(context, cubin)?;
        let raw = module.function(cubin, entry)?;
        // Now, and not at the first launch: loading can wait for kernels that run, which may wait for that
        // launch. SAFETY: the function belongs to the module above.
        check("cuFuncLoad", unsafe { sys::cuFuncLoad(raw) })?;
        let info = KernelInfo {
            resources: resources(raw, cubin, entry)?,
            max_threads: attribute(raw, Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            key: cubin.key.clone(),
            hash: cubin.hash.clone(),
            parameters: cubin::parameters(&cubin.bytes, cubin.name, entry)?,
        };
        let limit = attribute(raw, Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?;
        let dynamic_ceiling = shared_memory_per_block.saturating_sub(info.resources.shared_bytes);
        let dynamic_limit = AtomicU32::new(limit);
        let [wide_clusters, side_by_side] = [(); 2].map(|()| AtomicBool::new(false));
        Ok((Self { _module: module, raw, dynamic_limit, dynamic_ceiling, wide_clusters, side_by_side }, info))
    }

    /// Queues a launch.
    pub(super) fn launch(&self, stream: CUstream, grid: &Grid, arguments: Arguments<'_, '_>) -> Result<()> {
        self.prepare(grid)?;
        let mut attributes = launch_attributes(grid);
        let config = launch_config(grid, stream, &mut attributes);
        let status = with_packed(arguments, |parameters| {
            // SAFETY: the arguments were checked against the kernel's parameters in number and size, and are
            // copied before the call returns; attributes and configuration live until then.
            unsafe { sys::cuLaunchKernelEx(&config, self.raw, parameters.as_mut_ptr(), ptr::null_mut()) }
        });
        check("cuLaunchKernelEx", status)
    }

    /// Blocks of so many threads that a multiprocessor holds at once.
    pub(super) fn max_active_blocks(&self, threads: u32, shared_bytes: u32) -> Result<u32> {
        self.allow_shared_memory(shared_bytes)?;
        let (mut count, threads) = (0, c_int::try_from(threads).unwrap_or(c_int::MAX));
        // SAFETY: the function is loaded, and `count` is written by the call.
        let status = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut count,
                self.raw,
                threads,
                shared_bytes as usize,
            )
        };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", status)?;
        Ok(count.try_into().unwrap_or(0))
    }

    /// The block with which most threads are on a multiprocessor at once.
    pub(super) fn suggested_block(&self, shared_bytes: u32) -> Result<SuggestedBlock> {
        self.allow_shared_memory(shared_bytes)?;
        let (mut blocks, mut threads) = (0, 0);
        // SAFETY: the function is loaded, both numbers are written by the call, and shared memory is the same
        // for all blocks, so that no function is asked for it.
        let status = unsafe {
            sys::cuOccupancyMaxPotentialBlockSize(
                &mut blocks,
                &mut threads,
                self.raw,
                None,
                shared_bytes as usize,
                0,
            )
        };
        check("cuOccupancyMaxPotentialBlockSize", status)?;
        let count = |count: c_int| count.try_into().unwrap_or(0);
        Ok(SuggestedBlock { threads: count(threads), least_blocks: count(blocks) })
    }

    /// Clusters of such a launch that the device holds at once.
    pub(super) fn max_active_clusters(&self, grid: &Grid) -> Result<u32> {
        self.prepare(grid)?;
        let grid = Grid { cluster: Some(grid.cluster.unwrap_or([1; 3])), ..*grid };
        let mut attributes = launch_attributes(&grid);
        let config = launch_config(&grid, ptr::null_mut(), &mut attributes);
        let mut count = 0;
        // SAFETY: the function is loaded, attributes and configuration live until the call returns, which
        // writes `count`.
        let status = unsafe { sys::cuOccupancyMaxActiveClusters(&mut count, self.raw, &config) };
        check("cuOccupancyMaxActiveClusters", status)?;
        Ok(count.try_into().unwrap_or(0))
    }

    /// Allows what the grid asks for beyond what every kernel may have.
    fn prepare(&self, grid: &Grid) -> Result<()> {
        self.allow_shared_memory(grid.shared_bytes)?;
        let blocks: u64 = grid.cluster.map_or(1, |cluster| cluster.iter().map(|&n| u64::from(n)).product());
        if blocks > PORTABLE_CLUSTER_BLOCKS {
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            self.set_once(&self.wide_clusters, attribute, 1)?;
        }
        if grid.side_by_side {
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
            self.set_once(&self.side_by_side, attribute, ALL_SHARED)?;
        }
        Ok(())
    }

    fn set_once(&self, done: &AtomicBool, attribute: Attribute, value: c_int) -> Result<()> {
        if !done.load(Ordering::Acquire) {
            // SAFETY: the function is loaded.
            check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(self.raw, attribute, value) })?;
            done.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Gives this kernel's node of an executable graph new arguments. Cluster and cooperation stay as
    /// captured.
    pub(super) fn update_node(
        &self,
        graph: CUgraphExec,
        node: CUgraphNode,
        grid: &Grid,
        arguments: Arguments<'_, '_>,
    ) -> Result<()> {
        let mut node_parameters = CUDA_KERNEL_NODE_PARAMS {
            func: self.raw,
            gridDimX: grid.blocks[0],
            gridDimY: grid.blocks[1],
            gridDimZ: grid.blocks[2],
            blockDimX: grid.threads[0],
            blockDimY: grid.threads[1],
            blockDimZ: grid.threads[2],
            sharedMemBytes: grid.shared_bytes,
            kernelParams: ptr::null_mut(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        };
        with_packed(arguments, |parameters| {
            node_parameters.kernelParams = parameters.as_mut_ptr();
            // SAFETY: the node is one of the graph that `graph` was made from, which is kept alive beside it;
            // the arguments were checked against the kernel's parameters and are copied before the call
            // returns.
            let status = unsafe { sys::cuGraphExecKernelNodeSetParams_v2(graph, node, &node_parameters) };
            check("cuGraphExecKernelNodeSetParams", status)?;
            // In the template too: a capture that takes this graph as a child copies that.
            // SAFETY: as above.
            let status = unsafe { sys::cuGraphKernelNodeSetParams_v2(node, &node_parameters) };
            check("cuGraphKernelNodeSetParams", status)
        })
    }

    /// Raises the limit if `bytes` is beyond it, at once to all there is: threads that race then set the same
    /// value.
    fn allow_shared_memory(&self, bytes: u32) -> Result<()> {
        if bytes <= self.dynamic_limit.load(Ordering::Acquire) {
            return Ok(());
        }
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded.
        let status = unsafe { sys::cuFuncSetAttribute(self.raw, attribute, self.dynamic_ceiling as c_int) };
        check("cuFuncSetAttribute", status)?;
        self.dynamic_limit.fetch_max(self.dynamic_ceiling, Ordering::Release);
        Ok(())
    }
}

impl Module {
    fn load(context: &Arc<Context>, cubin: &Cubin<'_>) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the bytes are a whole cubin, as NVRTC wrote it and the cache verified it, as the driver
        // linked it, or as far as its sections could be read; the call writes `raw`.
        let status = unsafe { sys::cuModuleLoadData(&mut raw, cubin.bytes.as_ptr().cast()) };
        check("cuModuleLoadData", status)
            .map_err(|error| Error::Load { kernel: cubin.name.to_owned(), reason: error.to_string() })?;
        Ok(Self { context: context.clone(), raw })
    }

    fn function(&self, cubin: &Cubin<'_>, entry: &str) -> Result<CUfunction> {
        let missing = || Error::NoEntry { kernel: cubin.name.to_owned(), entry: entry.to_owned() };
        let name = CString::new(entry).map_err(|_| missing())?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, the name ends in NUL, and `function` is written by the call.
        match unsafe { sys::cuModuleGetFunction(&mut function, self.raw, name.as_ptr()) } {
            CUresult::CUDA_SUCCESS => Ok(function),
            CUresult::CUDA_ERROR_NOT_FOUND => Err(missing()),
            status => Err(failure("cuModuleGetFunction", status)),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        match self.context.enter() {
            // SAFETY: loaded once, unloaded once, and its functions go with the struct that holds it.
            Ok(()) => check_release("cuModuleUnload", unsafe { sys::cuModuleUnload(self.raw) }),
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

/// What the driver says, and the spills, which only the assembler's log tells.
fn resources(function: CUfunction, cubin: &Cubin<'_>, entry: &str) -> Result<Resources> {
    let logged = cubin.resources.iter().find(|(name, _)| name == entry);
    let logged = logged.map(|(_, resources)| *resources).unwrap_or_default();
    Ok(Resources {
        registers: attribute(function, Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
        shared_bytes: attribute(function, Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        stack_bytes: attribute(function, Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        ..logged
    })
}

fn attribute(function: CUfunction, attribute: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the function is loaded, and `value` is written by the call.
    check("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut value, attribute, function) })?;
    Ok(value.try_into().unwrap_or(0))
}

/// The part of a multiprocessor's memory that is shared memory where kernels run side by side, in percent.
const ALL_SHARED: c_int = 100;
/// Blocks of a cluster that a kernel may have without asking for more.
const PORTABLE_CLUSTER_BLOCKS: u64 = 8;

fn launch_config(grid: &Grid, stream: CUstream, attributes: &mut [CUlaunchAttribute]) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: grid.blocks[0],
        gridDimY: grid.blocks[1],
        gridDimZ: grid.blocks[2],
        blockDimX: grid.threads[0],
        blockDimY: grid.threads[1],
        blockDimZ: grid.threads[2],
        sharedMemBytes: grid.shared_bytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    }
}

/// Whatever of the grid does not fit into the launch's fixed fields.
fn launch_attributes(grid: &Grid) -> Vec<CUlaunchAttribute> {
    let mut attributes = Vec::new();
    if let Some([x, y, z]) = grid.cluster {
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        value.clusterDim.x = x;
        value.clusterDim.y = y;
        value.clusterDim.z = z;
        let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes.push(CUlaunchAttribute { id, pad: [0; 4], value });
    }
    if grid.cooperative {
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        value.cooperative = 1;
        let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes.push(CUlaunchAttribute { id, pad: [0; 4], value });
    }
    if grid.early {
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        value.programmaticStreamSerializationAllowed = 1;
        let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes.push(CUlaunchAttribute { id, pad: [0; 4], value });
    }
    attributes
}

thread_local! {
    /// Room for the arguments of a launch, which the next one uses again.
    static PACKED: RefCell<PackedArguments> = const { RefCell::new(PackedArguments::new()) };
}

/// What `launch` gives for pointers to the arguments.
fn with_packed<R>(arguments: Arguments<'_, '_>, launch: impl FnOnce(&mut [*mut c_void]) -> R) -> R {
    PACKED.with_borrow_mut(|packed| {
        let launched = launch(packed.fill(arguments));
        packed.wipe();
        launched
    })
}

/// The arguments' bytes, each aligned to 16 bytes, and a pointer to each.
struct PackedArguments {
    storage: Vec<u128>,
    pointers: Vec<*mut c_void>,
}

impl PackedArguments {
    const fn new() -> Self {
        Self { storage: Vec::new(), pointers: Vec::new() }
    }

    /// Overwrites the bytes: the driver has copied them, and some of them may be keys.
    fn wipe(&mut self) {
        self.storage.fill(0);
        std::hint::black_box(&self.storage);
    }

    /// Replaces what is there by `arguments`: pointers to each, valid until the next time.
    fn fill(&mut self, arguments: Arguments<'_, '_>) -> &mut [*mut c_void] {
        const CELL: usize = size_of::<u128>();
        self.storage.clear();
        self.pointers.clear();
        for bytes in arguments {
            let first = self.storage.len();
            self.storage.resize(first + bytes.len().div_ceil(CELL), 0);
            bytemuck::cast_slice_mut(&mut self.storage[first..])[..bytes.len()].copy_from_slice(bytes);
            // A place in the storage, until that no longer grows.
            self.pointers.push(ptr::without_provenance_mut(first));
        }
        let base = self.storage.as_mut_ptr();
        for pointer in &mut self.pointers {
            *pointer = base.wrapping_add(pointer.addr()).cast();
        }
        &mut self.pointers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arg, ByValue, args};

    #[test]
    fn packed_arguments_are_aligned_and_keep_their_bytes() {
        let odd = [7u8; 19];
        let arguments = args![1.5f32, ByValue(&odd), 0x0123_4567_89ab_cdefu64];
        let mut packed = PackedArguments::new();
        // Once more than needed: what was there before leaves no trace.
        packed.fill(&mut arguments.iter().map(Arg::bytes));
        let pointers = packed.fill(&mut arguments.iter().map(Arg::bytes));
        assert_eq!(pointers.len(), 3);
        for (pointer, argument) in pointers.iter().zip(&arguments) {
            assert_eq!(*pointer as usize % 16, 0);
            // SAFETY: each pointer is to as many bytes as the argument has, inside the packed storage.
            let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), argument.bytes().len()) };
            assert_eq!(bytes, argument.bytes());
        }
    }

    #[test]
    fn a_kernel_without_parameters_packs_nothing() {
        assert!(PackedArguments::new().fill(&mut std::iter::empty()).is_empty());
    }

    #[test]
    fn an_early_start_becomes_an_attribute() {
        let early = launch_attributes(&Grid::new([4, 1, 1], [32, 1, 1]).early());
        assert_eq!(early.len(), 1);
        assert_eq!(early[0].id, CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
        // SAFETY: the value was written through this field.
        assert_eq!(unsafe { early[0].value.programmaticStreamSerializationAllowed }, 1);
    }

    #[test]
    fn clusters_and_cooperation_become_attributes() {
        let plain = Grid::new([4, 1, 1], [32, 1, 1]);
        assert!(launch_attributes(&plain).is_empty());
        let both = launch_attributes(&plain.cluster([2, 1, 1]).cooperative());
        let ids: Vec<_> = both.iter().map(|attribute| attribute.id).collect();
        assert_eq!(
            ids,
            [
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            ]
        );
        // SAFETY: the value was written through this field.
        let cluster = unsafe { both[0].value.clusterDim };
        assert_eq!([cluster.x, cluster.y, cluster.z], [2, 1, 1]);
        // SAFETY: the value was written through this field.
        assert_eq!(unsafe { both[1].value.cooperative }, 1);
    }
}
