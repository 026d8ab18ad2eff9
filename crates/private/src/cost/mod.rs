//! What one private inference of a whole transformer costs.
//!
//! * [`gatework()`] runs a proved graph in the counting role: the same code that deals and evaluates, so its
//!   bytes are those of the key streams and of the channel.
//! * [`sigma()`] is a model of SIGMA (Gupta et al., ePrint 2023/1269), as its published code works, to
//!   compare with.
//!
//! Keys are the larger party's, traffic is both directions together, generator calls are the larger party's.

mod gatework;
mod sigma;
#[cfg(test)]
mod tests;
mod time;

pub use gatework::{LARGEST_SCORES, gatework};
pub use sigma::sigma;
pub use time::{Link, Prediction};

use std::ops::{Add, AddAssign};

use gatework_fss::Cost;

use crate::graph::Gate;

/// Bytes in a GiB.
const GIB: f64 = (1u64 << 30) as f64;

/// The four figures of a cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Key bytes.
    pub key_bytes: u64,
    /// Bytes sent by both.
    pub traffic_bytes: u64,
    /// Messages one after the other.
    pub rounds: u64,
    /// Calls of the pseudorandom generator.
    pub prg_blocks: u64,
}

impl Figures {
    /// A circuit's, as `party` has them.
    pub(crate) fn of(cost: &Cost, party: usize) -> Self {
        Self {
            key_bytes: cost.key_bytes[party],
            traffic_bytes: cost.traffic_bytes(),
            rounds: cost.rounds,
            prg_blocks: cost.prg_blocks[party],
        }
    }

    /// Key bytes in GiB.
    pub fn keys_gib(&self) -> f64 {
        self.key_bytes as f64 / GIB
    }

    /// Traffic in GiB.
    pub fn traffic_gib(&self) -> f64 {
        self.traffic_bytes as f64 / GIB
    }

    fn times(self, count: u64) -> Self {
        Self {
            key_bytes: self.key_bytes * count,
            traffic_bytes: self.traffic_bytes * count,
            rounds: self.rounds * count,
            prg_blocks: self.prg_blocks * count,
        }
    }
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.key_bytes += other.key_bytes;
        self.traffic_bytes += other.traffic_bytes;
        self.rounds += other.rounds;
        self.prg_blocks += other.prg_blocks;
    }
}

impl Add for Figures {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

/// Costs outside the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Apart {
    /// Once for a model: masked weights, and shares of their masks.
    pub setup: Figures,
    /// Before the layers, for every inference.
    pub embedding: Figures,
    /// Behind the layers, for every inference, with what gives the client its result.
    pub head: Figures,
}

/// The cost of one inference.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// All layers.
    pub total: Figures,
    /// The same by gate, in the order of [`Gate::ALL`], without those that do not occur.
    pub gates: Vec<(Gate, Figures)>,
    /// Costs that are not in the total. SIGMA's model has none; its total includes the masks of weights.
    pub apart: Option<Apart>,
    /// Elements of the layers that are truncated with a gap after a product.
    pub gap_truncations: u64,
    /// Elements of the layers that are truncated faithfully after a product.
    pub faithful_truncations: u64,
    /// Tensors of the whole model that are clamped, each with its limit.
    pub clamps: Vec<(String, f64)>,
}
