//! The emulated device: the same kernels and the same host code on a machine without a GPU, and with every
//! rule checked.
//!
//! Device memory is host memory with guards, a stream is a queue that runs when somebody waits, a graph is a
//! recorded list, and a kernel is a shared library whose threads are fibers. It is an adversary: everything
//! that the rules leave open (the order of threads and streams, the moment a copy lands) is decided against
//! the kernel, from a seed.
//!
//! One launch is one state machine, `launch::Launch`. Its methods lie in the file of their topic, as `impl
//! Launch` in `access`, `barrier`, `copy`, `warp`, `wgmma` and others, so that these files know each other;
//! what they keep for a block or a thread is in `block`. Kernels come in through `functions`, the table of
//! which [`crate::abi`] is the list.

mod access;
mod arena;
mod barrier;
mod block;
mod clocks;
mod cluster;
pub(crate) mod compiler;
mod copy;
mod driver;
mod formats;
mod functions;
mod initialised;
mod interruption;
mod launch;
mod marks;
mod mbarrier;
mod memory;
mod module;
mod operations;
mod peers;
mod print;
mod queue;
mod registers;
mod schedule;
mod shadow;
mod streams;
mod telling;
mod tensor;
mod tensor_map;
mod transfer;
mod warp;
mod watchdog;
mod wgmma;

use std::time::Duration;

use crate::driver::Driver;
use crate::types::Emulation;
use crate::{Error, Result};

/// Opens emulated devices that know each other.
pub(crate) fn open(how: Emulation, count: usize) -> Result<Vec<Box<dyn Driver>>> {
    let group = driver::EmulatedDriver::group(how, count)?;
    Ok(group.into_iter().map(|device| Box::new(device) as Box<dyn Driver>).collect())
}

impl Emulation {
    /// Whether this machine's C++ compiler can fill registers with
    /// [`RegisterFill::Ones`](crate::RegisterFill::Ones) and
    /// [`RegisterFill::Zeros`](crate::RegisterFill::Zeros): GCC 12 and later can.
    pub fn can_fill_registers() -> Result<bool> {
        compiler::can_fill_locals()
    }
}

/// As `GATEWORK_EMULATOR_SEED` and `GATEWORK_EMULATOR_SECONDS` say, or the default.
pub(crate) fn from_environment() -> Result<Emulation> {
    let default = Emulation::default();
    let seed = number("GATEWORK_EMULATOR_SEED", 0)?.unwrap_or(default.seed);
    let limit = number("GATEWORK_EMULATOR_SECONDS", 1)?.map_or(default.limit, Duration::from_secs);
    Ok(Emulation { seed, limit, ..default })
}

fn number(variable: &'static str, least: u64) -> Result<Option<u64>> {
    let Some(given) = std::env::var_os(variable) else { return Ok(None) };
    let given = given.to_string_lossy().into_owned();
    let wanted = if least == 0 { "a whole number" } else { "a whole number from 1 on" };
    let number = given.trim().parse().ok().filter(|number| *number >= least);
    number.map(Some).ok_or(Error::Environment { variable, given, wanted })
}
