//! How much memory a proof over several devices takes of each.

use gatework_gpu::Device;

use super::{BASE, DIGEST, Plan, SECURE, require, tree_bytes};
use crate::Result;
use crate::queue::WINDOW;
use crate::shared::BLOCK_COLUMNS;
use crate::streaming::LOG_LARGEST_PAGE;

/// Programs of constraints, tables of addresses and what streams keep, which is little.
const TABLES: u64 = 1 << 20;

/// The most device memory that a proof over several devices holds at once, with the default window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Of the first device, which has the trees, the composition polynomial and FRI beside its columns.
    pub first: u64,
    /// Of each of the others.
    pub other: u64,
}

impl Plan {
    /// No less than what a proof over so many devices holds of each at once
    /// ([`Context::over`](crate::Context::over)).
    pub fn shares(&self, devices: usize) -> Shares {
        if devices <= 1 {
            return Shares { first: self.peak_bytes(), other: 0 };
        }
        let devices = devices as u64;
        let (of_columns, trees) = self.columns_and_trees(devices);
        let (rows, log_rows) = (SECURE << self.log_rows(), self.log_rows());
        // Sums of the device's rows, and chunks of all columns of a component: one in use, one on its way.
        let of_chunk = BASE << (log_rows + 1 - devices.ilog2()).min(LOG_LARGEST_PAGE);
        let constraints = 2 * rows / devices + self.pages_at_once() * of_chunk;
        // Numerators of each point and what is added to them, or weights.
        let samples = (self.points + 1) * rows;
        let proving = constraints.max(samples);
        // The lead has all sums, to which it adds those that arrive, and what comes after them.
        let composing = 2 * rows + 2 * rows / devices + constraints;
        let leading = composing.max(self.proving_bytes() + samples);
        let shared = self.twiddle_bytes() + TABLES;
        Shares { first: shared + of_columns + trees + leading, other: shared + of_columns + proving }
    }

    /// Bytes of columns on each of so many devices while the largest tree is made, and of all trees.
    fn columns_and_trees(&self, devices: u64) -> (u64, u64) {
        let blowup = self.log_blowup();
        let largest = |tree: &[u32]| tree.iter().copied().max().unwrap_or(0);
        // Whoever has least is dealt the next: nobody has more than a part and one column.
        let share = |tree: &[u32], blowup: u32| {
            let all: u64 = tree.iter().map(|&log_rows| BASE << (log_rows + blowup)).sum();
            if tree.is_empty() { 0 } else { all / devices + (BASE << (largest(tree) + blowup)) }
        };
        let (mut held, mut peak, mut trees) = (0, 0, 0);
        if self.held > 0 {
            held += self.trees.iter().take(2).map(|tree| share(tree, 0)).sum::<u64>();
        }
        for tree in self.trees.iter().filter(|tree| !tree.is_empty()) {
            let (values, extended) = (share(tree, 0), share(tree, blowup));
            // An interaction trace is made by rows of numerators and denominators, from rows of what is held.
            let made = if self.points > 1 { 4 * values + self.held / devices * 3 } else { 0 };
            peak = peak.max(held + values + extended.max(made));
            held += extended;
            let log_leaves = self.config.lifting_log_size.unwrap_or(largest(tree) + blowup);
            trees += tree_bytes(log_leaves);
            // Rows of columns of the others, the subtree over them, and states.
            let block = 2 * u64::from(BLOCK_COLUMNS) * (BASE << log_leaves) / devices;
            let rows = extended.min(WINDOW.max(block));
            let states = 2 * self.state.max(DIGEST) * ((1 << log_leaves) / devices);
            peak = peak.max(held + rows + tree_bytes(log_leaves) / devices + states);
        }
        (peak, trees)
    }

    /// Refuses a proof that does not fit into what of `devices` may still be held.
    pub fn check_over(&self, devices: &[Device]) -> Result<()> {
        let Shares { first, other } = self.shares(devices.len());
        let Some((lead, others)) = devices.split_first() else { return Ok(()) };
        require(first, lead)?;
        others.iter().try_for_each(|device| require(other, device))
    }
}
