//! The driver's stream-ordered memory pools.

use std::ptr;

use cudarc::driver::sys::{
    self, CUdevice, CUmemAllocationType, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
};

use crate::Result;
use crate::cuda::status::{check, check_release};

/// A memory pool of the device.
pub(super) struct Pool {
    raw: CUmemoryPool,
    /// Whether it is ours to destroy.
    owned: bool,
}
// SAFETY: the pool belongs to the device, and the driver's pool functions may be called from any thread.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// The default pool.
    pub(super) fn default_of(device: CUdevice) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is written by the call.
        check("cuDeviceGetDefaultMemPool", unsafe { sys::cuDeviceGetDefaultMemPool(&mut raw, device) })?;
        Self { raw, owned: false }.keeping_all()
    }

    /// A pool of our own.
    pub(super) fn create(device: CUdevice) -> Result<Self> {
        // SAFETY: the struct is numbers and pointers, of which all zeros are values.
        let mut wanted: CUmemPoolProps = unsafe { std::mem::zeroed() };
        wanted.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        wanted.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        wanted.location.id = device;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is written by the call, which reads the properties.
        check("cuMemPoolCreate", unsafe { sys::cuMemPoolCreate(&mut raw, &wanted) })?;
        Self { raw, owned: true }.keeping_all()
    }

    pub(super) fn raw(&self) -> CUmemoryPool {
        self.raw
    }

    /// Told to keep what is freed: giving it back to the system costs more than the next kernel.
    fn keeping_all(self) -> Result<Self> {
        let mut keep_all = u64::MAX;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: this attribute is a 64-bit number, which the call reads.
        let status = unsafe { sys::cuMemPoolSetAttribute(self.raw, attribute, (&raw mut keep_all).cast()) };
        check("cuMemPoolSetAttribute", status)?;
        Ok(self)
    }

    /// Bytes the pool took from the device and has lent to nobody.
    pub(super) fn idle_bytes(&self) -> Result<u64> {
        let reserved = self.bytes(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let used = self.bytes(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        Ok(reserved.saturating_sub(used))
    }

    /// Gives what nobody holds back to the device, so that it can be had in pieces of another size.
    pub(super) fn trim(&self) -> Result<()> {
        // SAFETY: the pool is alive.
        check("cuMemPoolTrimTo", unsafe { sys::cuMemPoolTrimTo(self.raw, 0) })
    }

    fn bytes(&self, attribute: CUmemPool_attribute) -> Result<u64> {
        let mut bytes = 0u64;
        // SAFETY: the attributes asked for are 64-bit numbers, which the call writes.
        let status = unsafe { sys::cuMemPoolGetAttribute(self.raw, attribute, (&raw mut bytes).cast()) };
        check("cuMemPoolGetAttribute", status)?;
        Ok(bytes)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: created once, destroyed once; what is still lent stays until it is freed.
            check_release("cuMemPoolDestroy", unsafe { sys::cuMemPoolDestroy(self.raw) });
        }
    }
}
