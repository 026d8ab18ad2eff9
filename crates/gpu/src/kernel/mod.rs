//! Kernels on a device: loaded once, launched with arguments that are checked against their parameters.

mod args;
mod launch;

use std::sync::{Arc, Weak};

pub use args::{Arg, ByValue, IntoArg};

use crate::device::DeviceShared;
use crate::driver::{Function, NodeId};
use crate::graph::{GraphKernel, Retained, kept};
use crate::types::{
    Binary, Grid, Image, KernelInfo, Parameter, ParameterShape, ParameterType, SuggestedBlock,
};
use crate::{Device, Error, Result, Stream};

/// A kernel loaded on one device. Cheap to clone.
#[derive(Clone)]
pub struct Kernel {
    shared: Arc<KernelShared>,
}

struct KernelShared {
    /// Weak, because the device keeps its kernels.
    device: Weak<DeviceShared>,
    name: String,
    function: Function,
    info: KernelInfo,
}

impl Kernel {
    /// Loads the kernel `entry` of what was compiled.
    pub(crate) fn load(device: &Device, binary: &Binary, entry: &str) -> Result<Self> {
        let (function, info) = device.driver().load(binary, entry)?;
        let device = Arc::downgrade(&device.shared);
        Ok(Self { shared: Arc::new(KernelShared { device, name: entry.to_owned(), function, info }) })
    }

    /// Loads a kernel that was compiled elsewhere.
    pub(crate) fn load_image(
        device: &Device,
        image: &Image,
        entry: &str,
        declared: &[ParameterType],
    ) -> Result<Self> {
        args::check_declared(entry, &image.parameter_bytes(entry)?, declared)?;
        let (function, info) = device.driver().load_image(image, entry)?;
        let device = Arc::downgrade(&device.shared);
        let name = entry.to_owned();
        Self { shared: Arc::new(KernelShared { device, name, function, info }) }.declare(declared)
    }

    /// The same kernel, whose arguments are checked against what is declared here, types too. For kernels of
    /// [`Source::plain`](crate::Source::plain), of which a card knows only how large each parameter is:
    /// without this, nothing tells that memory which the kernel writes was passed by `&`, which the runtime
    /// then takes for a read.
    pub fn declare(&self, declared: &[ParameterType]) -> Result<Self> {
        let KernelShared { device, name, function, info } = &*self.shared;
        let bytes: Vec<usize> = info.parameters.iter().map(|parameter| parameter.bytes).collect();
        args::check_declared(name, &bytes, declared)?;
        // What the device knows itself counts more.
        let parameters = info.parameters.iter().zip(declared).map(|(parameter, declared)| Parameter {
            bytes: parameter.bytes,
            type_: parameter.type_.or(Some(declared.type_)),
        });
        let info = KernelInfo { parameters: parameters.collect(), ..info.clone() };
        let (device, name, function) = (device.clone(), name.clone(), function.clone());
        Ok(Self { shared: Arc::new(KernelShared { device, name, function, info }) })
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its parameters, resources and origin.
    pub fn info(&self) -> &KernelInfo {
        &self.shared.info
    }

    /// Its parameters, as the emulated device knows them; on a card only sizes are.
    pub fn parameters(&self) -> Vec<ParameterShape> {
        self.shared.info.parameters.iter().map(Parameter::shape).collect()
    }

    /// Queues a launch. Arguments are checked against the kernel's real parameters first.
    ///
    /// What the kernel does wrong shows at the stream's next synchronisation, as on any GPU.
    pub fn launch(&self, stream: &Stream, grid: &Grid, arguments: &[Arg<'_>]) -> Result<()> {
        self.check(stream.device(), grid, arguments)?;
        #[cfg(feature = "testing")]
        if stream.device().faults().leaves_out_kernels() {
            return Ok(());
        }
        // A graph must keep the blocks even if what follows the launch fails.
        for (block, device_use) in arguments.iter().filter_map(Arg::pinned) {
            stream.retain_in_capture(|| Retained::Pinned(block.clone(), *device_use));
        }
        let driver = stream.device().driver();
        let pinned = arguments.iter().filter_map(Arg::pinned).cloned().collect();
        stream.queue(arguments.iter().filter_map(Arg::used), pinned, || {
            driver.launch(stream.id(), &self.shared.function, grid, &mut arguments.iter().map(Arg::bytes))
        })?;
        if let Some(capture) = stream.capture_state() {
            let kept = kept(arguments);
            let node = self.captured_node(stream).inspect_err(|_| {
                // The driver has the launch, and with it the addresses.
                for (allocation, access) in &kept {
                    capture.retain(Retained::Device(allocation.clone(), *access));
                }
            })?;
            capture.add_kernel(GraphKernel {
                name: self.shared.name.clone(),
                kernel: self.clone(),
                function: self.shared.function.clone(),
                grid: *grid,
                node,
                allocations: kept,
            });
        }
        Ok(())
    }

    fn captured_node(&self, stream: &Stream) -> Result<NodeId> {
        #[cfg(feature = "testing")]
        stream.device().faults().captured_node()?;
        stream.device().driver().capture_last_node(stream.id())
    }

    /// How many clusters of such a launch the device holds at once, those of a grid without clusters being
    /// its blocks. Other work on the device leaves room for fewer. A launch of clusters for which this is 0
    /// fails.
    pub fn max_active_clusters(&self, grid: &Grid) -> Result<u32> {
        let device = self.device()?;
        launch::check(grid, &self.shared.name, device.properties(), &self.shared.info)?;
        device.driver().max_active_clusters(&self.shared.function, grid)
    }

    /// How many blocks of `block_threads` threads and so many bytes of dynamic shared memory one
    /// multiprocessor holds at once (occupancy). Other work on the device leaves room for fewer.
    ///
    /// On a card by registers, shared memory and threads. The emulated device counts threads and shared
    /// memory alone, as Hopper does: 64 warps, 32 blocks, 228 KiB of which each block takes 1 KiB for itself.
    pub fn max_active_blocks(&self, block_threads: u32, dynamic_shared: u32) -> Result<u32> {
        let device = self.device()?;
        let grid = Grid::new([1; 3], [block_threads, 1, 1]).shared(dynamic_shared);
        launch::check(&grid, &self.shared.name, device.properties(), &self.shared.info)?;
        device.driver().max_active_blocks(&self.shared.function, block_threads, dynamic_shared)
    }

    /// The block size with which most threads of this kernel are on a multiprocessor at once, if each block
    /// has so many bytes of dynamic shared memory. It is about how full the device is, which is not always
    /// how fast the kernel is.
    pub fn suggested_block(&self, dynamic_shared: u32) -> Result<SuggestedBlock> {
        let device = self.device()?;
        let grid = Grid::new([1; 3], [1, 1, 1]).shared(dynamic_shared);
        launch::check(&grid, &self.shared.name, device.properties(), &self.shared.info)?;
        device.driver().suggested_block(&self.shared.function, &self.shared.info, dynamic_shared)
    }

    fn device(&self) -> Result<Device> {
        let device = self.shared.device.upgrade().map(|shared| Device { shared });
        device.ok_or_else(|| Error::Launch {
            kernel: self.shared.name.clone(),
            message: "its device is no longer open".into(),
        })
    }

    pub(crate) fn check(&self, device: &Device, grid: &Grid, arguments: &[Arg<'_>]) -> Result<()> {
        if !std::ptr::eq(self.shared.device.as_ptr(), Arc::as_ptr(&device.shared)) {
            let message = format!("it was loaded on another device than {}", device.properties().id);
            return Err(Error::Arguments { kernel: self.shared.name.clone(), message });
        }
        launch::check(grid, &self.shared.name, device.properties(), &self.shared.info)?;
        args::check(&self.shared.name, &self.shared.info.parameters, arguments, device)
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({})", self.shared.name)
    }
}
