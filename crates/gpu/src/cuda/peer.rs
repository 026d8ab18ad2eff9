//! What two cards do together.

use cudarc::driver::sys::{
    self, CUdevice, CUmemAccess_flags, CUmemAccessDesc, CUmemLocationType, CUmemoryPool, CUresult, CUstream,
};

use crate::cuda::context::Context;
use crate::cuda::status::{check, failure};
use crate::driver::Pointer;
use crate::{Error, Result};

/// Whether kernels of one card can address the memory of another.
pub(super) fn can_access(device: CUdevice, other: CUdevice) -> Result<bool> {
    let mut reachable = 0;
    // SAFETY: `reachable` is written by the call; both devices came from `cuDeviceGet`.
    let status = unsafe { sys::cuDeviceCanAccessPeer(&mut reachable, device, other) };
    check("cuDeviceCanAccessPeer", status)?;
    Ok(reachable != 0)
}

/// Kernels of `context` may touch what `other` allocates, from its pools too: those have access rights of
/// their own.
pub(super) fn enable_access(context: &Context, other: &Context, pools: [CUmemoryPool; 2]) -> Result<()> {
    if !can_access(context.device(), other.device())? {
        return Err(Error::Foreign {
            call: "Device::enable_peer_access",
            message: "the driver knows no way for kernels from one of these cards to the other's memory; copy with \
                      Stream::copy_from_peer instead"
                .into(),
        });
    }
    context.enter()?;
    // SAFETY: both contexts are retained, and the calling thread's is `context`.
    match unsafe { sys::cuCtxEnablePeerAccess(other.raw(), 0) } {
        CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {}
        status => return Err(failure("cuCtxEnablePeerAccess", status)),
    }
    // SAFETY: the struct is numbers and an enumeration that has a zero.
    let mut access: CUmemAccessDesc = unsafe { std::mem::zeroed() };
    access.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = context.device();
    access.flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for pool in pools {
        // SAFETY: the pool is alive, and the call reads one description.
        check("cuMemPoolSetAccess", unsafe { sys::cuMemPoolSetAccess(pool, &access, 1) })?;
    }
    Ok(())
}

/// Queues a copy from a card to another on a stream of the latter. Where there is no direct way the driver
/// goes through the host, which is slower and otherwise the same.
pub(super) fn copy(
    stream: CUstream,
    (context, destination): (&Context, Pointer),
    (other, source): (&Context, Pointer),
    bytes: usize,
) -> Result<()> {
    context.enter()?;
    // SAFETY: both runs lie inside allocations of their contexts, which outlive the copy; the stream is
    // alive.
    let status =
        unsafe { sys::cuMemcpyPeerAsync(destination.0, context.raw(), source.0, other.raw(), bytes, stream) };
    check("cuMemcpyPeerAsync", status)
}
