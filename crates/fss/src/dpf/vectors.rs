//! Walks down many trees at once, and keys for many at once, on vectors of blocks.

use std::arch::x86_64::*;

use crate::prg::vector::{RoundKeys, Vector, Width, aes, at_width, sigma, spread_keys};
use crate::secret::Secret;

use super::LEAF_BITS;
use super::corrections::{Corrections, TILE, finish};

pub(super) struct Batch<'a> {
    pub(super) domain: u32,
    pub(super) roots: &'a [u128],
    pub(super) corrections: &'a Corrections,
}

/// Most keys that walk at once.
const MOST: usize = 32;

pub(super) fn less_than(width: Width, keys: &RoundKeys, batch: &Batch<'_>, points: &[u64], bits: &mut [u64]) {
    at_width!(width, walk_all::<4>, (keys: &RoundKeys, batch: &Batch<'_>, points: &[u64], bits: &mut [u64]));
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
    let round_keys = unsafe { spread_keys::<V>(keys) };
    let full = count - count % step;
    let corrections = batch.corrections;
    for start in (0..full).step_by(step) {
        let rows = Rows {
            roots: batch.roots[start..].as_ptr(),
            words: corrections.bytes.as_slice()[16 * corrections.place(0, start)..].as_ptr().cast(),
            stride: corrections.tile_keys(start),
            ahead: TILE * corrections.rows,
        };
        for offset in (0..points.len()).step_by(count) {
            let range = offset + start..offset + start + step;
            // SAFETY: steps divide tiles, so the tile has `step` keys from `start` on, and as many points.
            unsafe {
                walk::<V, LANES>(&round_keys, batch.domain, &rows, &points[range.clone()], &mut bits[range]);
            }
        }
    }
    if full == count {
        return;
    }
    // The last few keys, filled up with zeros to a whole step.
    let rest = count - full;
    let mut roots = Secret::new(batch.roots[full..].to_vec());
    roots.resize(step, 0);
    let mut words = Vec::with_capacity(step * corrections.rows);
    for row in 0..corrections.rows {
        words.extend((full..count).map(|key| corrections.word(row, key)));
        words.resize((row + 1) * step, 0);
    }
    let rows = Rows { roots: roots.as_ptr(), words: words.as_ptr(), stride: step, ahead: 0 };
    for offset in (0..points.len()).step_by(count) {
        let at = offset + full;
        let (mut last_points, mut last_bits) = ([0; MOST], [0; MOST]);
        last_points[..rest].copy_from_slice(&points[at..at + rest]);
        // SAFETY: the padded rows have `step` keys.
        unsafe {
            walk::<V, LANES>(&round_keys, batch.domain, &rows, &last_points[..step], &mut last_bits[..step]);
        }
        bits[at..at + rest].copy_from_slice(&last_bits[..rest]);
        last_bits = [0; MOST];
        zeroize::optimization_barrier(&last_bits);
    }
}

/// Keys side by side: their roots, and rows of correction words of any alignment.
struct Rows {
    roots: *const u128,
    words: *const u128,
    stride: usize,
    /// How far on the words of the next tile lie.
    ahead: usize,
}

/// `LANES * BLOCKS` keys side by side.
///
/// # Safety
/// As [`Vector`]; the rows have that many keys.
#[inline(always)]
unsafe fn walk<V: Vector, const LANES: usize>(
    round_keys: &[V; 11],
    domain: u32,
    rows: &Rows,
    points: &[u64],
    bits: &mut [u64],
) {
    let inner = (domain - LEAF_BITS - 1) as usize;
    let mut shifted = [0u64; MOST];
    for (shifted, point) in shifted.iter_mut().zip(points) {
        *shifted = point << (64 - domain);
    }
    let (mut leaves, mut parities) = ([0u128; MOST], [0u128; MOST]);
    let first = |lane: usize| lane * V::BLOCKS;
    // SAFETY: lane `lane` has the keys `first(lane)..first(lane) + BLOCKS`, which every row has; the local
    // arrays hold `MOST` elements, which is at least `LANES * BLOCKS`.
    unsafe {
        let upper_halves = V::splat(!u128::from(u64::MAX));
        let lowest = V::splat(1);
        // Plain loops throughout: a closure would be compiled without this function's instructions.
        let mut seeds = [V::splat(0); LANES];
        let mut turns = seeds;
        let mut parity = seeds;
        let mut inputs = seeds;
        for lane in 0..LANES {
            seeds[lane] = V::load(rows.roots.add(first(lane)));
            turns[lane] = V::spread(shifted.as_ptr().add(first(lane)));
        }
        for level in 0..inner {
            let words = rows.words.add(level * rows.stride);
            for lane in 0..LANES {
                inputs[lane] = sigma(seeds[lane], upper_halves);
            }
            let hashed = aes(inputs, round_keys);
            for lane in 0..LANES {
                let (seed, right) = (seeds[lane], turns[lane].highest_bit_mask());
                let here = words.add(first(lane));
                V::prefetch(here.wrapping_add(rows.ahead));
                let corrected = seed.lowest_bit_mask().and_xor(V::load(here), inputs[lane]);
                let child = right.and_xor(seed, hashed[lane]).xor(corrected);
                parity[lane] = parity[lane].xor(right.not_and_xor(seed, child));
                seeds[lane] = child;
                turns[lane] = turns[lane].double();
            }
        }
        for lane in 0..LANES {
            let side = turns[lane].highest_bit_mask().and(lowest);
            inputs[lane] = sigma(lowest.and_not(seeds[lane]).xor(side), upper_halves);
        }
        let hashed = aes(inputs, round_keys);
        for lane in 0..LANES {
            let right = turns[lane].highest_bit_mask();
            let left_word = V::load(rows.words.add(inner * rows.stride + first(lane)));
            let right_word = V::load(rows.words.add((inner + 1) * rows.stride + first(lane)));
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
    // A leaf is a share of 128 places of a unit vector. The barrier keeps the stores, which nothing reads.
    (leaves, parities) = ([0; MOST], [0; MOST]);
    zeroize::optimization_barrier(&leaves);
    zeroize::optimization_barrier(&parities);
}

/// As `tree::inner_levels`, for a whole tile.
pub(super) fn inner_levels(
    width: Width,
    keys: &RoundKeys,
    domain: u32,
    seeds: &mut [Secret<u128>; 2],
    alphas: &[u64],
    words: &mut Vec<u128>,
) {
    let start = words.len();
    words.resize(start + TILE * (domain - LEAF_BITS - 1) as usize, 0);
    let words = &mut words[start..];
    let mut shifted = Secret::new(alphas.iter().map(|alpha| alpha << (64 - domain)).collect());
    let shifted: &mut [u64] = &mut shifted;
    at_width!(
        width,
        generate_tile,
        (keys: &RoundKeys, seeds: &mut [Secret<u128>; 2], shifted: &mut [u64], words: &mut [u128])
    );
}

/// # Safety
/// As [`Vector`]; there are `TILE` seeds of each party and `TILE` places, and whole rows of words.
#[inline(always)]
unsafe fn generate_tile<V: Vector>(
    keys: &RoundKeys,
    seeds: &mut [Secret<u128>; 2],
    shifted: &mut [u64],
    words: &mut [u128],
) {
    /// Registers of keys; as many for each party.
    const PAIRS: usize = 4;
    // SAFETY: a step of keys divides a tile, so that every access is to the keys `first(pair)..first(pair) +
    // BLOCKS` of a tile.
    unsafe {
        let round_keys = spread_keys::<V>(keys);
        let upper_halves = V::splat(!u128::from(u64::MAX));
        for start in (0..TILE).step_by(PAIRS * V::BLOCKS) {
            let first = |pair: usize| start + pair * V::BLOCKS;
            let mut path = [V::splat(0); 2 * PAIRS];
            let mut inputs = path;
            let mut turns = [V::splat(0); PAIRS];
            let mut differences = turns;
            for pair in 0..PAIRS {
                path[pair] = V::load(seeds[0].as_ptr().add(first(pair)));
                path[PAIRS + pair] = V::load(seeds[1].as_ptr().add(first(pair)));
                differences[pair] = path[pair].xor(path[PAIRS + pair]);
                turns[pair] = V::spread(shifted.as_ptr().add(first(pair)));
            }
            for row in words.chunks_exact_mut(TILE) {
                for lane in 0..2 * PAIRS {
                    inputs[lane] = sigma(path[lane], upper_halves);
                }
                let hashed = aes(inputs, &round_keys);
                for pair in 0..PAIRS {
                    let right = turns[pair].highest_bit_mask();
                    let zero = hashed[pair].xor(inputs[pair]);
                    let one = hashed[PAIRS + pair].xor(inputs[PAIRS + pair]);
                    let word = zero.xor(one).xor(right.and_not(differences[pair]));
                    word.store(row.as_mut_ptr().add(first(pair)));
                    for (lane, hashed) in [(pair, zero), (PAIRS + pair, one)] {
                        let seed = path[lane];
                        path[lane] = hashed.xor(right.and(seed)).xor(seed.lowest_bit_mask().and(word));
                    }
                    turns[pair] = turns[pair].double();
                }
            }
            for pair in 0..PAIRS {
                path[pair].store(seeds[0].as_mut_ptr().add(first(pair)));
                path[PAIRS + pair].store(seeds[1].as_mut_ptr().add(first(pair)));
            }
        }
    }
}
