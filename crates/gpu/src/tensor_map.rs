//! Tensor maps: what bulk tensor copies of a kernel (`gw::bulk_tensor_load`) know of the memory they move
//! boxes of.

use bytemuck::Pod;

use crate::buffer::{Slice, Use, View, ViewMut};
use crate::kernel::{Arg, IntoArg};
use crate::order::Access;
use crate::types::{TensorLayout, TensorScalar, TensorSpec, TensorWords};
use crate::{Error, Result};

/// A tensor in device memory, as a kernel takes it by `GW_TENSOR_MAP`. It borrows the memory.
///
/// ```
/// use gatework_gpu::{Device, Grid, Source, TensorLayout, TensorMap, args};
/// // out <- the tile of 4 x 4 words whose corner is at column 4 of row 3; what lies outside is zero.
/// let source = Source::new("tile", r#"
///     #include "gw/gw.cuh"
///     GW_KERNEL(tile)(GW_TENSOR_MAP(map), u32* out) {
///         u32* box = gw::shared<u32>();
///         gw::Mbarrier* full = gw::shared<gw::Mbarrier>(1024);
///         if (gw::thread() == 0) {
///             gw::mbarrier_init(full, 1);
///             gw::fence_mbarrier_init();
///             gw::mbarrier_arrive_expect(full, 64);
///             gw::bulk_tensor_load(box, map, full, 4, 3);
///         }
///         gw::sync_threads();
///         gw::mbarrier_wait(full, 0);
///         out[gw::thread()] = box[gw::thread()];
///     }
/// "#);
/// let device = Device::open("emulated")?;
/// let stream = device.stream()?;
/// let x = stream.upload(&std::array::from_fn::<u32, 64, _>(|i| i as u32))?;
/// let map = TensorMap::new(&x, &TensorLayout::dense::<u32>(&[8, 8], &[4, 4]))?;
/// let mut out = stream.alloc::<u32>(16)?;
/// let grid = Grid::new([1; 3], [16, 1, 1]).shared(2048);
/// device.kernel(&source)?.launch(&stream, &grid, &args![&map, &mut out])?;
/// assert_eq!(stream.download(&out)?[..5], [28, 29, 30, 31, 36]);
/// # Ok::<(), gatework_gpu::Error>(())
/// ```
pub struct TensorMap<'a> {
    words: TensorWords,
    used: Use<'a>,
}

impl<'a> TensorMap<'a> {
    /// Memory to load boxes of.
    pub fn new<T: TensorElement>(memory: &'a impl View<T>, layout: &TensorLayout) -> Result<Self> {
        Self::of(memory.view(), layout, false)
    }

    /// Memory to store boxes to, and to load them. Its rows are a multiple of 16 bytes: a store is cut off by
    /// no less.
    pub fn new_mut<T: TensorElement>(memory: &'a mut impl ViewMut<T>, layout: &TensorLayout) -> Result<Self> {
        Self::of(memory.view_mut().into_slice(), layout, true)
    }

    fn of<T: TensorElement>(memory: Slice<'a, T>, layout: &TensorLayout, writable: bool) -> Result<Self> {
        let refused = |message| Error::TensorMap { message };
        let (address, element_bytes) = (memory.pointer().0, size_of::<T>());
        layout.check(element_bytes, (memory.len() * element_bytes) as u64).map_err(refused)?;
        if !address.is_multiple_of(16) {
            return Err(refused(format!("memory at {address:#x}: a tensor starts at a multiple of 16")));
        }
        let row = layout.extents[0] * element_bytes as u64;
        if writable && !row.is_multiple_of(16) {
            let message = format!(
                "a tensor with rows of {row} bytes to store to: the card writes whole multiples of 16, so that what lies behind \
                 a row would be lost"
            );
            return Err(refused(message));
        }
        let device = memory.allocation.stream.device();
        if device.properties().compute_capability.0 < 9 {
            return Err(refused(format!("{} has no bulk tensor copies", device.properties().name)));
        }
        let spec = TensorSpec { address, scalar: T::SCALAR, element_bytes, layout, writable };
        if writable {
            // One map may be given to several launches, by several threads.
            memory.allocation.tracking.share();
        }
        let used = memory.used(if writable { Access::Write } else { Access::Read });
        Ok(Self { words: device.driver().tensor_map(&spec)?, used })
    }
}

impl<'a> IntoArg<'a> for &'a TensorMap<'_> {
    fn into_arg(self) -> Arg<'a> {
        Arg::tensor_map(&self.words, self.used)
    }
}

impl std::fmt::Debug for TensorMap<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TensorMap")
    }
}

/// An element that tensor maps know.
pub trait TensorElement: Pod {
    /// Its type as the device names it.
    const SCALAR: TensorScalar;
}

macro_rules! elements {
    ($($type:ty => $scalar:ident),* $(,)?) => {$(
        impl TensorElement for $type {
            const SCALAR: TensorScalar = TensorScalar::$scalar;
        }
    )*};
}

elements! {
    u8 => U8, u16 => U16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
    half::f16 => F16, half::bf16 => Bf16, f32 => F32, f64 => F64,
}
