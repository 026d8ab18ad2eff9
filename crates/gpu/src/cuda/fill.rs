//! Memory filled with a pattern.

use cudarc::driver::sys::{self, CUstream};

use crate::cuda::status::check;
use crate::driver::Pointer;
use crate::{Error, Result};

/// Queues `count` copies of a pattern of 1, 2 or 4 bytes, in memory that has room for them.
pub(super) fn queue(stream: CUstream, destination: Pointer, pattern: &[u8], count: usize) -> Result<()> {
    let address = destination.0;
    match *pattern {
        // SAFETY: `count` bytes from `address` lie inside an allocation.
        [a] => check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, a, count, stream) }),
        [a, b] => {
            let value = u16::from_ne_bytes([a, b]);
            // SAFETY: `count` elements of 2 bytes from `address` lie inside an allocation, aligned as
            // elements are.
            check("cuMemsetD16Async", unsafe { sys::cuMemsetD16Async(address, value, count, stream) })
        }
        [a, b, c, d] => {
            let value = u32::from_ne_bytes([a, b, c, d]);
            // SAFETY: `count` elements of 4 bytes from `address` lie inside an allocation, aligned as
            // elements are.
            check("cuMemsetD32Async", unsafe { sys::cuMemsetD32Async(address, value, count, stream) })
        }
        _ => Err(Error::Length {
            call: "Driver::fill",
            message: format!("a pattern of {} bytes, 1, 2 or 4 are possible", pattern.len()),
        }),
    }
}
