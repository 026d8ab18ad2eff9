//! How many threads of a kernel a multiprocessor holds.

use gatework_gpu::Resources;
use serde::{Deserialize, Serialize};

/// Registers of a multiprocessor, on every architecture since Kepler.
pub(crate) const REGISTERS: u32 = 65_536;
/// Registers are given to threads in units of so many.
pub(crate) const REGISTER_UNIT: u32 = 8;
/// Threads that a multiprocessor of a data centre's card holds at most.
const THREADS: u32 = 2048;
/// Blocks that it holds at most.
const BLOCKS: u32 = 32;

/// Blocks of one kernel on one multiprocessor, by its registers and threads. Shared memory that a launch asks
/// for is not known here and may leave room for fewer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Threads of a block.
    pub threads: u32,
    /// Blocks at a time.
    pub blocks: u32,
    /// Their threads as a part of the most that there can be.
    pub share: f64,
}

impl Occupancy {
    /// That of blocks of `threads` threads; none if not one block fits.
    pub(crate) fn of(resources: &Resources, threads: u32) -> Option<Self> {
        let held = resources.registers.next_multiple_of(REGISTER_UNIT).max(REGISTER_UNIT) * threads;
        let blocks = REGISTERS.checked_div(held)?.min(THREADS.checked_div(threads)?).min(BLOCKS);
        let share = f64::from(blocks * threads) / f64::from(THREADS);
        (blocks > 0).then_some(Self { threads, blocks, share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_or_threads_set_the_limit() {
        let of = |registers, threads| {
            Occupancy::of(&Resources { registers, ..Resources::default() }, threads).map(|found| found.blocks)
        };
        assert_eq!(of(32, 1024), Some(2));
        assert_eq!(of(33, 1024), Some(1));
        assert_eq!(of(168, 384), Some(1));
        assert_eq!(of(16, 32), Some(32));
        assert_eq!(of(255, 1024), None);
        assert_eq!(of(40, 0), None);
    }
}
