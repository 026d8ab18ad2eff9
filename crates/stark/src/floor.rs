//! The least time that the stages of a proof can take on a GPU.
//!
//! A stage must move its bytes and do its integer operations; the floor is the longer of the two. What is
//! read or written is counted once. Transforms that are larger than shared memory are counted as often as
//! their layers need tiles of 2^13 values: theirs is the floor of transforms in such passes. How long
//! operations take is counted, as hand-written code is thought to need them: 8 of the integer pipe for a
//! butterfly (its product runs on another), 840 for a compression of Blake2s, 34,000 for a permutation of
//! Poseidon252; or it is measured, by kernels that do nothing else ([`Rates`]). Latencies are not in it: at
//! small sizes they are most of the time.
//!
//! Proof of work has no floor: the first nonce may do. Openings are latencies alone.

use gatework_gpu::DeviceProperties;
use stwo::core::pcs::PcsConfig;

use crate::{Rates, Stage};

/// The rates of a device at its highest clocks.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Bytes to and from memory, as copies reach: 7/8 of what the bus could.
    pub bytes: f64,
    /// Operations of the integer pipe, 64 lanes a multiprocessor.
    pub operations: f64,
    /// Butterflies of M31.
    pub butterflies: f64,
    /// Compressions of Blake2s.
    pub compressions: f64,
    /// Permutations of Poseidon252.
    pub permutations: f64,
}

impl Machine {
    /// The machine, where its clocks and its bus are known.
    pub fn of(properties: &DeviceProperties) -> Option<Self> {
        let memory_hz = f64::from(properties.max_memory_clock_mhz?) * 1e6;
        let bus_bytes = f64::from(properties.memory_bus_bits?) / 8.0;
        let clock_hz = f64::from(properties.max_clock_mhz?) * 1e6;
        let bytes = 2.0 * memory_hz * bus_bytes * 7.0 / 8.0;
        Some(Self::counted(bytes, f64::from(properties.multiprocessors) * 64.0 * clock_hz))
    }

    /// With what butterflies and compressions are counted at.
    pub(crate) fn counted(bytes: f64, operations: f64) -> Self {
        Self {
            bytes,
            operations,
            butterflies: operations / BUTTERFLY,
            compressions: operations / COMPRESSION,
            permutations: operations / PERMUTATION,
        }
    }

    /// With what was measured, where it was.
    pub fn measured(self, rates: &Rates) -> Self {
        let Rates { bytes, butterflies, compressions, permutations } = *rates;
        Self { bytes, butterflies, compressions, permutations, ..self }
    }
}

/// The hash function of trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    /// Blake2s, in either form of its digests.
    Blake2s,
    /// Poseidon on felts.
    Poseidon252,
}

/// The shape of a proof, as far as its cost depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The hash function of its trees.
    pub hash: Hash,
    /// The logarithm of the number of rows.
    pub log_rows: u32,
    /// Columns of the trace, preprocessed ones with them.
    pub columns: usize,
    /// Columns of the interaction trace.
    pub interaction_columns: usize,
    /// Integer operations of all constraints on one row.
    pub row_operations: u64,
}

pub(crate) const BUTTERFLY: f64 = 8.0;
pub(crate) const COMPRESSION: f64 = 840.0;
/// What the kernel has, of which 14,000 are products of words that may run beside the others.
pub(crate) const PERMUTATION: f64 = 34_000.0;
/// Of a product of QM31 and M31 that is added up.
const PRODUCT: f64 = 12.0;

/// Permutations of Poseidon252 for a leaf of so many columns: one for each two felts of eight elements, and a
/// last one.
pub(crate) fn permutations_of_row(columns: u64) -> u64 {
    columns.div_ceil(8) / 2 + 1
}

/// Passes over memory of a transform of so many layers, at least.
fn passes(log_size: u32) -> f64 {
    f64::from(log_size.div_ceil(13).max(1))
}

/// Seconds that each stage takes at least; stages without a floor are not there.
pub fn floors(machine: &Machine, shape: &Shape, config: &PcsConfig) -> Vec<(Stage, f64)> {
    // Seconds of one.
    let butterfly = machine.butterflies.recip();
    let hash = match shape.hash {
        Hash::Blake2s => machine.compressions.recip(),
        Hash::Poseidon252 => machine.permutations.recip(),
    };
    let operation = machine.operations.recip();
    let log_blowup = config.fri_config.log_blowup_factor;
    let (n, log_rows) = (f64::from(1u32 << shape.log_rows), f64::from(shape.log_rows));
    let m = n * f64::from(1u32 << log_blowup);
    let (trace, interaction) = (shape.columns as f64, shape.interaction_columns as f64);
    let all = trace + interaction;
    // Hashes of a leaf, and of the one node above for each.
    let hashes = |columns: f64| match shape.hash {
        _ if columns == 0.0 => 0.0,
        Hash::Blake2s => (columns / 16.0).ceil() + 1.0,
        Hash::Poseidon252 => permutations_of_row(columns as u64) as f64 + 1.0,
    };
    let transform = |columns: f64, from: f64, to: f64, layers: f64| {
        let between = 2.0 * (passes(layers as u32) - 1.0) * from.max(to);
        (columns * 4.0 * (from + to + between), columns * to / 2.0 * layers * butterfly)
    };
    let sum = |(a, b): (f64, f64), (c, d): (f64, f64)| (a + c, b + d);
    let composition = {
        let transforms =
            sum(transform(4.0, 2.0 * n, 2.0 * n, log_rows + 1.0), transform(8.0, n, m, log_rows));
        sum(transforms, (4.0 * 8.0 * m + 96.0 * m, 2.0 * m * hash))
    };
    let quotients = {
        let transforms = sum(transform(4.0, n, n, log_rows), transform(4.0, n, m, log_rows));
        sum(transforms, (4.0 * n * (all + 8.0) + 32.0 * n, n * ((all + 8.0) * PRODUCT + 400.0) * operation))
    };
    let work = [
        (Stage::Interpolate, transform(all, n, n, log_rows)),
        (Stage::Extend, transform(all, n, m, log_rows)),
        (Stage::Merkle, (4.0 * m * all + 96.0 * m, m * (hashes(trace) + hashes(interaction)) * hash)),
        (
            Stage::Constraints,
            (2.0 * n * (4.0 * all + 32.0), 2.0 * n * shape.row_operations as f64 * operation),
        ),
        (Stage::Composition, composition),
        (Stage::Samples, (4.0 * n * (all + 8.0) + 16.0 * n, n * ((all + 8.0) * PRODUCT + 300.0) * operation)),
        (Stage::Quotients, quotients),
        (Stage::Fri, (2.0 * 16.0 * m * 1.5 + 192.0 * m, m * (4.0 * hash + 120.0 * operation))),
    ];
    work.map(|(stage, (bytes, seconds))| (stage, (bytes / machine.bytes).max(seconds))).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of an H200: 4.3 TB/s, 16.7 T operations a second.
    #[test]
    fn a_million_rows_of_a_hundred_columns_take_some_milliseconds() {
        let machine = Machine::counted(4.3e12, 132.0 * 64.0 * 1.98e9);
        let shape = Shape {
            hash: Hash::Blake2s,
            log_rows: 20,
            columns: 100,
            interaction_columns: 0,
            row_operations: 500 + 588 + 1176,
        };
        let floors = floors(&machine, &shape, &PcsConfig::default());
        let total: f64 = floors.iter().map(|(_, seconds)| seconds).sum();
        assert!((3.0e-3..4.5e-3).contains(&total), "{total}");
        let of =
            |stage: Stage| floors.iter().find(|(of, _)| *of == stage).map_or(0.0, |(_, seconds)| *seconds);
        assert!((0.4e-3..0.6e-3).contains(&of(Stage::Interpolate)));
        assert!((0.7e-3..1.0e-3).contains(&of(Stage::Merkle)));
        let felts = Shape { hash: Hash::Poseidon252, ..shape };
        let total: f64 =
            super::floors(&machine, &felts, &PcsConfig::default()).iter().map(|(_, seconds)| seconds).sum();
        assert!((50e-3..70e-3).contains(&total), "29 million permutations take {total}");
        let rates = Rates {
            bytes: 4.3e12,
            butterflies: 1e15,
            compressions: machine.compressions,
            permutations: machine.permutations,
        };
        let measured = super::floors(&machine.measured(&rates), &shape, &PcsConfig::default());
        let bytes = 100.0 * 4.0 * 4.0 * f64::from(1 << 20);
        assert!((measured[0].1 / (bytes / 4.3e12) - 1.0).abs() < 1e-9, "memory is what is left");
        assert!(floors.iter().all(|(stage, _)| ![Stage::Grind, Stage::Openings].contains(stage)));
    }
}
