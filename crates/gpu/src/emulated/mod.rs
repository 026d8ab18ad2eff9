//! The emulated device: the same kernels and the same host code on a machine without a GPU, and with every rule checked.
//!
//! Device memory is host memory with guards, a stream is a queue that runs when somebody waits, a graph is a recorded
//! list, and a kernel is a shared library whose threads are fibers. It is an adversary: everything that the rules leave
//! open (the order of threads and streams, the moment a copy lands) is decided against the kernel, from a seed.
//!
//! One launch is one state machine, `launch::Launch`. Its methods lie in the file of their topic, as `impl Launch` in
//! `access`, `barrier`, `copy`, `warp` and `wgmma`, so that these files know each other; what they keep for a block or a
//! thread is in `block`. Kernels come in through `functions`, the table of which [`crate::abi`] is the list.

mod access;
mod barrier;
mod block;
mod clocks;
mod cluster;
pub(crate) mod compiler;
mod copy;
mod driver;
mod formats;
mod functions;
mod launch;
mod mbarrier;
mod memory;
mod module;
mod operations;
mod peers;
mod print;
mod queue;
mod schedule;
mod shadow;
mod tensor;
mod tensor_map;
mod transfer;
mod warp;
mod wgmma;

use crate::driver::Driver;
use crate::{Error, Result};

/// Opens emulated devices that know each other and whose schedules follow from `seed`.
pub(crate) fn open(seed: u64, count: usize) -> Result<Vec<Box<dyn Driver>>> {
    let group = driver::EmulatedDriver::group(seed, count)?;
    Ok(group.into_iter().map(|device| Box::new(device) as Box<dyn Driver>).collect())
}

/// `GATEWORK_EMULATOR_SEED`, or 0.
pub(crate) fn seed_from_environment() -> Result<u64> {
    const VARIABLE: &str = "GATEWORK_EMULATOR_SEED";
    match std::env::var(VARIABLE) {
        Err(_) => Ok(0),
        Ok(given) => given.trim().parse().map_err(|_| Error::Environment {
            variable: VARIABLE,
            given,
            wanted: "a whole number",
        }),
    }
}
