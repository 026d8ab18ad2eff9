//! Kernel arguments: made by [`args!`](crate::args), checked against the kernel before a launch.

use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;

use crate::buffer::{Allocation, Buffer, Slice, SliceMut, View};
use crate::kernel::Parameter;
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

/// Element types that both sides of a launch can name. The numbers are those of `gw/emulated.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Scalar {
    /// A struct, or a 16-bit float that C++ sees as one: compared by size alone.
    Other = 0,
    U8 = 1,
    I8 = 2,
    U16 = 3,
    I16 = 4,
    U32 = 5,
    I32 = 6,
    U64 = 7,
    I64 = 8,
    F32 = 9,
    F64 = 10,
}

impl Scalar {
    fn of<T: 'static>() -> Self {
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

    pub(crate) fn from_code(code: u8) -> Self {
        const ALL: [Scalar; 11] = [
            Scalar::Other,
            Scalar::U8,
            Scalar::I8,
            Scalar::U16,
            Scalar::I16,
            Scalar::U32,
            Scalar::I32,
            Scalar::U64,
            Scalar::I64,
            Scalar::F32,
            Scalar::F64,
        ];
        ALL.get(code as usize).copied().unwrap_or(Self::Other)
    }

    fn accepts(self, given: Scalar) -> bool {
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

/// One argument of a launch.
pub struct Arg<'a> {
    bytes: Vec<u8>,
    type_: ArgType,
    allocation: Option<Arc<Allocation>>,
    /// Ties the argument to the borrow it was made from, so that `args![&x, &mut x]` does not compile.
    borrow: PhantomData<&'a ()>,
}

impl Arg<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn allocation(&self) -> Option<&Arc<Allocation>> {
        self.allocation.as_ref()
    }

    fn pointer<T: Pod>(slice: Slice<'_, T>, mutable: bool) -> Self {
        let element_bytes = size_of::<T>();
        Self {
            bytes: slice.pointer().0.to_le_bytes().to_vec(),
            type_: ArgType::Pointer { element: Scalar::of::<T>(), element_bytes, mutable },
            allocation: Some(slice.allocation.clone()),
            borrow: PhantomData,
        }
    }
}

/// What [`args!`](crate::args) accepts.
pub trait IntoArg<'a> {
    /// The argument.
    fn into_arg(self) -> Arg<'a>;
}

/// A plain struct or array, passed by value.
pub struct ByValue<'a, T: Pod>(
    /// What to pass.
    pub &'a T,
);

impl<'a, T: Pod> IntoArg<'a> for ByValue<'_, T> {
    fn into_arg(self) -> Arg<'a> {
        Arg {
            bytes: bytemuck::bytes_of(self.0).to_vec(),
            type_: ArgType::Value(Scalar::of::<T>()),
            allocation: None,
            borrow: PhantomData,
        }
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

impl<'a, T: Pod> IntoArg<'a> for Slice<'a, T> {
    fn into_arg(self) -> Arg<'a> {
        Arg::pointer(self, false)
    }
}

impl<'a, T: Pod> IntoArg<'a> for SliceMut<'a, T> {
    fn into_arg(self) -> Arg<'a> {
        Arg::pointer(self.view(), true)
    }
}

macro_rules! scalar_arguments {
    ($($scalar:ty),*) => {$(
        impl<'a> IntoArg<'a> for $scalar {
            fn into_arg(self) -> Arg<'a> {
                ByValue(&self).into_arg()
            }
        }
    )*};
}

scalar_arguments!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, half::f16, half::bf16);

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
        if parameter.bytes != argument.bytes.len() {
            return refuse(format!(
                "parameter {index} has {} bytes and was given {}",
                parameter.bytes,
                argument.bytes.len()
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
