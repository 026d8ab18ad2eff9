//! The runtime's own kernels and the portable header they are written against.
//!
//! `fill` and `gather` serve [`Stream`](crate::Stream); the others are the lab's `gpu/*` workloads.

use crate::kernel::Source;

macro_rules! headers {
    ($($path:literal),* $(,)?) => {
        /// The text of a file of the portable header, by the path it is included by.
        pub(crate) fn header(path: &str) -> Option<&'static str> {
            match path {
                $($path => Some(include_str!(concat!("../kernels/", $path))),)*
                _ => None,
            }
        }

        /// Every file of the portable header.
        pub const HEADERS: &[&str] = &[$($path),*];
    };
}

headers! {
    "gw/async_copy.cuh",
    "gw/atomic.cuh",
    "gw/bulk.cuh",
    "gw/convert.cuh",
    "gw/emulated.cuh",
    "gw/gw.cuh",
    "gw/index.cuh",
    "gw/integer.cuh",
    "gw/math.cuh",
    "gw/matrix.cuh",
    "gw/mbarrier.cuh",
    "gw/memory.cuh",
    "gw/sync.cuh",
    "gw/types.cuh",
    "gw/warp.cuh",
    "gw/wgmma.cuh",
}

macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub fn $name() -> Source {
            Source::new(stringify!($name), include_str!(concat!("../kernels/", stringify!($name), ".cuh")))
        }
    };
}

/// Widest element that `Stream::fill` repeats.
pub(crate) const FILL_MAX_BYTES: usize = 64;

/// `x[i] <- pattern` for elements of `bytes` bytes.
pub fn fill(bytes: usize) -> Source {
    Source::new("fill", include_str!("../kernels/fill.cuh")).define("ELEMENT_BYTES", bytes)
}

/// `to[i] <- from[indices[i]]` for elements of `bytes` bytes.
pub fn gather(bytes: usize) -> Source {
    Source::new("gather", include_str!("../kernels/gather.cuh")).define("ELEMENT_BYTES", bytes)
}

kernel! {
    /// `y <- a x + y`, elementwise: `saxpy(const f32* x, f32* y, f32 a, u64 n)`.
    saxpy
}
kernel! {
    /// `out[0] <- sum of x`, in a fixed order: `reduce(const f32* x, f32* partials, u32* ticket, f32* out, u64 n)`.
    /// One partial a block; `ticket` starts at zero and is left at zero.
    reduce
}
kernel! {
    /// `out[c][r] <- in[r][c]`: `transpose(const f32* in, f32* out, u32 rows, u32 columns)`.
    /// Blocks of `TILE x BLOCK_ROWS` threads, one tile a block, `TILE * (TILE + 1) * 4` bytes of shared memory.
    transpose
}
kernel! {
    /// `x[i] <- 1664525 x[i] + step`, modulo 2^32: `chain(u32* x, u32 step, u32 n)`. The order of steps shows.
    chain
}
kernel! {
    /// `c <- a b^T` for e4m3 tile images: `fp8_tile(const u8* a, const u8* b, f32* c, u32 k_tiles)`.
    /// One block of 256 threads a 64 x 128 tile of `c`, [`FP8_TILE_SHARED_BYTES`] of shared memory.
    fp8_tile
}

/// Dynamic shared memory of [`fp8_tile`]: three stages of 24 KiB and six barriers.
pub const FP8_TILE_SHARED_BYTES: u32 = 3 * (64 + 128) * 128 + 6 * 8;
