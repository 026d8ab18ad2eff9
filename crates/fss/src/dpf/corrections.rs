//! Correction words as they lie, and what is read at the end of a walk.

use std::ops::Range;

use crate::secret::SharedBytes;

use super::LEAF_BITS;

/// Keys of a tile. Within it words lie level by level, so that lanes side by side read words side by side;
/// tiles follow each other, so that a walk streams through memory.
pub(crate) const TILE: usize = 32;

/// Correction words of a batch, the same for both parties, as they lie in the key stream.
///
/// A tile of k keys has rows of k words: one row for each level but the last, then the last level's for left
/// leaves, then for right ones.
pub(crate) struct Corrections {
    pub(super) bytes: SharedBytes,
    count: usize,
    pub(super) rows: usize,
}

impl Corrections {
    /// `bytes` holds the words of `count` keys.
    pub(crate) fn new(domain: u32, count: usize, bytes: SharedBytes) -> Self {
        let rows = (domain - LEAF_BITS + 1) as usize;
        debug_assert_eq!(bytes.as_slice().len(), 16 * rows * count);
        Self { bytes, count, rows }
    }

    /// Those of some keys, from the first of a tile on.
    pub(super) fn part(&self, keys: Range<usize>) -> Self {
        debug_assert!(keys.start.is_multiple_of(TILE) && keys.end <= self.count);
        let bytes = self.bytes.part(16 * self.rows * keys.start, 16 * self.rows * keys.len());
        Self { bytes, count: keys.len(), rows: self.rows }
    }

    /// Keys of the tile that holds `key`.
    pub(super) fn tile_keys(&self, key: usize) -> usize {
        TILE.min(self.count - key / TILE * TILE)
    }

    /// Where the word of a row and a key lies, in words.
    pub(super) fn place(&self, row: usize, key: usize) -> usize {
        key / TILE * TILE * self.rows + row * self.tile_keys(key) + key % TILE
    }

    pub(super) fn word(&self, row: usize, key: usize) -> u128 {
        let at = 16 * self.place(row, key);
        let mut word = [0; 16];
        word.copy_from_slice(&self.bytes.as_slice()[at..at + 16]);
        u128::from_le_bytes(word)
    }

    /// The last level's word for a left or a right leaf.
    pub(super) fn leaf_word(&self, side: usize, key: usize) -> u128 {
        self.word(self.rows - 2 + side, key)
    }
}

pub(super) fn finish(leaf: u128, parity: u128, point: u64) -> u64 {
    (u64::from((leaf & leaf_mask(point)).count_ones()) ^ parity as u64) & 1
}

/// Bits above place x of a leaf; if x is left of its sibling, all the others instead, since the sibling's
/// parity is its parent's control bit and this leaf's parity together.
fn leaf_mask(point: u64) -> u128 {
    let above = (u128::MAX << 1) << (point & 127);
    above ^ !spread(point >> LEAF_BITS)
}

/// All ones if the bit is one.
pub(super) fn spread(bit: u64) -> u128 {
    u128::from(bit & 1).wrapping_neg()
}
