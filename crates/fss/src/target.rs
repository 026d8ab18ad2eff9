//! Where a role computes.

use std::sync::Arc;

use gatework_gpu::Target;

use crate::backend::Backend;
use crate::cpu::CpuBackend;
use crate::cuda::CudaBackend;
use crate::error::Result;

/// The backend that computes on a target. Each party, and the dealer, has its own.
pub fn backend_on(target: &Target) -> Result<Arc<dyn Backend>> {
    match target {
        Target::Cpu => Ok(Arc::new(CpuBackend)),
        Target::Gpu(device) => Ok(Arc::new(CudaBackend::new(device)?)),
    }
}
