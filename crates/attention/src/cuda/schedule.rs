//! How the attention kernel is run: the knobs, which values suit a shape, and who works on what.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gatework_gpu::DeviceProperties;

use super::{KEY_TILE, LARGEST_GROUP, QUERY_TILE};
use crate::dimensions::{HeadDimension, Tuned};
use crate::shared::{self, BARRIER_BYTES, NO_ITEM, SUM_ROWS, WARPGROUP};
use crate::{Bits, Error, Mask, Result, Shape};

/// Knobs of attention.cuh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Warpgroups of 64 query rows in a block.
    pub consumers: u32,
    /// Tiles of keys, each with the values of the tile before, in flight.
    pub stages: u32,
    /// Whether the warpgroups of a block issue their products in turn.
    pub turns: bool,
    /// Whether there are no more blocks than multiprocessors, each with a list of rows to work on.
    pub persistent: bool,
    /// Parts of the keys that different blocks work on; a second launch combines what they find.
    pub parts: Parts,
    /// How codes of weights are found between powers of two.
    pub exponential: Exponential,
}

/// How keys are cut into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Into so many, of whole groups of values. One is no cut.
    Count(u32),
    /// Into parts of so many tiles, a multiple of four, the last with what is left: a row's bits then depend
    /// on its own keys alone.
    OfTiles(u32),
}

/// Codes of `2^y` between powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exponential {
    /// A straight line: up to two thirds of a code too high.
    Line,
    /// A parabola: right to a fiftieth of a code.
    #[default]
    Parabola,
}

/// What a block spends on an item besides its tiles, in tiles.
pub(super) const ITEM_OVERHEAD: u64 = 2;
/// Keys that are worth a part of their own: fewer take less time than combining does.
const PART_TILES: usize = 2 * LARGEST_GROUP;
/// Parts of the keys where bits may not depend on the batch: 2048 keys each, of rows that are one block.
const INVARIANT_PART_TILES: u32 = 16;

/// Stages of a ring at most: no card has the memory for more.
const MOST_STAGES: u32 = 64;

impl Schedule {
    /// What suits a shape on a device: as many rows a block as still give every multiprocessor work; parts of
    /// the keys if even single warpgroups of rows do not, and bits may depend on that.
    pub fn suited(shape: &Shape, mask: Mask, bits: Bits, device: &DeviceProperties) -> Result<Self> {
        let blocks =
            |consumers: usize| shape.batch * shape.heads * shape.rows.div_ceil(QUERY_TILE * consumers);
        let multiprocessors = device.multiprocessors as usize;
        let most = Self::most_consumers(shape.dim, shape.value_dim)? as usize;
        let consumers = (2..=most).rev().find(|&consumers| blocks(consumers) >= multiprocessors).unwrap_or(1);
        let parts = match bits {
            Bits::Repeatable => {
                let most = span_tiles(shape, mask, QUERY_TILE * consumers).div_ceil(PART_TILES);
                Parts::Count((multiprocessors / blocks(consumers)).clamp(1, most) as u32)
            }
            Bits::BatchInvariant if shape.rows <= QUERY_TILE => Parts::OfTiles(INVARIANT_PART_TILES),
            Bits::BatchInvariant => Parts::Count(1),
        };
        Ok(Self { consumers: consumers as u32, parts, ..Self::usual(shape.dim, shape.value_dim)? })
    }

    /// What suits long rows of these lengths. Few rows take fewer consumers: [`Schedule::suited`].
    pub fn usual(dim: usize, value_dim: usize) -> Result<Self> {
        let Tuned { consumers, stages, turns } = HeadDimension::of(dim, value_dim)?.tuned;
        let exponential = Exponential::Parabola;
        Ok(Self { consumers, stages, turns, persistent: true, parts: Parts::Count(1), exponential })
    }

    /// Whether the kernel can run like this.
    pub(super) fn check(&self, shape: &Shape, mask: Mask, device: &DeviceProperties) -> Result<()> {
        let refuse = |what: String| Err(Error::Unsupported { what });
        let known = HeadDimension::of(shape.dim, shape.value_dim)?;
        if !(2..=MOST_STAGES).contains(&self.stages) {
            return refuse(format!("{} stages; there may be 2 to {MOST_STAGES}", self.stages));
        }
        let (bytes, limit) = (self.shared_bytes(known), device.shared_memory_per_block);
        if bytes > limit {
            let stages = self.stages;
            return refuse(format!("{stages} stages of {bytes} bytes; {limit} fit"));
        }
        let (keys, groups) = (shape.keys, self.span_groups(shape, mask));
        match self.parts {
            Parts::Count(count) if count == 0 || count as usize > groups => {
                refuse(format!("{count} parts of {keys} keys; there may be 1 to {groups}"))
            }
            Parts::OfTiles(tiles) if tiles == 0 || !(tiles as usize).is_multiple_of(LARGEST_GROUP) => {
                refuse(format!(
                    "parts of {tiles} tiles; it must be a multiple of {LARGEST_GROUP}, and at least that"
                ))
            }
            Parts::Count(_) | Parts::OfTiles(_) => Ok(()),
        }
    }

    /// Consumers whose accumulators fit into a multiprocessor's registers.
    pub fn most_consumers(dim: usize, value_dim: usize) -> Result<u32> {
        Ok(HeadDimension::of(dim, value_dim)?.most_consumers())
    }

    /// Query rows of a block.
    pub fn block_rows(&self) -> usize {
        QUERY_TILE * self.consumers as usize
    }

    /// Threads of a block: its consumers and one warpgroup that copies.
    pub fn threads(&self) -> u32 {
        WARPGROUP * (self.consumers + 1)
    }

    /// Shared memory of a block: queries, a ring of keys and values, and the barriers.
    pub fn shared_bytes(&self, known: &HeadDimension) -> u32 {
        let (width, value_width) = (known.dim as u32, known.value_dim as u32);
        let Self { consumers, stages, .. } = *self;
        let pair = shared::KEY_TILE * width + (value_width + SUM_ROWS) * shared::KEY_TILE;
        consumers * shared::QUERY_TILE * width + stages * pair + BARRIER_BYTES * (2 + 2 * stages)
    }

    /// Parts of the keys that a block of rows sees.
    pub fn splits(&self, shape: &Shape, mask: Mask) -> usize {
        match self.parts {
            Parts::Count(count) => count as usize,
            Parts::OfTiles(tiles) => span_tiles(shape, mask, self.block_rows()).div_ceil(tiles as usize),
        }
    }

    /// Tiles of each part of the keys: whole groups of values.
    pub(super) fn split_tiles(&self, shape: &Shape, mask: Mask) -> usize {
        match self.parts {
            Parts::Count(count) => self.span_groups(shape, mask).div_ceil(count as usize) * LARGEST_GROUP,
            Parts::OfTiles(tiles) => tiles as usize,
        }
    }

    fn span_groups(&self, shape: &Shape, mask: Mask) -> usize {
        span_tiles(shape, mask, self.block_rows()).div_ceil(LARGEST_GROUP)
    }

    /// Blocks of rows of all heads, in all parts of the keys.
    pub(super) fn items(&self, shape: &Shape, mask: Mask) -> usize {
        shape.batch * shape.heads * shape.rows.div_ceil(self.block_rows()) * self.splits(shape, mask)
    }

    /// Whether blocks have several items each.
    pub(super) fn has_lists(&self, shape: &Shape, mask: Mask, multiprocessors: usize) -> bool {
        self.persistent && self.splits(shape, mask) == 1 && self.items(shape, mask) > multiprocessors
    }

    /// The items of each block, place by place: block b of n has those at b, b + n, b + 2 n, ... Empty where
    /// each block has one. Longest first, to the block that is free first; heads in groups whose keys and
    /// values fit into the cache.
    pub(super) fn lists(
        &self,
        known: &HeadDimension,
        shape: &Shape,
        mask: Mask,
        device: &DeviceProperties,
    ) -> Vec<u32> {
        let (items, multiprocessors) = (self.items(shape, mask), device.multiprocessors as usize);
        if !self.has_lists(shape, mask, multiprocessors) {
            return Vec::new();
        }
        let heads = shape.batch * shape.heads;
        let rows_of_head = items / heads;
        // Half of the cache: the rest is for queries and outputs that pass through.
        let cached =
            device.l2_bytes as usize / 2 / (shape.keys * (known.dim + known.value_dim + SUM_ROWS as usize));
        let group = (cached * (shape.heads / shape.key_heads)).clamp(1, heads);
        let mut lists = vec![Vec::new(); multiprocessors];
        let mut free: BinaryHeap<_> = (0..multiprocessors).map(|block| Reverse((0, block))).collect();
        for first in (0..heads).step_by(group) {
            for item in 0..rows_of_head {
                let cost = self.tiles(shape, mask, rows_of_head - 1 - item) + ITEM_OVERHEAD;
                for head in first..heads.min(first + group) {
                    let Some(Reverse((busy, block))) = free.pop() else { continue };
                    lists[block].push((head * rows_of_head + item) as u32);
                    free.push(Reverse((busy + cost, block)));
                }
            }
        }
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        let place = |place: usize| lists.iter().map(move |list| list.get(place).copied().unwrap_or(NO_ITEM));
        (0..longest).flat_map(place).collect()
    }

    /// Tiles that a head's block of rows sees.
    pub(super) fn tiles(&self, shape: &Shape, mask: Mask, block: usize) -> u64 {
        let (first, end) = (block * self.block_rows(), (block + 1) * self.block_rows());
        let seen = shape.visible(first, mask).start..shape.visible(end - 1, mask).end.min(shape.keys);
        seen.end.div_ceil(KEY_TILE).saturating_sub(seen.start / KEY_TILE) as u64
    }
}

/// Most tiles that a block of so many rows sees, from the first of its first group of values on.
fn span_tiles(shape: &Shape, mask: Mask, block_rows: usize) -> usize {
    let keys = match mask {
        Mask::Full | Mask::Causal => shape.keys,
        // A window starts anywhere in a group.
        Mask::Window { left, right } => {
            let seen = left.saturating_add(right).saturating_add(block_rows);
            seen.saturating_add(LARGEST_GROUP * KEY_TILE).min(shape.keys)
        }
    };
    keys.div_ceil(KEY_TILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(multiprocessors: u32) -> DeviceProperties {
        let emulated = gatework_gpu::Device::emulated(0).unwrap();
        DeviceProperties { multiprocessors, l2_bytes: 50 << 20, ..emulated.properties().clone() }
    }

    #[test]
    fn lists_hold_every_item_once_and_are_balanced() {
        for (shape, mask) in [
            (Shape::square(4, 16, 4096, 64), Mask::Causal),
            (Shape::square(1, 16, 16384, 128), Mask::Full),
            (Shape { key_heads: 8, ..Shape::square(1, 64, 4096, 128) }, Mask::Causal),
            (Shape { keys: 1000, ..Shape::square(3, 5, 3001, 128) }, Mask::Causal),
            (Shape::square(2, 16, 8192, 64), Mask::Window { left: 1023, right: 0 }),
        ] {
            let schedule = Schedule::usual(shape.dim, shape.value_dim).unwrap();
            let lists = schedule.lists(
                HeadDimension::of(shape.dim, shape.value_dim).unwrap(),
                &shape,
                mask,
                &device(132),
            );
            assert_eq!(lists.len() % 132, 0);
            let mut found: Vec<u32> = lists.iter().copied().filter(|&item| item != NO_ITEM).collect();
            found.sort_unstable();
            assert!(found.iter().copied().eq(0..schedule.items(&shape, mask) as u32), "{shape:?}");
            let rows_of_head = shape.rows.div_ceil(schedule.block_rows());
            let cost = |item: u32| {
                schedule.tiles(&shape, mask, rows_of_head - 1 - item as usize % rows_of_head) + ITEM_OVERHEAD
            };
            let load = |block: usize| -> u64 {
                lists
                    .iter()
                    .skip(block)
                    .step_by(132)
                    .filter(|&&item| item != NO_ITEM)
                    .map(|&item| cost(item))
                    .sum()
            };
            let loads: Vec<u64> = (0..132).map(load).collect();
            let (most, mean) = (loads.iter().copied().max().unwrap(), loads.iter().sum::<u64>() / 132);
            // No list can be much better: half of one of its longest items.
            let longest = (0..rows_of_head).map(|block| schedule.tiles(&shape, mask, block)).max().unwrap();
            assert!(
                most <= mean + longest.div_ceil(2) + ITEM_OVERHEAD,
                "{shape:?}: {most}, on average {mean}"
            );
        }
    }

    #[test]
    fn a_place_after_a_blocks_last_item_has_none() {
        let shape = Shape::square(1, 3, 700, 64);
        let schedule = Schedule { consumers: 1, ..Schedule::usual(64, 64).unwrap() };
        let lists = schedule.lists(HeadDimension::of(64, 64).unwrap(), &shape, Mask::Full, &device(2));
        for block in 0..2 {
            let list: Vec<u32> = lists.iter().copied().skip(block).step_by(2).collect();
            let end = list.iter().position(|&item| item == NO_ITEM).unwrap_or(list.len());
            assert!(list[end..].iter().all(|&item| item == NO_ITEM));
        }
    }

    #[test]
    fn keys_are_split_where_rows_are_few() {
        let suited =
            |shape: Shape| Schedule::suited(&shape, Mask::Full, Bits::Repeatable, &device(132)).unwrap();
        let one_row = Shape { rows: 1, ..Shape::square(1, 16, 16384, 128) };
        assert_eq!(suited(one_row).parts, Parts::Count(8));
        assert_eq!(suited(Shape::square(1, 8, 512, 64)).parts, Parts::Count(1));
        assert_eq!(suited(Shape::square(4, 16, 4096, 64)), Schedule::usual(64, 64).unwrap());
    }

    #[test]
    fn invariant_parts_depend_on_the_sequence_alone() {
        for (rows, keys, wanted) in [(1, 16384, 8), (64, 16385, 9), (65, 16384, 1), (1, 1, 1), (7, 2048, 1)] {
            for (batch, heads, multiprocessors) in [(1, 1, 132), (16, 32, 132), (3, 5, 2)] {
                let shape = Shape { batch, heads, key_heads: 1, rows, keys, dim: 128, value_dim: 128 };
                let device = device(multiprocessors);
                let found = Schedule::suited(&shape, Mask::Full, Bits::BatchInvariant, &device).unwrap();
                assert_eq!(found.splits(&shape, Mask::Full), wanted, "{shape:?}");
            }
        }
    }

    #[test]
    fn no_schedule_suits_an_unknown_head_dimension() {
        let shape = Shape::square(1, 1, 64, 300);
        let known =
            [Schedule::usual(300, 64), Schedule::suited(&shape, Mask::Full, Bits::Repeatable, &device(132))];
        assert!(known.iter().all(Result::is_err) && Schedule::most_consumers(64, 300).is_err());
    }
}
