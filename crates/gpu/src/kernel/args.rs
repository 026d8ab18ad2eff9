//! Kernel arguments: made by [`args!`](crate::args), checked against the kernel before a launch.

use std::sync::Arc;

use bytemuck::Pod;

use crate::abi::Scalar;
use crate::buffer::{Allocation, Buffer, Slice, SliceMut, Use, View as _};
use crate::order::Access;
use crate::pinned::{DeviceUse, Pinned, PinnedBlock};
use crate::types::{ArgType, Parameter, ParameterType, TensorWords};
use crate::{Device, Error, Result};

/// Builds the argument list of a launch: buffers and slices by reference, scalars by value.
///
/// ```
/// use gatework_gpu::{ByValue, args};
/// let list = args![1.5f32, 7u32, ByValue(&[1u32, 2, 3])];
/// assert_eq!(list.len(), 3);
/// ```
#[macro_export]
macro_rules! args {
    ($($argument:expr),* $(,)?) => { [$($crate::IntoArg::into_arg($argument)),*] };
}

/// One argument of a launch. It borrows the memory it stands for, so that `args![&x, &mut x]` does not
/// compile.
pub struct Arg<'a> {
    bytes: Bytes,
    type_: ArgType,
    used: Option<Use<'a>>,
    /// Host memory that the kernel reads or writes where it lies.
    pinned: Option<(Arc<PinnedBlock>, DeviceUse)>,
}

/// Bytes of a value that take no allocation: addresses, scalars and small structs.
const INLINE: usize = 32;

/// The value that a kernel is given.
enum Bytes {
    /// The first `len` of them.
    Inline { bytes: [u8; INLINE], len: u8 },
    /// More than fit there.
    Heap(Box<[u8]>),
}

impl Bytes {
    fn of(value: &[u8]) -> Self {
        if value.len() > INLINE {
            return Self::Heap(value.into());
        }
        let mut bytes = [0; INLINE];
        bytes[..value.len()].copy_from_slice(value);
        Self::Inline { bytes, len: value.len() as u8 }
    }
}

/// Whoever passes a struct by value may pass a key.
impl Drop for Bytes {
    fn drop(&mut self) {
        if let Self::Heap(bytes) = self {
            bytes.fill(0);
            std::hint::black_box(&bytes);
        }
    }
}

impl<'a> Arg<'a> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Inline { bytes, len } => &bytes[..usize::from(*len)],
            Bytes::Heap(bytes) => bytes,
        }
    }

    pub(crate) fn allocation(&self) -> Option<&'a Arc<Allocation>> {
        self.used.map(|used| used.allocation)
    }

    pub(crate) fn used(&self) -> Option<Use<'a>> {
        self.used
    }

    pub(crate) fn pinned(&self) -> Option<&(Arc<PinnedBlock>, DeviceUse)> {
        self.pinned.as_ref()
    }

    fn pointer<T: Pod>(slice: Slice<'a, T>, mutable: bool) -> Self {
        let element_bytes = size_of::<T>();
        Self {
            bytes: Bytes::of(&slice.pointer().0.to_le_bytes()),
            type_: ArgType::Pointer { element: Scalar::of::<T>(), element_bytes, mutable },
            used: Some(slice.used(if mutable { Access::Write } else { Access::Read })),
            pinned: None,
        }
    }

    fn host_pointer<T: Pod>(host: &'a Pinned<T>, device_use: DeviceUse) -> Self {
        let (element_bytes, mutable) = (size_of::<T>(), device_use == DeviceUse::Writes);
        Self {
            bytes: Bytes::of(&(host.address() as u64).to_le_bytes()),
            type_: ArgType::Pointer { element: Scalar::of::<T>(), element_bytes, mutable },
            used: None,
            pinned: Some((host.block(), device_use)),
        }
    }

    pub(crate) fn tensor_map(words: &TensorWords, used: Use<'a>) -> Self {
        Self { used: Some(used), ..Self::value(words) }
    }

    fn value<T: Pod>(value: &T) -> Self {
        let bytes = Bytes::of(bytemuck::bytes_of(value));
        Self { bytes, type_: ArgType::Value(Scalar::of::<T>()), used: None, pinned: None }
    }
}

/// Values that [`args!`](crate::args) accepts.
pub trait IntoArg<'a> {
    /// The argument.
    fn into_arg(self) -> Arg<'a>;
}

/// A plain struct or array, passed by value.
pub struct ByValue<'a, T: Pod>(
    /// The value to pass.
    pub &'a T,
);

impl<'a, T: Pod> IntoArg<'a> for ByValue<'_, T> {
    fn into_arg(self) -> Arg<'a> {
        Arg::value(self.0)
    }
}

impl<'a, T: Pod> IntoArg<'a> for &'a Buffer<T> {
    fn into_arg(self) -> Arg<'a> {
        Arg::pointer(self.view(), false)
    }
}

impl<'a, T: Pod> IntoArg<'a> for &'a mut Buffer<T> {
    fn into_arg(self) -> Arg<'a> {
        Arg::pointer(self.view(), true)
    }
}

/// Page-locked memory that the kernel reads where it lies, over the link between host and device: one copy
/// less for what is read once. Touching it waits for the kernel.
impl<'a, T: Pod> IntoArg<'a> for &'a Pinned<T> {
    fn into_arg(self) -> Arg<'a> {
        Arg::host_pointer(self, DeviceUse::Reads)
    }
}

/// The same, to be written.
impl<'a, T: Pod> IntoArg<'a> for &'a mut Pinned<T> {
    fn into_arg(self) -> Arg<'a> {
        Arg::host_pointer(self, DeviceUse::Writes)
    }
}

impl<'a, T: Pod> IntoArg<'a> for Slice<'a, T> {
    fn into_arg(self) -> Arg<'a> {
        Arg::pointer(self, false)
    }
}

impl<'a, T: Pod> IntoArg<'a> for SliceMut<'a, T> {
    fn into_arg(self) -> Arg<'a> {
        Arg::pointer(self.into_slice(), true)
    }
}

macro_rules! scalar_arguments {
    ($($scalar:ty),*) => {$(
        impl<'a> IntoArg<'a> for $scalar {
            fn into_arg(self) -> Arg<'a> {
                Arg::value(&self)
            }
        }
    )*};
}

scalar_arguments!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, half::f16, half::bf16);

/// Compares what a program declares of a kernel with what the kernel has.
pub(crate) fn check_declared(kernel: &str, parameters: &[usize], declared: &[ParameterType]) -> Result<()> {
    let refuse = |message: String| Err(Error::Arguments { kernel: kernel.to_owned(), message });
    if parameters.len() != declared.len() {
        return refuse(format!(
            "it takes {} parameters and {} are declared",
            parameters.len(),
            declared.len()
        ));
    }
    let wrong = parameters.iter().zip(declared).position(|(bytes, declared)| *bytes != declared.bytes);
    wrong.map_or(Ok(()), |index| {
        let (bytes, declared) = (parameters[index], declared[index].bytes);
        refuse(format!("parameter {index} has {bytes} bytes and is declared with {declared}"))
    })
}

/// Compares count, sizes, and types where the kernel's are known.
pub(crate) fn check(
    kernel: &str,
    parameters: &[Parameter],
    arguments: &[Arg<'_>],
    device: &Device,
) -> Result<()> {
    let refuse = |message: String| Err(Error::Arguments { kernel: kernel.to_owned(), message });
    if parameters.len() != arguments.len() {
        return refuse(format!("it takes {} arguments and was given {}", parameters.len(), arguments.len()));
    }
    for (index, (parameter, argument)) in parameters.iter().zip(arguments).enumerate() {
        if let Some(allocation) = argument.allocation() {
            device.require_same(allocation.stream.device(), "Kernel::launch")?;
        }
        if let Some((block, _)) = argument.pinned() {
            device.require_same(block.device(), "Kernel::launch")?;
        }
        if parameter.bytes != argument.bytes().len() {
            return refuse(format!(
                "parameter {index} has {} bytes and was given {}",
                parameter.bytes,
                argument.bytes().len()
            ));
        }
        let Some(type_) = parameter.type_ else { continue };
        let given = argument.type_;
        let fits = match (type_, given) {
            (ArgType::Value(wanted), ArgType::Value(given)) => wanted.accepts(given),
            (
                ArgType::Pointer { element: wanted, element_bytes: wanted_bytes, mutable: written },
                ArgType::Pointer { element: given, element_bytes: given_bytes, mutable },
            ) => {
                if written && !mutable {
                    return refuse(format!("parameter {index} is written ({type_}): pass it as &mut"));
                }
                wanted.accepts(given) && wanted_bytes == given_bytes
            }
            _ => false,
        };
        if !fits {
            return refuse(format!("parameter {index} is {type_} and was given {given}"));
        }
    }
    Ok(())
}
