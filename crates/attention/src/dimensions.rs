//! Head dimensions: which there may be, and all that host code and kernels need to know of those that kernels
//! are made for, in one table. Rows of other lengths are padded to the next of them.

use std::ops::RangeInclusive;

use crate::{Error, Result};

/// A head dimension that kernels are made for.
#[derive(Debug)]
pub struct HeadDimension {
    /// Numbers of a row of queries and keys in the images that kernels read. Those of shorter rows end in
    /// zeros.
    pub dim: usize,
    /// Numbers of a row of values there.
    pub value_dim: usize,
    /// Columns of query and key tiles that lie together and are swizzled together in shared memory: 64 or
    /// 128.
    pub(crate) panel: usize,
    /// `1 / sqrt(n)`, which keeps a Hadamard transform of n numbers orthogonal, with n the largest power of
    /// two that divides `dim`.
    pub(crate) orthogonal: f32,
    /// Blocks of the attention kernel with one consumer, with two, and so on: as many as have room for their
    /// accumulators.
    pub(crate) blocks: &'static [Block],
    /// Consumers whose code with a soft cap is compiled without spills.
    pub(crate) capped: RangeInclusive<u32>,
    /// What suits long rows: found on an NVIDIA H200 for those lengths that were timed there.
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

/// Knobs of a schedule.
#[derive(Debug)]
pub(crate) struct Tuned {
    pub(crate) consumers: u32,
    pub(crate) stages: u32,
    pub(crate) turns: bool,
}

/// Every head dimension that kernels are made for, shortest first. `tuned` of 64 and 128 is from the records
/// 3da12d7496ed and cfea36af5533 of `results/nvidia-h200.jsonl`; of the others no
/// schedules were compared.
pub const HEAD_DIMENSIONS: &[HeadDimension] = &[
    HeadDimension {
        dim: 64,
        value_dim: 64,
        panel: 64,
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
        value_dim: 128,
        panel: 128,
        orthogonal: 0.088_388_346,
        blocks: &[
            Block { resident: 1, producer_registers: 40, consumer_registers: 248 },
            Block { resident: 1, producer_registers: 40, consumer_registers: 232 },
        ],
        capped: 2..=2,
        tuned: Tuned { consumers: 2, stages: 3, turns: true },
    },
    // Keys and values of multi-head latent attention (MLA), as a prefill without a cache has them. What
    // a consumer keeps is as for 128.
    HeadDimension {
        dim: 192,
        value_dim: 128,
        panel: 64,
        orthogonal: 0.125,
        blocks: &[
            Block { resident: 1, producer_registers: 40, consumer_registers: 248 },
            Block { resident: 1, producer_registers: 40, consumer_registers: 232 },
        ],
        capped: 2..=2,
        tuned: Tuned { consumers: 2, stages: 3, turns: true },
    },
    // Products with values come in slices: slices.cuh.
    HeadDimension {
        dim: 256,
        value_dim: 256,
        panel: 128,
        orthogonal: 0.0625,
        blocks: &[
            Block { resident: 1, producer_registers: 40, consumer_registers: 248 },
            Block { resident: 1, producer_registers: 24, consumer_registers: 240 },
        ],
        capped: 2..=2,
        tuned: Tuned { consumers: 2, stages: 2, turns: false },
    },
];

/// The longest row of any shape: that of the last of [`HEAD_DIMENSIONS`], and the longest on the CPU.
pub const MOST_DIM: usize = 256;
/// The longest row in a cache: the kernels over caches keep what 128 columns need.
const LONGEST_CACHED: usize = 128;

/// Refuses rows that no implementation computes.
pub(crate) fn check(dim: usize, value_dim: usize) -> Result<()> {
    for (name, dim) in [("head dimension", dim), ("value dimension", value_dim)] {
        if !(1..=MOST_DIM).contains(&dim) {
            return Err(Error::Unsupported { what: format!("{name} {dim}; 1 to {MOST_DIM} are supported") });
        }
    }
    Ok(())
}

impl HeadDimension {
    /// The row of the table that rows of these lengths are padded to, or an error that says how long they may
    /// be.
    pub fn of(dim: usize, value_dim: usize) -> Result<&'static Self> {
        check(dim, value_dim)?;
        let fits = |known: &&Self| dim <= known.dim && value_dim <= known.value_dim;
        HEAD_DIMENSIONS.iter().find(fits).ok_or_else(|| Error::Unsupported {
            what: format!("head dimension {dim} with values of {value_dim} on a device"),
        })
    }

    /// The row of `dim` itself, of those that there are caches of, or an error that says which there are.
    pub fn cached(dim: usize) -> Result<&'static Self> {
        let cached = || HEAD_DIMENSIONS.iter().filter(|known| known.dim <= LONGEST_CACHED);
        cached().find(|known| known.dim == dim).ok_or_else(|| {
            let known: Vec<String> = cached().map(|known| known.dim.to_string()).collect();
            let what = format!("a cache of head dimension {dim}; {} are supported", known.join(" and "));
            Error::Unsupported { what }
        })
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
    for HeadDimension { dim, value_dim, panel, orthogonal, blocks, .. } in HEAD_DIMENSIONS {
        let _ = writeln!(
            text,
            "template <> struct HeadDimension<{dim}> {{\n    static constexpr u32 value_dim = {value_dim}, panel = {panel};\n    \
             static constexpr gw::Swizzle swizzle = gw::SWIZZLE_{panel};\n    \
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
        assert!(HEAD_DIMENSIONS.is_sorted_by_key(|known| known.value_dim));
        let longest = HEAD_DIMENSIONS.last().unwrap();
        assert_eq!((longest.dim, longest.value_dim), (MOST_DIM, MOST_DIM));
        for known in HEAD_DIMENSIONS {
            let transformed = 1 << known.dim.trailing_zeros();
            assert!((known.orthogonal - 1.0 / (transformed as f32).sqrt()).abs() < 1e-8, "{}", known.dim);
            assert!([64, 128].contains(&known.panel) && known.dim.is_multiple_of(known.panel));
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
        let width = |dim: usize| HeadDimension::of(dim, dim).unwrap().dim;
        assert_eq!(
            [1, 63, 64, 65, 96, 128, 129, 192, 256].map(width),
            [64, 64, 64, 128, 128, 128, 256, 256, 256]
        );
        let widths = |dim: usize, value_dim: usize| {
            let known = HeadDimension::of(dim, value_dim).unwrap();
            (known.dim, known.value_dim)
        };
        assert_eq!(widths(192, 128), (192, 128));
        assert_eq!(widths(150, 70), (192, 128));
        assert_eq!(widths(64, 65), (128, 128));
        assert_eq!(widths(193, 1), (256, 256));
        assert_eq!(widths(1, 129), (256, 256));
        let said = |error: Error| error.to_string();
        for dim in [0, 257] {
            let error = said(HeadDimension::of(dim, 64).unwrap_err());
            assert_eq!(error, format!("unsupported attention: head dimension {dim}; 1 to 256 are supported"));
            let error = said(HeadDimension::of(64, dim).unwrap_err());
            assert_eq!(
                error,
                format!("unsupported attention: value dimension {dim}; 1 to 256 are supported")
            );
        }
        for dim in [96, 192, 256] {
            let error = said(HeadDimension::cached(dim).unwrap_err());
            let wanted = format!("a cache of head dimension {dim}; 64 and 128 are supported");
            assert_eq!(error, format!("unsupported attention: {wanted}"));
        }
    }
}
