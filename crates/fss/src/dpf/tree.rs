//! Half-trees with 128-bit leaves.
//!
//! A node has a seed s whose lowest bit is its control bit t. With H the tree hash and CW the level's correction word,
//!
//! ```text
//! child x of s  =  H(s) ⊕ x s ⊕ t CW                       CW = H(s_0) ⊕ H(s_1) ⊕ ¬α_i Δ
//! leaf x of s   =  H(s with lowest bit x) ⊕ t CW_x          CW_x = H(..) ⊕ H(..) ⊕ [x is on the path] e_α
//! ```
//!
//! On the path to α the parties' seeds differ by Δ, whose lowest bit is one, so their control bits differ; off it they
//! are equal. One hash serves both children, and the control bits of children add up to their parent's, so a walk
//! yields the parity of everything right of it: each time it turns left, t(parent) ⊕ t(child) is the right sibling's.

use std::ops::Range;

use crate::key::SharedBytes;
use crate::lut::Table;
use crate::prg::{Cipher, TreeHash};
use crate::secret::Secret;

use super::LEAF_BITS;
use super::masked_sum::masked_sum;
#[cfg(target_arch = "x86_64")]
use super::vectors;

/// Keys of a tile. Within it words lie level by level, so that lanes side by side read words side by side; tiles follow each
/// other, so that a walk streams through memory.
pub(crate) const TILE: usize = 32;

/// Correction words of a batch, the same for both parties, as they lie in the key stream.
///
/// A tile of k keys has rows of k words: one row for each level but the last, then the last level's for left leaves, then for
/// right ones.
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
    fn leaf_word(&self, side: usize, key: usize) -> u128 {
        self.word(self.rows - 2 + side, key)
    }
}

/// All ones if the bit is one.
fn spread(bit: u64) -> u128 {
    u128::from(bit & 1).wrapping_neg()
}

/// Makes the correction words for `alphas`, given both parties' roots, whose lowest bits are 0 and 1. Also returns
/// e_0(α), which tells the dealer the sign of e_0 − e_1 there.
pub(crate) fn generate(
    hash: &TreeHash,
    domain: u32,
    roots: [Secret<u128>; 2],
    alphas: &[u64],
) -> (Secret<u128>, Secret<u64>) {
    let mut words = Secret::with_capacity(super::correction_words(domain) * alphas.len());
    let mut signs = Secret::with_capacity(alphas.len());
    for (tile, alphas) in alphas.chunks(TILE).enumerate() {
        let keys = tile * TILE..tile * TILE + alphas.len();
        let roots = roots.each_ref().map(|roots| Secret::new(roots[keys.clone()].to_vec()));
        let seeds = inner_levels(hash, domain, roots, alphas, &mut words);
        last_level(hash, seeds, alphas, &mut words, &mut signs);
    }
    (words, signs)
}

/// Appends the words of all levels of a tile but the last, and returns the seeds that the path has reached.
fn inner_levels(
    hash: &TreeHash,
    domain: u32,
    mut seeds: [Secret<u128>; 2],
    alphas: &[u64],
    words: &mut Vec<u128>,
) -> [Secret<u128>; 2] {
    #[cfg(target_arch = "x86_64")]
    if let Cipher::Vector(keys, width) = &hash.cipher
        && alphas.len() == TILE
    {
        vectors::inner_levels(*width, keys, domain, &mut seeds, alphas, words);
        return seeds;
    }
    let differences: Secret<u128> =
        seeds[0].iter().zip(seeds[1].iter()).map(|(zero, one)| zero ^ one).collect();
    let mut hashed = seeds.clone();
    for level in 0..domain - LEAF_BITS - 1 {
        for (hashed, seeds) in hashed.iter_mut().zip(&seeds) {
            hashed.copy_from_slice(seeds);
            hash.apply(hashed);
        }
        for key in 0..alphas.len() {
            let right = spread(alphas[key] >> (domain - 1 - level));
            let word = hashed[0][key] ^ hashed[1][key] ^ (!right & differences[key]);
            for (seeds, hashed) in seeds.iter_mut().zip(&hashed) {
                let seed = seeds[key];
                seeds[key] = hashed[key] ^ (right & seed) ^ (spread(seed as u64) & word);
            }
            words.push(word);
        }
    }
    seeds
}

/// Appends the words of the last level, and each key's e_0(α).
fn last_level(
    hash: &TreeHash,
    seeds: [Secret<u128>; 2],
    alphas: &[u64],
    words: &mut Vec<u128>,
    signs: &mut Secret<u64>,
) {
    let first = signs.len();
    signs.resize(first + alphas.len(), 0);
    let mut hashed = seeds.clone();
    for side in [0u64, 1] {
        for (hashed, seeds) in hashed.iter_mut().zip(&seeds) {
            for (leaf, seed) in hashed.iter_mut().zip(seeds.iter()) {
                *leaf = seed & !1 | u128::from(side);
            }
            hash.apply(hashed);
        }
        for (key, &alpha) in alphas.iter().enumerate() {
            let place = spread(!(alpha >> LEAF_BITS ^ side)) & unit(alpha);
            let word = hashed[0][key] ^ hashed[1][key] ^ place;
            let leaf = hashed[0][key] ^ (spread(seeds[0][key] as u64) & word);
            signs[first + key] ^= u64::from((leaf & place).count_ones()) & 1;
            words.push(word);
        }
    }
}

/// One at place α mod 128, by masks: the place is a secret.
fn unit(alpha: u64) -> u128 {
    let one = 1u128 << (alpha & 63);
    let upper = spread(alpha >> 6);
    (one & !upper) | (one << 64 & upper)
}

/// Bits above place x of a leaf; if x is left of its sibling, all the others instead, since the sibling's parity is its
/// parent's control bit and this leaf's parity together.
fn leaf_mask(point: u64) -> u128 {
    let above = (u128::MAX << 1) << (point & 127);
    above ^ !spread(point >> LEAF_BITS)
}

pub(super) fn finish(leaf: u128, parity: u128, point: u64) -> u64 {
    (u64::from((leaf & leaf_mask(point)).count_ones()) ^ parity as u64) & 1
}

pub(super) fn less_than(
    hash: &TreeHash,
    domain: u32,
    roots: &[u128],
    corrections: &Corrections,
    points: &[u64],
) -> Vec<u64> {
    let mut bits = vec![0; points.len()];
    if roots.is_empty() {
        return bits;
    }
    match &hash.cipher {
        #[cfg(target_arch = "x86_64")]
        Cipher::Vector(keys, width) => {
            let batch = vectors::Batch { domain, roots, corrections };
            vectors::less_than(*width, keys, &batch, points, &mut bits);
        }
        Cipher::Portable(_) => {
            for (points, bits) in points.chunks(roots.len()).zip(bits.chunks_mut(roots.len())) {
                portable(hash, domain, roots, corrections, points, bits);
            }
        }
    }
    bits
}

/// All keys side by side, level by level.
fn portable(
    hash: &TreeHash,
    domain: u32,
    roots: &[u128],
    corrections: &Corrections,
    points: &[u64],
    bits: &mut [u64],
) {
    let count = roots.len();
    let inner = (domain - LEAF_BITS - 1) as usize;
    let mut seeds = Secret::new(roots.to_vec());
    let mut parities = Secret::new(vec![0u128; count]);
    for level in 0..inner {
        let mut hashed = seeds.clone();
        hash.apply(&mut hashed);
        for key in 0..count {
            let right = spread(points[key] >> (domain - 1 - level as u32));
            let seed = seeds[key];
            let word = spread(seed as u64) & corrections.word(level, key);
            let child = hashed[key] ^ (right & seed) ^ word;
            parities[key] ^= !right & (seed ^ child);
            seeds[key] = child;
        }
    }
    let mut leaves = seeds.clone();
    for (leaf, point) in leaves.iter_mut().zip(points) {
        *leaf = *leaf & !1 | u128::from(point >> LEAF_BITS & 1);
    }
    hash.apply(&mut leaves);
    for key in 0..count {
        let right = spread(points[key] >> LEAF_BITS);
        let [left_word, right_word] = [0, 1].map(|side| corrections.leaf_word(side, key));
        let word = left_word ^ (right & (left_word ^ right_word));
        let leaf = leaves[key] ^ (spread(seeds[key] as u64) & word);
        bits[key] = finish(leaf, parities[key] ^ (!right & seeds[key]), points[key]);
    }
}

pub(super) fn lookup(
    hash: &TreeHash,
    domain: u32,
    roots: &[u128],
    corrections: &Corrections,
    points: &[u64],
    table: &Table,
) -> Vec<u64> {
    let sum = |(key, &point): (usize, &u64)| {
        let leaves = expand(hash, domain, roots, corrections, key);
        let words: Secret<u64> =
            Secret::new(leaves.iter().flat_map(|&leaf| [leaf as u64, (leaf >> 64) as u64]).collect());
        masked_sum(&words, table.window(point))
    };
    points.iter().enumerate().map(sum).collect()
}

/// All leaves of one key, in order.
pub(super) fn expand(
    hash: &TreeHash,
    domain: u32,
    roots: &[u128],
    corrections: &Corrections,
    key: usize,
) -> Secret<u128> {
    let inner = (domain - LEAF_BITS - 1) as usize;
    let mut seeds = Secret::new(vec![roots[key]]);
    for level in 0..inner {
        let word = corrections.word(level, key);
        let mut hashed = seeds.clone();
        hash.apply(&mut hashed);
        let children = seeds.iter().zip(hashed.iter()).flat_map(|(seed, hashed)| {
            let left = hashed ^ (spread(*seed as u64) & word);
            [left, left ^ seed]
        });
        seeds = Secret::new(children.collect());
    }
    let inputs = seeds.iter().flat_map(|seed| [seed & !1, seed | 1]);
    let mut leaves = Secret::new(inputs.collect::<Vec<_>>());
    hash.apply(&mut leaves);
    for (leaves, seed) in leaves.chunks_exact_mut(2).zip(seeds.iter()) {
        for (side, leaf) in leaves.iter_mut().enumerate() {
            *leaf ^= spread(*seed as u64) & corrections.leaf_word(side, key);
        }
    }
    leaves
}
