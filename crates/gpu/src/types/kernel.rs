//! What a compiled kernel is, as every device tells it.

use std::any::TypeId;
use std::path::PathBuf;
use std::sync::Arc;

use bytemuck::Pod;
use serde::{Deserialize, Serialize};

use crate::abi::Scalar;

/// The architecture that a kernel is compiled for.
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

/// The resources of one kernel, as the assembler reported them. All zero on the emulated device.
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
    /// The architecture that it was compiled for.
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
    /// Holds the folder it lies in where the cache cannot be written: that is removed with the last copy of
    /// this.
    pub folder: Option<Arc<dyn std::any::Any + Send + Sync>>,
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

/// What a kernel that was written elsewhere takes, as the program declares it: in PTX and in a cubin only
/// sizes are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterType {
    pub(crate) bytes: usize,
    pub(crate) type_: ArgType,
}

impl ParameterType {
    /// `const T*`: memory that the kernel reads, and never writes.
    pub fn read<T: Pod>() -> Self {
        Self::pointer::<T>(false)
    }

    /// `T*`: memory that the kernel may write. A launch takes it as `&mut`.
    pub fn write<T: Pod>() -> Self {
        Self::pointer::<T>(true)
    }

    /// A scalar, or a struct by value.
    pub fn value<T: Pod>() -> Self {
        Self { bytes: size_of::<T>(), type_: ArgType::Value(Scalar::of::<T>()) }
    }

    fn pointer<T: Pod>(mutable: bool) -> Self {
        let (element, element_bytes) = (Scalar::of::<T>(), size_of::<T>());
        Self { bytes: size_of::<u64>(), type_: ArgType::Pointer { element, element_bytes, mutable } }
    }
}

/// A parameter of a kernel on the emulated device: what a program needs to make up an argument for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterShape {
    /// Bytes of the parameter itself.
    pub bytes: usize,
    /// Bytes of an element, if it is a pointer.
    pub element_bytes: Option<usize>,
    /// Whether the kernel may write what it points to.
    pub is_written: bool,
    /// Whether it is, or points to, floats.
    pub is_float: bool,
}

impl Parameter {
    pub(crate) fn shape(&self) -> ParameterShape {
        let is_float = |scalar: Scalar| matches!(scalar, Scalar::F32 | Scalar::F64);
        let (element_bytes, is_written, is_float) = match self.type_ {
            Some(ArgType::Pointer { element, element_bytes, mutable }) => {
                (Some(element_bytes), mutable, is_float(element))
            }
            Some(ArgType::Value(scalar)) => (None, false, is_float(scalar)),
            None => (None, false, false),
        };
        ParameterShape { bytes: self.bytes, element_bytes, is_written, is_float }
    }
}

/// A loaded kernel: parameters, resources and origin.
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

/// A block size to launch a kernel with, see [`Kernel::suggested_block`](crate::Kernel::suggested_block).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuggestedBlock {
    /// Threads a block.
    pub threads: u32,
    /// Blocks that fill the device: a grid of fewer leaves some of it idle.
    pub least_blocks: u32,
}

impl Scalar {
    pub(crate) fn of<T: 'static>() -> Self {
        let known = [
            (TypeId::of::<u8>(), Self::U8),
            (TypeId::of::<i8>(), Self::I8),
            (TypeId::of::<u16>(), Self::U16),
            (TypeId::of::<i16>(), Self::I16),
            (TypeId::of::<u32>(), Self::U32),
            (TypeId::of::<i32>(), Self::I32),
            (TypeId::of::<u64>(), Self::U64),
            (TypeId::of::<i64>(), Self::I64),
            (TypeId::of::<f32>(), Self::F32),
            (TypeId::of::<f64>(), Self::F64),
        ];
        known.iter().find(|(id, _)| *id == TypeId::of::<T>()).map_or(Self::Other, |(_, scalar)| *scalar)
    }

    pub(crate) fn accepts(self, given: Scalar) -> bool {
        self == given || self == Self::Other || given == Self::Other
    }
}

/// What an argument or a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgType {
    Value(Scalar),
    Pointer { element: Scalar, element_bytes: usize, mutable: bool },
}

impl std::fmt::Display for ArgType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |scalar: Scalar| format!("{scalar:?}").to_lowercase();
        match *self {
            Self::Value(scalar) => f.write_str(&name(scalar)),
            Self::Pointer { element, mutable, .. } => {
                write!(f, "{}{}*", if mutable { "" } else { "const " }, name(element))
            }
        }
    }
}
