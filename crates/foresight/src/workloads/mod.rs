//! What the lab may gate: `foresight/*` on a device, `foresight/*-host` on the host.

mod device;
mod host;
mod lesson;
mod plain;
mod tape;

use gatework_lab::Workload;

/// All of them.
pub fn workloads() -> Vec<Box<dyn Workload>> {
    device::workloads().into_iter().chain(host::workloads()).collect()
}

/// Those with kernels, on few small cases in which every kernel takes part: for the hunt for mutants.
pub fn hunted() -> Vec<Box<dyn Workload>> {
    device::hunted()
}
