//! The device's primary context: the one that every library of the process shares.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUresult, CUstream};

use crate::Result;
use crate::cuda::status::{check, check_release, failure};

/// A hold on the primary context, given back at drop. Kernels keep one too, because they can outlive their
/// device.
pub(super) struct Context {
    device: CUdevice,
    raw: CUcontext,
}

// SAFETY: the driver's contexts may be used from any thread; each thread makes it current before it calls.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn retain(device: CUdevice) -> Result<Arc<Self>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the driver is initialised, `device` is one of its devices, and `raw` is written by the
        // call.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) })?;
        let context = Arc::new(Self { device, raw });
        // Unconditionally: this thread may still have the context current from before it was last released.
        context.set_current()?;
        Ok(context)
    }

    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    /// The driver's handle, for calls that name two contexts.
    pub(super) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Makes the context the calling thread's. Every call of the driver starts with this: streams travel
    /// between threads, and another library may have changed the thread's context.
    pub(super) fn enter(&self) -> Result<()> {
        if self.is_current()? { Ok(()) } else { self.set_current() }
    }

    /// Whether a handle is a stream of this context. The null stream is one of every context.
    pub(super) fn owns(&self, stream: CUstream) -> Result<bool> {
        self.enter()?;
        let mut found = ptr::null_mut();
        // SAFETY: the caller was promised a stream's handle; `found` is written by the call.
        match unsafe { sys::cuStreamGetCtx(stream, &mut found) } {
            CUresult::CUDA_SUCCESS => Ok(found == self.raw),
            CUresult::CUDA_ERROR_INVALID_HANDLE | CUresult::CUDA_ERROR_INVALID_VALUE => Ok(false),
            status => Err(failure("cuStreamGetCtx", status)),
        }
    }

    /// Waits for all work of the context.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: the context is current.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Returns persisting lines of the level-2 cache to normal, and sets aside none for later ones.
    pub(super) fn disable_persisting_cache(&self) -> Result<()> {
        self.enter()?;
        let limit = sys::CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE;
        // SAFETY: the context is current.
        match unsafe { sys::cuCtxSetLimit(limit, 0) } {
            // A card without such a part of its cache has nothing to disable.
            CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT => return Ok(()),
            status => check("cuCtxSetLimit", status)?,
        }
        // SAFETY: as above.
        check("cuCtxResetPersistingL2Cache", unsafe { sys::cuCtxResetPersistingL2Cache() })
    }

    fn is_current(&self) -> Result<bool> {
        let mut current = ptr::null_mut();
        // SAFETY: `current` is written by the call.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut current) })?;
        Ok(current == self.raw)
    }

    fn set_current(&self) -> Result<()> {
        // SAFETY: the context is retained, so it is alive.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `retain`, released once here.
        check_release("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) });
    }
}
