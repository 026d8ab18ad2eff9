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

use zeroize::Zeroizing;

use crate::lut::Table;
use crate::prg::{Cipher, TreeHash};
use crate::tensor::Words;

use super::LEAF_BITS;
use super::masked_sum::masked_sum;

/// Correction words of a batch, the same for both parties.
pub(crate) struct Corrections {
    /// `levels[level * count + key]`, without the last level.
    pub(crate) levels: Vec<u128>,
    /// The last level's, for left and for right leaves.
    pub(crate) leaves: [Vec<u128>; 2],
}

/// All ones if the bit is one.
fn spread(bit: u64) -> u128 {
    u128::from(bit & 1).wrapping_neg()
}

/// Makes the correction words for `alphas`, given both parties' roots, whose lowest bits are 0 and 1. Also returns
/// e_0[α], which tells the dealer the sign of e_0 − e_1 there.
pub(crate) fn generate(
    hash: &TreeHash,
    domain: u32,
    mut seeds: [Zeroizing<Vec<u128>>; 2],
    alphas: &[u64],
) -> (Corrections, Words) {
    let count = alphas.len();
    let inner = domain - LEAF_BITS - 1;
    let mut levels = Vec::with_capacity(inner as usize * count);
    let differences: Zeroizing<Vec<u128>> =
        Zeroizing::new(seeds[0].iter().zip(seeds[1].iter()).map(|(zero, one)| zero ^ one).collect());
    for level in 0..inner {
        let mut hashed = seeds.clone();
        hashed.iter_mut().for_each(|hashed| hash.apply(hashed));
        for key in 0..count {
            let right = spread(alphas[key] >> (domain - 1 - level));
            let word = hashed[0][key] ^ hashed[1][key] ^ (!right & differences[key]);
            for (seeds, hashed) in seeds.iter_mut().zip(&hashed) {
                let seed = seeds[key];
                seeds[key] = hashed[key] ^ (right & seed) ^ (spread(seed as u64) & word);
            }
            levels.push(word);
        }
    }
    let mut signs = Zeroizing::new(vec![0; count]);
    let leaves = [0u64, 1].map(|side| {
        let mut hashed = seeds.clone();
        for leaves in &mut hashed {
            leaves.iter_mut().for_each(|seed| *seed = *seed & !1 | u128::from(side));
            hash.apply(leaves);
        }
        let word = |key: usize| {
            let alpha = alphas[key];
            let place = spread(!(alpha >> LEAF_BITS ^ side)) & unit(alpha);
            let word = hashed[0][key] ^ hashed[1][key] ^ place;
            let leaf = hashed[0][key] ^ (spread(seeds[0][key] as u64) & word);
            signs[key] ^= u64::from((leaf & place).count_ones()) & 1;
            word
        };
        (0..count).map(word).collect()
    });
    (Corrections { levels, leaves }, signs)
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

fn finish(leaf: u128, parity: u128, point: u64) -> u64 {
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
    let mut seeds = Zeroizing::new(roots.to_vec());
    let mut parities = Zeroizing::new(vec![0u128; count]);
    for level in 0..inner {
        let mut hashed = seeds.clone();
        hash.apply(&mut hashed);
        for key in 0..count {
            let right = spread(points[key] >> (domain - 1 - level as u32));
            let seed = seeds[key];
            let word = spread(seed as u64) & corrections.levels[level * count + key];
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
        let [left_word, right_word] = [&corrections.leaves[0][key], &corrections.leaves[1][key]];
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
        let words: Zeroizing<Vec<u64>> =
            Zeroizing::new(leaves.iter().flat_map(|&leaf| [leaf as u64, (leaf >> 64) as u64]).collect());
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
) -> Zeroizing<Vec<u128>> {
    let count = roots.len();
    let inner = (domain - LEAF_BITS - 1) as usize;
    let mut seeds = Zeroizing::new(vec![roots[key]]);
    for level in 0..inner {
        let word = corrections.levels[level * count + key];
        let mut hashed = seeds.clone();
        hash.apply(&mut hashed);
        let children = seeds.iter().zip(hashed.iter()).flat_map(|(seed, hashed)| {
            let left = hashed ^ (spread(*seed as u64) & word);
            [left, left ^ seed]
        });
        seeds = Zeroizing::new(children.collect());
    }
    let inputs = seeds.iter().flat_map(|seed| [seed & !1, seed | 1]);
    let mut leaves = Zeroizing::new(inputs.collect::<Vec<_>>());
    hash.apply(&mut leaves);
    for (leaves, seed) in leaves.chunks_exact_mut(2).zip(seeds.iter()) {
        for (leaf, words) in leaves.iter_mut().zip(&corrections.leaves) {
            *leaf ^= spread(*seed as u64) & words[key];
        }
    }
    leaves
}

#[cfg(target_arch = "x86_64")]
mod vectors {
    use std::arch::x86_64::*;

    use crate::prg::vector::{RoundKeys, Vector, Width, aes, at_width, sigma};

    use super::super::LEAF_BITS;
    use super::{Corrections, finish};

    pub(super) struct Batch<'a> {
        pub(super) domain: u32,
        pub(super) roots: &'a [u128],
        pub(super) corrections: &'a Corrections,
    }

    /// Most keys that walk at once.
    const MOST: usize = 32;

    pub(super) fn less_than(
        width: Width,
        keys: &RoundKeys,
        batch: &Batch<'_>,
        points: &[u64],
        bits: &mut [u64],
    ) {
        at_width!(width, walk_all::<8>, (keys: &RoundKeys, batch: &Batch<'_>, points: &[u64], bits: &mut [u64]));
    }

    /// # Safety
    /// As [`Vector`].
    #[inline(always)]
    unsafe fn walk_all<V: Vector, const LANES: usize>(
        keys: &RoundKeys,
        batch: &Batch<'_>,
        points: &[u64],
        bits: &mut [u64],
    ) {
        let count = batch.roots.len();
        let step = LANES * V::BLOCKS;
        // SAFETY: passed on.
        let round_keys = keys.0.map(|key| unsafe { V::splat(key) });
        let full = count - count % step;
        for start in (0..full).step_by(step) {
            for offset in (0..points.len()).step_by(count) {
                let at = offset + start;
                // SAFETY: there are `step` keys from `start` on, and as many points.
                unsafe {
                    walk::<V, LANES>(
                        &round_keys,
                        batch,
                        start,
                        &points[at..at + step],
                        &mut bits[at..at + step],
                    );
                }
            }
        }
        if full == count {
            return;
        }
        // The last few keys, filled up with copies of zeros to a whole step.
        let rest = count - full;
        let fill = |blocks: &[u128]| {
            let mut padded = blocks.to_vec();
            padded.resize(step, 0);
            padded
        };
        let corrections = batch.corrections;
        let padded = Corrections {
            levels: corrections.levels.chunks_exact(count).flat_map(|level| fill(&level[full..])).collect(),
            leaves: [0, 1].map(|side| fill(&corrections.leaves[side][full..])),
        };
        let roots = zeroize::Zeroizing::new(fill(&batch.roots[full..]));
        let last = Batch { domain: batch.domain, roots: &roots, corrections: &padded };
        for offset in (0..points.len()).step_by(count) {
            let at = offset + full;
            let (mut last_points, mut last_bits) = ([0; MOST], [0; MOST]);
            last_points[..rest].copy_from_slice(&points[at..at + rest]);
            // SAFETY: the padded batch has `step` keys.
            unsafe {
                walk::<V, LANES>(&round_keys, &last, 0, &last_points[..step], &mut last_bits[..step]);
            }
            bits[at..at + rest].copy_from_slice(&last_bits[..rest]);
        }
    }

    /// `LANES * BLOCKS` keys from `start` on, side by side.
    ///
    /// # Safety
    /// As [`Vector`]; the batch has that many keys from `start` on.
    #[inline(always)]
    unsafe fn walk<V: Vector, const LANES: usize>(
        round_keys: &[V; 11],
        batch: &Batch<'_>,
        start: usize,
        points: &[u64],
        bits: &mut [u64],
    ) {
        let count = batch.roots.len();
        let inner = (batch.domain - LEAF_BITS - 1) as usize;
        let mut shifted = [0u64; MOST];
        for (shifted, point) in shifted.iter_mut().zip(points) {
            *shifted = point << (64 - batch.domain);
        }
        let (mut leaves, mut parities) = ([0u128; MOST], [0u128; MOST]);
        let lanes = |lane: usize| start + lane * V::BLOCKS;
        // SAFETY: lane `lane` has the keys `lanes(lane)..lanes(lane) + BLOCKS`, all below `count`; the local arrays hold
        // `MOST` elements, which is at least `LANES * BLOCKS`.
        unsafe {
            let upper_halves = V::splat(!u128::from(u64::MAX));
            let lowest = V::splat(1);
            let mut seeds: [V; LANES] =
                std::array::from_fn(|lane| V::load(batch.roots.as_ptr().add(lanes(lane))));
            let mut turns: [V; LANES] =
                std::array::from_fn(|lane| V::spread(shifted.as_ptr().add(lane * V::BLOCKS)));
            let mut parity = [V::splat(0); LANES];
            for level in 0..inner {
                let words = batch.corrections.levels.as_ptr().add(level * count);
                let inputs = seeds.map(|seed| sigma(seed, upper_halves));
                let hashed = aes(inputs, round_keys);
                for lane in 0..LANES {
                    let (seed, right) = (seeds[lane], turns[lane].highest_bit_mask());
                    let word = seed.lowest_bit_mask().and(V::load(words.add(lanes(lane))));
                    let child = hashed[lane].xor(inputs[lane]).xor(right.and(seed)).xor(word);
                    parity[lane] = parity[lane].xor(right.and_not(seed.xor(child)));
                    seeds[lane] = child;
                    turns[lane] = turns[lane].double();
                }
            }
            let inputs: [V; LANES] = std::array::from_fn(|lane| {
                let side = turns[lane].highest_bit_mask().and(lowest);
                sigma(lowest.and_not(seeds[lane]).xor(side), upper_halves)
            });
            let hashed = aes(inputs, round_keys);
            for lane in 0..LANES {
                let right = turns[lane].highest_bit_mask();
                let [left_word, right_word] =
                    [0, 1].map(|side| V::load(batch.corrections.leaves[side].as_ptr().add(lanes(lane))));
                let word = left_word.xor(right.and(left_word.xor(right_word)));
                let leaf = hashed[lane].xor(inputs[lane]).xor(seeds[lane].lowest_bit_mask().and(word));
                leaf.store(leaves.as_mut_ptr().add(lane * V::BLOCKS));
                let parity = parity[lane].xor(right.and_not(seeds[lane]));
                parity.store(parities.as_mut_ptr().add(lane * V::BLOCKS));
            }
        }
        for (index, (bit, &point)) in bits.iter_mut().zip(points).enumerate() {
            *bit = finish(leaves[index], parities[index], point);
        }
    }
}
