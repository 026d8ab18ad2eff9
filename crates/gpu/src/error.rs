//! One error type for the whole runtime. Every variant is a sentence that names what was given and the way
//! out.

use std::path::PathBuf;

use crate::types::{Fault, class_of};

/// The runtime's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors between a program and a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is none that [`Device::open`](crate::Device::open) knows.
    #[error("unknown device '{given}': use auto, cuda, cuda:N or emulated")]
    UnknownDevice {
        /// The name as the caller wrote it.
        given: String,
    },
    /// The name is none that [`Target::open`](crate::Target::open) knows.
    #[error("unknown device '{given}': use auto, cpu, cuda, cuda:N or emulated")]
    UnknownTarget {
        /// The name as the caller wrote it.
        given: String,
    },
    /// Several devices were named where one is used.
    #[error("'{given}' names several devices, and this runs on one: use cuda, cuda:N or emulated")]
    SeveralDevices {
        /// The name as the caller wrote it.
        given: String,
    },
    /// An environment variable holds what it cannot.
    #[error("the environment variable {variable} is '{given}': {wanted} is wanted, or unset it")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// The value that was found.
        given: String,
        /// The values that are allowed.
        wanted: &'static str,
    },
    /// There is no CUDA device that can be used.
    #[error("no CUDA device: {reason}")]
    NoCuda {
        /// Why: no driver library, no card, a driver that is too old.
        reason: String,
    },
    /// The machine has CUDA devices, but not this one.
    #[error("no device cuda:{ordinal}: this machine has {count} CUDA device(s), numbered from 0")]
    NoSuchOrdinal {
        /// The number asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The byte budget or the card has no room.
    #[error(
        "out of device memory: asked for {asked} bytes, {held} held by this device's buffers, {free} free \
         (budget {limit}); free buffers, raise the budget, or make the job smaller"
    )]
    OutOfMemory {
        /// Bytes of the refused allocation.
        asked: u64,
        /// Bytes the program holds on this device.
        held: u64,
        /// Bytes that could still be had.
        free: u64,
        /// The budget in force.
        limit: u64,
    },
    /// Page-locked host memory could not be had.
    #[error(
        "out of pinned memory: asked for {asked} bytes, the pool holds {held} of at most {limit}, and {}",
        who_refused(*.asked, *.held, *.limit)
    )]
    OutOfPinnedMemory {
        /// Bytes of the refused block.
        asked: u64,
        /// Bytes the pool holds.
        held: u64,
        /// The pool's bound.
        limit: u64,
    },
    /// The compiler refused the kernel; its whole log is here.
    #[error("kernel '{kernel}' does not compile with {compiler}:\n{log}")]
    Compile {
        /// The source's name.
        kernel: String,
        /// Which compiler.
        compiler: String,
        /// Everything it said.
        log: String,
    },
    /// An `#include` that neither the source nor the portable header provides.
    #[error(
        "kernel '{kernel}' includes \"{include}\", which its source does not provide: add it with Source::include"
    )]
    MissingInclude {
        /// The source's name.
        kernel: String,
        /// The path in the directive.
        include: String,
    },
    /// No C++ compiler for the emulated device.
    #[error(
        "the emulated device needs a C++17 compiler and '{command}' could not be run ({reason}): \
         install g++ or clang++, or name one in the environment variable CXX"
    )]
    NoCompiler {
        /// The command tried.
        command: String,
        /// Why it failed.
        reason: String,
    },
    /// NVRTC is not on this machine.
    #[error(
        "NVRTC was not found ({reason}): install the CUDA toolkit or the PyPI package nvidia-cuda-nvrtc, \
         and name its library folder in GATEWORK_CUDA_LIBRARIES or LD_LIBRARY_PATH"
    )]
    NoNvrtc {
        /// The attempts, and why each failed.
        reason: String,
    },
    /// A CUDA command-line tool is missing.
    #[error(
        "'{tool}' was not found: install the CUDA toolkit and put its bin folder on PATH or in GATEWORK_CUDA_TOOLS"
    )]
    NoTool {
        /// `cuobjdump`, `nvdisasm`, `ncu` or `compute-sanitizer`.
        tool: String,
    },
    /// The binary has no kernel of that name.
    #[error("kernel '{kernel}' has no entry '{entry}': is it defined with GW_KERNEL({entry})?")]
    NoEntry {
        /// The source's name.
        kernel: String,
        /// The name asked for.
        entry: String,
    },
    /// The argument list is not the kernel's.
    #[error("kernel '{kernel}': {message}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// The difference, as a sentence.
        message: String,
    },
    /// A tensor map of what the device does not take.
    #[error("no tensor map: {message}")]
    TensorMap {
        /// The reason, as a sentence.
        message: String,
    },
    /// The grid is not one the device can launch.
    #[error("kernel '{kernel}' cannot be launched: {message}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// Which limit was crossed.
        message: String,
    },
    /// Two lengths that must agree do not.
    #[error("{call}: {message}")]
    Length {
        /// The runtime's call.
        call: &'static str,
        /// Which lengths.
        message: String,
    },
    /// A capture broke; the stream is usable again.
    #[error("stream capture was broken by {call}: {reason}")]
    Capture {
        /// The call that broke it.
        call: String,
        /// Why it is not allowed there.
        reason: String,
    },
    /// A graph was used in a way it cannot be.
    #[error("graph: {message}")]
    Graph {
        /// The reason, as a sentence.
        message: String,
    },
    /// Two objects of different devices met.
    #[error("{call}: the objects belong to different devices ({left} and {right})")]
    ForeignDevice {
        /// The runtime's call.
        call: &'static str,
        /// One device.
        left: String,
        /// The other.
        right: String,
    },
    /// Two devices that cannot reach each other met.
    #[error(
        "{call}: no copy and no event leads from {right} to {left}; open devices that work together at once, with \
         Device::open_all or Device::split"
    )]
    OutOfReach {
        /// The runtime's call.
        call: &'static str,
        /// One device.
        left: String,
        /// The other.
        right: String,
    },
    /// A rank of a `Fabric` let the others down. The fabric cannot be used any more: every rank gets this
    /// error from now on.
    #[error("the fabric is lost in {call}: rank {rank} {what}")]
    Peer {
        /// Who.
        rank: usize,
        /// The operation.
        call: &'static str,
        /// The misuse, as a sentence.
        what: String,
    },
    /// NCCL cannot be used.
    #[error("NCCL cannot be used: {reason}")]
    Nccl {
        /// Why.
        reason: String,
    },
    /// A handle or an address from elsewhere that is none of the device's.
    #[error("{call}: {message}")]
    Foreign {
        /// The runtime's call.
        call: &'static str,
        /// The reason, as a sentence.
        message: String,
    },
    /// cuBLASLt is not on this machine.
    #[error(
        "cuBLASLt was not found ({reason}): install the CUDA toolkit or the PyPI package nvidia-cublas, \
         and name its library folder in GATEWORK_CUDA_LIBRARIES or LD_LIBRARY_PATH"
    )]
    NoBlas {
        /// The attempts, and why each failed.
        reason: String,
    },
    /// cuBLASLt refused a product.
    #[error("blas: {message}")]
    Blas {
        /// The library's message.
        message: String,
    },
    /// The emulated device cannot do it.
    #[error("{what} runs on a card only: open the device 'cuda', not 'emulated'")]
    NeedsCard {
        /// The request.
        what: String,
    },
    /// A function of the program that a stream ran, see [`Stream::host`](crate::Stream::host).
    #[error("host function: {message}")]
    HostFunction {
        /// That it panicked, with its words, or what it may not do.
        message: String,
    },
    /// The emulated device stopped a kernel.
    #[error(transparent)]
    Fault(#[from] Box<Fault>),
    /// The CUDA driver refused a call.
    #[error("CUDA {call} failed with {code}: {message}")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// Its code by name.
        code: String,
        /// The driver's own words.
        message: String,
    },
    /// A file of the kernel cache or a library could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A compiled kernel could not be loaded.
    #[error("kernel '{kernel}' was compiled but could not be loaded: {reason}")]
    Load {
        /// The kernel.
        kernel: String,
        /// The loader's message.
        reason: String,
    },
}

/// Who refused a block of page-locked memory, the bound or the system, and what to do about it.
fn who_refused(asked: u64, held: u64, limit: u64) -> &'static str {
    let fits = class_of(asked).and_then(|class| held.checked_add(class)).is_some_and(|held| held <= limit);
    if fits {
        "the system locked no more pages: raise what this process may lock or hold (ulimit -l, the container's \
         memory), or make the job smaller"
    } else {
        "that bound refused it: raise it with PinnedPool::set_limit, or make the job smaller"
    }
}
