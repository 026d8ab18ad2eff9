//! Failures on purpose, for tests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{Budget, Error, Result};

/// Failures that a test injects into a device.
#[derive(Debug, Default)]
pub struct Faults {
    allocations: AtomicU64,
    refused: AtomicU64,
    without_kernels: AtomicBool,
    without_nodes: AtomicBool,
}

impl Faults {
    /// Refuses the allocation of that number, counted from here on; none if it is 0.
    pub fn refuse_allocation(&self, number: u64) {
        self.allocations.store(0, Ordering::SeqCst);
        self.refused.store(number, Ordering::SeqCst);
    }

    /// Allocations since [`Faults::refuse_allocation`], the refused one among them.
    pub fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::SeqCst)
    }

    /// Checks launches and does not run them: where what the host does depends on no value, it does the same
    /// in less time.
    pub fn leave_out_kernels(&self, leave_out: bool) {
        self.without_kernels.store(leave_out, Ordering::SeqCst);
    }

    pub(crate) fn leaves_out_kernels(&self) -> bool {
        self.without_kernels.load(Ordering::SeqCst)
    }

    /// Fails every launch in a capture behind the driver's own call, as if the node could not be found.
    pub fn lose_captured_nodes(&self, lose: bool) {
        self.without_nodes.store(lose, Ordering::SeqCst);
    }

    pub(crate) fn captured_node(&self) -> Result<()> {
        if !self.without_nodes.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Error::Graph { message: "the node of a launch is lost".into() })
    }

    pub(crate) fn count(&self, bytes: u64, budget: &Budget) -> Result<()> {
        let number = self.allocations.fetch_add(1, Ordering::SeqCst) + 1;
        if number != self.refused.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Error::OutOfMemory { asked: bytes, held: budget.held(), free: 0, limit: budget.limit() })
    }
}
