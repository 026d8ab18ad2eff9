//! Half-trees with 128-bit leaves.
//!
//! A node has a seed s whose lowest bit is its control bit t. With H the tree hash and CW the level's
//! correction word,
//!
//! ```text
//! child x of s  =  H(s) ⊕ x s ⊕ t CW                       CW = H(s_0) ⊕ H(s_1) ⊕ ¬α_i Δ
//! leaf x of s   =  H(s with lowest bit x) ⊕ t CW_x          CW_x = H(..) ⊕ H(..) ⊕ [x is on the path] e_α
//! ```
//!
//! On the path to α the parties' seeds differ by Δ, whose lowest bit is one, so their control bits differ;
//! off it they are equal. One hash serves both children, and the control bits of children add up to their
//! parent's, so a walk yields the parity of everything right of it: each time it turns left, t(parent) ⊕
//! t(child) is the right sibling's.

use crate::prg::{Cipher, TreeHash};
use crate::secret::Secret;
use crate::table::Table;

use super::LEAF_BITS;
use super::corrections::{Corrections, TILE, finish, spread};
use super::masked_sum::masked_sum;

#[cfg(target_arch = "x86_64")]
use super::vectors;

/// Makes the correction words for `alphas`, given both parties' roots, whose lowest bits are 0 and 1. Also
/// returns e_0(α), which tells the dealer the sign of e_0 − e_1 there.
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
            hash.calls.add(points.len() * (domain - LEAF_BITS) as usize);
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
