//! Where a role computes.

use std::sync::Arc;

use gatework_gpu::Target;

use crate::backend::Backend;
use crate::cpu::CpuBackend;
use crate::error::{Error, Result};

/// The backend that computes on a target. Each party, and the dealer, has its own.
pub fn backend_on(target: &Target) -> Result<Arc<dyn Backend>> {
    match target {
        Target::Cpu => Ok(Arc::new(CpuBackend)),
        Target::Gpu(device) => Err(Error::NoBackend { target: device.properties().id.clone() }),
    }
}
