//! Kernels: source text in, a launchable function out, the same way on both devices.

mod args;
mod cache;
mod launch;
mod source;

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};

pub use args::{Arg, ByValue, IntoArg};
pub(crate) use args::{ArgType, Scalar};
pub use cache::cache_directory;
pub use launch::Grid;
pub use source::Source;

use crate::device::DeviceShared;
use crate::driver::Function;
use crate::graph::GraphKernel;
use crate::{Device, Error, Result, Stream, cuda, emulated};

/// What a kernel is compiled for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Architecture {
    /// An NVIDIA architecture by the compiler's name, as `sm_90a`; compiled by NVRTC, with no GPU needed.
    Sm(String),
    /// The emulated device; compiled by the machine's C++ compiler.
    Emulated,
}

impl From<Architecture> for String {
    fn from(architecture: Architecture) -> Self {
        architecture.to_string()
    }
}

impl From<String> for Architecture {
    fn from(name: String) -> Self {
        if name == "emulated" { Self::Emulated } else { Self::Sm(name) }
    }
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sm(name) => f.write_str(name),
            Self::Emulated => f.write_str("emulated"),
        }
    }
}

/// What one kernel takes of a multiprocessor, as the assembler reported it. All zero on the emulated device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// 32-bit registers a thread.
    pub registers: u32,
    /// Static shared memory, in bytes.
    pub shared_bytes: u32,
    /// Stack frame a thread, in bytes.
    pub stack_bytes: u32,
    /// Bytes stored to local memory because registers ran out.
    pub spill_stores: u32,
    /// Bytes loaded back.
    pub spill_loads: u32,
}

/// A compiled kernel source: a cubin, or a shared library for the emulated device.
#[derive(Debug, Clone)]
pub struct Binary {
    /// The source's name.
    pub name: String,
    /// What it was compiled for.
    pub architecture: Architecture,
    /// BLAKE3 of everything that went in.
    pub key: String,
    /// BLAKE3 of what came out.
    pub hash: String,
    /// Where it lies.
    pub path: PathBuf,
    /// Everything the compiler said, warnings too.
    pub log: String,
    /// Resources by kernel name; empty for the emulated device.
    pub resources: Vec<(String, Resources)>,
    /// Whether it came from the cache.
    pub cached: bool,
    /// Holds the folder it lies in where the cache cannot be written: that is removed with the last copy of this.
    pub folder: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

/// Compiles a source, or finds it in the cache. For an `sm_…` this needs NVRTC and no GPU.
pub fn compile(source: &Source, architecture: &Architecture) -> Result<Binary> {
    let _span = tracing::debug_span!("compile", kernel = source.name(), %architecture).entered();
    let includes = source.resolve()?;
    match architecture {
        Architecture::Sm(name) => {
            cache::find_or_build(source, &includes, architecture, &cuda::nvrtc::identity()?, |_| {
                cuda::nvrtc::compile(source, &includes, name)
            })
        }
        Architecture::Emulated => {
            cache::find_or_build(source, &includes, architecture, &emulated::compiler::version()?, |folder| {
                emulated::compiler::compile(source, &includes, folder)
            })
        }
    }
}

/// The options that [`compile`] gives to the compiler for a source, definitions included. Fails where the machine has no
/// such compiler.
pub fn compile_options(source: &Source, architecture: &Architecture) -> Result<Vec<String>> {
    match architecture {
        Architecture::Sm(name) => Ok(cuda::nvrtc::options(source, name)),
        Architecture::Emulated => {
            let defines = source.defines().iter().map(|(name, value)| format!("-D{name}={value}"));
            Ok(emulated::compiler::flags()?.into_iter().chain(defines).collect())
        }
    }
}

/// What a compiler hands to the cache.
pub(crate) struct Compiled {
    pub(crate) bytes: Vec<u8>,
    pub(crate) log: String,
    pub(crate) resources: Vec<(String, Resources)>,
}

/// One parameter of a kernel as the device knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) bytes: usize,
    /// Known to the emulated build only.
    pub(crate) type_: Option<ArgType>,
}

/// What a loaded kernel is.
#[derive(Debug, Clone)]
pub struct KernelInfo {
    /// Registers, shared memory, stack and spills.
    pub resources: Resources,
    /// Most threads a block of it may have.
    pub max_threads: u32,
    /// BLAKE3 of everything that went into the binary.
    pub key: String,
    /// BLAKE3 of the binary.
    pub hash: String,
    pub(crate) parameters: Vec<Parameter>,
}

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
    pub(crate) fn load(device: &Device, source: &Source, entry: &str) -> Result<Self> {
        let binary = compile(source, &device.properties().architecture)?;
        let (function, info) = device.driver().load(&binary, entry)?;
        let device = Arc::downgrade(&device.shared);
        Ok(Self { shared: Arc::new(KernelShared { device, name: entry.to_owned(), function, info }) })
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// What it takes and what it was made from.
    pub fn info(&self) -> &KernelInfo {
        &self.shared.info
    }

    /// Queues a launch. Arguments are checked against the kernel's real parameters first.
    ///
    /// What the kernel does wrong shows at the stream's next synchronisation, as on any GPU.
    pub fn launch(&self, stream: &Stream, grid: &Grid, arguments: &[Arg<'_>]) -> Result<()> {
        self.check(stream.device(), grid, arguments)?;
        let allocations = || arguments.iter().filter_map(Arg::allocation);
        for allocation in allocations() {
            allocation.visit(stream);
        }
        let driver = stream.device().driver();
        driver.launch(stream.id(), &self.shared.function, grid, arguments)?;
        if let Some(capture) = stream.capture_state() {
            let node = driver.capture_last_node(stream.id())?;
            capture.add_kernel(GraphKernel {
                name: self.shared.name.clone(),
                kernel: self.clone(),
                function: self.shared.function.clone(),
                grid: *grid,
                node,
                allocations: allocations().cloned().collect(),
            });
        }
        Ok(())
    }

    pub(crate) fn check(&self, device: &Device, grid: &Grid, arguments: &[Arg<'_>]) -> Result<()> {
        if !std::ptr::eq(self.shared.device.as_ptr(), Arc::as_ptr(&device.shared)) {
            let message = format!("it was loaded on another device than {}", device.properties().id);
            return Err(Error::Arguments { kernel: self.shared.name.clone(), message });
        }
        grid.check(&self.shared.name, device.properties(), &self.shared.info)?;
        args::check(&self.shared.name, &self.shared.info.parameters, arguments, device)
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({})", self.shared.name)
    }
}
