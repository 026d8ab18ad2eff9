//! What the driver knows of an address.

use cudarc::driver::sys::{self, CUdevice, CUmemorytype, CUpointer_attribute};

use crate::Result;
use crate::cuda::status::check;

/// An attribute of an address that is a number of 64 bits or fewer; 0 where the driver does not know it.
///
/// Asked in the plural form, which answers an address that it does not know with nothing instead of an error.
fn attribute(mut which: CUpointer_attribute, address: u64) -> Result<u64> {
    let mut answer = 0u64;
    let mut answers = [(&raw mut answer).cast()];
    // SAFETY: one attribute is asked for, whose answer has at most 64 bits, which the call writes; the
    // address is only looked up.
    let status = unsafe { sys::cuPointerGetAttributes(1, &mut which, answers.as_mut_ptr(), address) };
    check("cuPointerGetAttributes", status)?;
    Ok(answer)
}

/// Whether the driver knows the memory as page-locked: a slice of pinned memory may be given where ordinary
/// memory is expected, and is then read after the copy call has returned.
pub(super) fn is_page_locked(host: *const u8) -> Result<bool> {
    let kind = attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host as u64)?;
    Ok(kind == CUmemorytype::CU_MEMORYTYPE_HOST as u64)
}

/// Whether so many bytes from an address on are memory of a device. A range that the driver does not tell is
/// believed.
pub(super) fn is_memory_of(device: CUdevice, address: u64, bytes: usize) -> Result<bool> {
    let kind = attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)?;
    if kind != CUmemorytype::CU_MEMORYTYPE_DEVICE as u64 && kind != CUmemorytype::CU_MEMORYTYPE_UNIFIED as u64
    {
        return Ok(false);
    }
    let ordinal = attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)?;
    let start = attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address)?;
    let size = attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, address)?;
    let inside = size == 0 || address.saturating_sub(start).saturating_add(bytes as u64) <= size;
    Ok(i64::from(device) == ordinal as i64 && inside)
}
