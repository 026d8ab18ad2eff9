//! How a tensor lies in device memory, and which box of it one bulk copy moves.

/// How chunks of 16 bytes of a box change places in shared memory, so that a column of them falls on
/// different banks: `gw::swizzled` in kernels. The rows of a swizzled box have as many bytes as its name
/// says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Swizzle {
    /// They lie in order.
    #[default]
    None,
    /// Among rows of 32 bytes.
    Bytes32,
    /// Among rows of 64 bytes.
    Bytes64,
    /// Among rows of 128 bytes.
    Bytes128,
}

impl Swizzle {
    /// Bytes of a row, where it is swizzled.
    pub(crate) fn row_bytes(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }

    /// What the place of a box in shared memory is a multiple of: for a swizzled one the bytes after which
    /// the pattern repeats.
    pub(crate) fn alignment(self) -> usize {
        self.row_bytes().map_or(128, |row| 8 * row as usize)
    }

    /// Where byte `offset` of shared memory is put.
    pub(crate) fn place(self, offset: usize) -> usize {
        let rows = match self {
            Self::None => 0,
            Self::Bytes32 => 1,
            Self::Bytes64 => 3,
            Self::Bytes128 => 7,
        };
        offset ^ ((offset >> 7 & rows) << 4)
    }
}

/// A tensor of one to three dimensions and the box of it that one copy moves, the innermost dimension first.
///
/// ```
/// use gatework_gpu::{Swizzle, TensorLayout};
/// // A matrix of 100 rows of 72 floats, in tiles of 8 rows of 32 floats.
/// let layout = TensorLayout::dense::<f32>(&[72, 100], &[32, 8]).swizzle(Swizzle::Bytes128);
/// assert_eq!(layout.strides, [288]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorLayout {
    /// Elements in each dimension.
    pub extents: Vec<u64>,
    /// Bytes from one element to the next in each dimension but the innermost, whose elements lie side by
    /// side.
    pub strides: Vec<u64>,
    /// Elements of the box in each dimension.
    pub boxed: Vec<u32>,
    /// How the box lies in shared memory.
    pub swizzle: Swizzle,
}

/// Dimensions that a tensor map may have.
pub(crate) const MOST_DIMENSIONS: usize = 3;
/// Elements that a box may have in one dimension.
const MOST_BOXED: u32 = 256;

impl TensorLayout {
    /// A tensor of `T` without gaps.
    pub fn dense<T>(extents: &[u64], boxed: &[u32]) -> Self {
        let mut bytes = size_of::<T>() as u64;
        let outer = extents.len().saturating_sub(1);
        let strides = extents[..outer].iter().map(|&extent| {
            bytes = bytes.saturating_mul(extent);
            bytes
        });
        Self {
            strides: strides.collect(),
            extents: extents.into(),
            boxed: boxed.into(),
            swizzle: Swizzle::None,
        }
    }

    /// With that swizzle.
    pub fn swizzle(self, swizzle: Swizzle) -> Self {
        Self { swizzle, ..self }
    }

    /// Bytes of a box of elements of that size, as shared memory holds it.
    pub fn box_bytes(&self, element_bytes: usize) -> u64 {
        self.boxed.iter().fold(element_bytes as u64, |bytes, &n| bytes.saturating_mul(u64::from(n)))
    }

    /// Bytes from the first to past the last element.
    fn span(&self, element_bytes: u64) -> u128 {
        let Some((&inner, outer)) = self.extents.split_first() else { return 0 };
        let far = outer.iter().zip(&self.strides);
        far.map(|(&extent, &stride)| u128::from(extent - 1) * u128::from(stride)).sum::<u128>()
            + u128::from(inner) * u128::from(element_bytes)
    }

    /// What the device asks of a tensor of such elements in `memory_bytes` of memory; a sentence where it is
    /// not so.
    pub(crate) fn check(&self, element_bytes: usize, memory_bytes: u64) -> Result<(), String> {
        let rank = self.extents.len();
        if rank == 0 || rank > MOST_DIMENSIONS {
            return Err(format!("a tensor of {rank} dimensions: 1 to {MOST_DIMENSIONS} are possible"));
        }
        if self.boxed.len() != rank || self.strides.len() != rank - 1 {
            return Err(format!(
                "a tensor of {rank} dimensions with a box of {} and {} strides: {rank} and {} are wanted",
                self.boxed.len(),
                self.strides.len(),
                rank - 1
            ));
        }
        if let Some(extent) = self.extents.iter().find(|&&extent| extent == 0 || extent > 1 << 32) {
            return Err(format!("an extent of {extent} elements: 1 to 2^32 are possible"));
        }
        if let Some(boxed) = self.boxed.iter().find(|&&boxed| boxed == 0 || boxed > MOST_BOXED) {
            return Err(format!(
                "a box of {boxed} elements in one dimension: 1 to {MOST_BOXED} are possible"
            ));
        }
        let element = element_bytes as u64;
        let mut inner = self.extents[0].saturating_mul(element);
        for (&stride, &extent) in self.strides.iter().zip(&self.extents[1..]) {
            if !stride.is_multiple_of(16) || stride >= 1 << 40 {
                return Err(format!("a stride of {stride} bytes: multiples of 16 below 2^40 are possible"));
            }
            if stride < inner {
                return Err(format!("a stride of {stride} bytes over {inner} bytes that lie inside of it"));
            }
            inner = stride.saturating_mul(extent);
        }
        let row = u64::from(self.boxed[0]) * element;
        if !row.is_multiple_of(16) {
            return Err(format!("a box with rows of {row} bytes: multiples of 16 are possible"));
        }
        if let Some(swizzled) = self.swizzle.row_bytes().filter(|&swizzled| swizzled != row) {
            return Err(format!("a box with rows of {row} bytes under a swizzle of rows of {swizzled}"));
        }
        let span = self.span(element);
        if span > u128::from(memory_bytes) {
            return Err(format!("a tensor that spans {span} bytes in memory of {memory_bytes}"));
        }
        Ok(())
    }
}

/// Element types that tensor maps know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorScalar {
    /// 8 bits.
    U8,
    /// 16 bits.
    U16,
    /// 32 bits.
    U32,
    /// 32 bits, signed.
    I32,
    /// 64 bits.
    U64,
    /// 64 bits, signed.
    I64,
    /// Half precision.
    F16,
    /// Brain floats.
    Bf16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

/// What a driver makes a tensor map of.
pub(crate) struct TensorSpec<'a> {
    pub(crate) address: u64,
    pub(crate) scalar: TensorScalar,
    pub(crate) element_bytes: usize,
    pub(crate) layout: &'a TensorLayout,
    /// Whether kernels may store through it.
    pub(crate) writable: bool,
}

/// A tensor map as kernels are given it.
pub(crate) type TensorWords = [u64; 16];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_that_the_device_does_not_take_is_told() {
        let sound = TensorLayout::dense::<f32>(&[64, 10, 3], &[16, 2, 1]);
        assert_eq!(sound.check(4, 64 * 10 * 3 * 4), Ok(()));
        assert_eq!(sound.box_bytes(4), 128);
        let swizzled = sound.swizzle(Swizzle::Bytes64);
        assert_eq!(swizzled.check(4, 1 << 20), Ok(()));
        let with = |alter: &dyn Fn(&mut TensorLayout)| {
            let mut layout = swizzled.clone();
            alter(&mut layout);
            layout.check(4, 64 * 10 * 3 * 4).unwrap_err()
        };
        for (refused, words) in [
            (with(&|layout| layout.extents.clear()), "0 dimensions"),
            (with(&|layout| layout.extents.extend([1, 1])), "5 dimensions"),
            (with(&|layout| layout.strides.clear()), "0 strides"),
            (with(&|layout| layout.boxed.clear()), "a box of 0"),
            (with(&|layout| layout.extents[1] = 0), "an extent of 0"),
            (with(&|layout| layout.extents[2] = u64::MAX), "an extent of 18446744073709551615"),
            (with(&|layout| layout.boxed[1] = 257), "a box of 257 elements"),
            (with(&|layout| layout.strides[0] = 264), "a stride of 264 bytes"),
            (with(&|layout| layout.strides[1] = 1 << 40), "below 2^40"),
            (with(&|layout| layout.strides[0] = 240), "lie inside of it"),
            (with(&|layout| layout.boxed[0] = 3), "rows of 12 bytes"),
            (with(&|layout| layout.boxed[0] = 32), "under a swizzle of rows of 64"),
            (with(&|layout| layout.extents[2] = 4), "spans 10240 bytes in memory of 7680"),
        ] {
            assert!(refused.contains(words), "{refused}");
        }
    }
}
