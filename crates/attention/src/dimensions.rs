//! Head dimensions: which there may be, and all that host code and kernels need to know of those that kernels
//! are made for, in one table. Rows of other lengths are padded to the next of them.

use std::ops::RangeInclusive;

use crate::{Error, Result};

/// A head dimension that kernels are made for.
#[derive(Debug)]
pub struct HeadDimension {
    /// Numbers of a row of the images that kernels read. Those of shorter rows end in zeros.
    pub dim: usize,
    /// How rows of query and key tiles are swizzled in shared memory: a name of `gw/swizzle.cuh`.
    pub(crate) swizzle: &'static str,
    /// `1 / sqrt(dim)`, which keeps a Hadamard transform orthogonal.
    pub(crate) orthogonal: f32,
    /// Blocks of the attention kernel with one consumer, with two, and so on: as many as have room for their
    /// accumulators.
    pub(crate) blocks: &'static [Block],
    /// Consumers whose code with a soft cap is compiled without spills.
    pub(crate) capped: RangeInclusive<u32>,
    /// What was found fastest for long rows on an NVIDIA H200.
    pub(crate) tuned: Tuned,
}

/// What a block of the attention kernel takes.
#[derive(Debug)]
pub(crate) struct Block {
    /// Blocks that a multiprocessor has room for: two small ones, so that those of the next launch can get
    /// ready.
    pub(crate) resident: u32,
    /// Registers of a thread of the warpgroup that copies.
    pub(crate) producer_registers: u32,
    /// Registers of a thread of the others.
    pub(crate) consumer_registers: u32,
}

/// Knobs of a schedule that were searched for.
#[derive(Debug)]
pub(crate) struct Tuned {
    pub(crate) consumers: u32,
    pub(crate) stages: u32,
    pub(crate) turns: bool,
}

/// Every head dimension that kernels are made for. `tuned` is from the records 3da12d7496ed and cfea36af5533 of
/// `results/nvidia-h200.jsonl`.
pub const HEAD_DIMENSIONS: &[HeadDimension] = &[
    HeadDimension {
        dim: 64,
        swizzle: "SWIZZLE_64",
        orthogonal: 0.125,
        blocks: &[
            Block { resident: 2, producer_registers: 40, consumer_registers: 208 },
            Block { resident: 1, producer_registers: 40, consumer_registers: 232 },
            Block { resident: 1, producer_registers: 32, consumer_registers: 160 },
        ],
        capped: 1..=2,
        tuned: Tuned { consumers: 3, stages: 4, turns: false },
    },
    HeadDimension {
        dim: 128,
        swizzle: "SWIZZLE_128",
        orthogonal: 0.088_388_346,
        blocks: &[
            Block { resident: 1, producer_registers: 40, consumer_registers: 248 },
            Block { resident: 1, producer_registers: 40, consumer_registers: 232 },
        ],
        capped: 2..=2,
        tuned: Tuned { consumers: 2, stages: 3, turns: true },
    },
];

/// The longest row of any shape: on the CPU. A device computes rows up to the last of [`HEAD_DIMENSIONS`].
pub const MOST_DIM: usize = 256;

/// Refuses rows that no implementation computes.
pub(crate) fn check(dim: usize) -> Result<()> {
    if (1..=MOST_DIM).contains(&dim) {
        return Ok(());
    }
    Err(Error::Unsupported { what: format!("head dimension {dim}; 1 to {MOST_DIM} are supported") })
}

impl HeadDimension {
    /// The row of the table that rows of `dim` numbers are padded to, or an error that says how long they may
    /// be.
    pub fn of(dim: usize) -> Result<&'static Self> {
        check(dim)?;
        HEAD_DIMENSIONS.iter().find(|known| dim <= known.dim).ok_or_else(|| Error::Unsupported {
            what: format!(
                "head dimension {dim} on a device; {} at most, and {MOST_DIM} on the CPU",
                Self::longest()
            ),
        })
    }

    /// The table's row for `dim` itself, or an error that says which there are.
    pub fn exactly(dim: usize) -> Result<&'static Self> {
        HEAD_DIMENSIONS.iter().find(|known| known.dim == dim).ok_or_else(|| {
            let known: Vec<String> = HEAD_DIMENSIONS.iter().map(|known| known.dim.to_string()).collect();
            let what = format!("a cache of head dimension {dim}; {} are supported", known.join(" and "));
            Error::Unsupported { what }
        })
    }

    fn longest() -> usize {
        HEAD_DIMENSIONS[HEAD_DIMENSIONS.len() - 1].dim
    }

    /// How many consumers a block may have.
    pub(crate) fn consumers(&self, has_soft_cap: bool) -> RangeInclusive<u32> {
        if has_soft_cap { self.capped.clone() } else { 1..=self.most_consumers() }
    }

    /// Consumers whose accumulators fit into a multiprocessor's registers.
    pub fn most_consumers(&self) -> u32 {
        self.blocks.len() as u32
    }
}

/// Appends the table to a header: a dimension, or a number of consumers, that is not in it does not compile.
pub(crate) fn declare(text: &mut String) {
    use std::fmt::Write as _;
    text.push_str("template <u32> struct HeadDimension;\ntemplate <u32, u32> struct Block;\n");
    for HeadDimension { dim, swizzle, orthogonal, blocks, .. } in HEAD_DIMENSIONS {
        let _ = writeln!(
            text,
            "template <> struct HeadDimension<{dim}> {{\n    static constexpr gw::Swizzle swizzle = gw::{swizzle};\n    \
             static constexpr f32 orthogonal = {orthogonal:?}f;\n}};"
        );
        for (index, Block { resident, producer_registers, consumer_registers }) in blocks.iter().enumerate() {
            let consumers = index + 1;
            let _ = writeln!(
                text,
                "template <> struct Block<{dim}, {consumers}> {{\n    static constexpr u32 resident = {resident}, \
                 producer_registers = {producer_registers}, consumer_registers = {consumer_registers};\n}};"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_consistent() {
        assert!(HEAD_DIMENSIONS.is_sorted_by_key(|known| known.dim));
        for known in HEAD_DIMENSIONS {
            assert!((known.orthogonal - 1.0 / (known.dim as f32).sqrt()).abs() < 1e-8, "{}", known.dim);
            assert!((1..=known.most_consumers()).contains(&known.tuned.consumers));
            for (index, block) in known.blocks.iter().enumerate() {
                let consumers = index as u32 + 1;
                let registers = 128 * (block.producer_registers + consumers * block.consumer_registers);
                assert!(block.resident * registers <= 65536, "{} {consumers}", known.dim);
            }
        }
    }

    #[test]
    fn rows_are_padded_to_the_next_dimension_and_longer_ones_refused() {
        let width = |dim: usize| HeadDimension::of(dim).unwrap().dim;
        assert_eq!([1, 63, 64, 65, 96, 128].map(width), [64, 64, 64, 128, 128, 128]);
        let said = |error: Error| error.to_string();
        assert_eq!(
            said(HeadDimension::of(129).unwrap_err()),
            "unsupported attention: head dimension 129 on a device; 128 at most, and 256 on the CPU"
        );
        for dim in [0, 257] {
            let error = said(HeadDimension::of(dim).unwrap_err());
            assert_eq!(error, format!("unsupported attention: head dimension {dim}; 1 to 256 are supported"));
        }
        let cache = said(HeadDimension::exactly(96).unwrap_err());
        assert_eq!(cache, "unsupported attention: a cache of head dimension 96; 64 and 128 are supported");
    }
}
