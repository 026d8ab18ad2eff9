//! Pseudorandomness: a fixed-key hash for trees, and counter mode for shares.

mod cipher;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vector;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::secret::Secret;

pub(crate) use cipher::Cipher;

/// Which generator a key stream was made with. A field of its header, so that others can follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u16)]
pub enum PrgId {
    /// AES-128 under a public key that is fresh for every batch of trees, made circular-correlation robust.
    Aes128CircularRobust = 2,
}

impl PrgId {
    /// The generator of an id in a header.
    pub fn from_code(code: u16) -> Result<Self> {
        match code {
            1 => Err(Error::Key {
                what: "an earlier version dealt it, with one key for all trees: have new keys dealt".into(),
            }),
            2 => Ok(Self::Aes128CircularRobust),
            _ => {
                Err(Error::Key { what: format!("its generator has the id {code}, which is not known here") })
            }
        }
    }
}

/// Calls of the generator, counted where they are made, on whatever thread. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<AtomicU64>);

impl Calls {
    pub(crate) fn add(&self, blocks: usize) {
        self.0.fetch_add(blocks as u64, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// σ(x) = (x_hi ⊕ x_lo) ∥ x_hi: a linear orthomorphism, both σ and σ ⊕ 1 invertible.
pub(crate) fn sigma(block: u128) -> u128 {
    block.rotate_left(64) ^ (block & !u128::from(u64::MAX))
}

/// H(x) = AES_k(σ(x)) ⊕ σ(x), circular-correlation robust for a random permutation AES_k: H(x ⊕ Δ) ⊕ b Δ is
/// pseudorandom for whoever knows k and x but not Δ.
#[derive(Clone)]
pub(crate) struct TreeHash {
    pub(crate) cipher: Cipher,
    pub(crate) calls: Calls,
}

impl TreeHash {
    /// The hash under a public key, whose calls are counted.
    pub(crate) fn new(public_key: u128, calls: Calls) -> Self {
        Self { cipher: Cipher::new(public_key), calls }
    }

    /// Hashes every block where it lies.
    pub(crate) fn apply(&self, blocks: &mut [u128]) {
        self.calls.add(blocks.len());
        for block in blocks.iter_mut() {
            *block = sigma(*block);
        }
        self.cipher.encrypt_xor(blocks);
    }
}

/// The public key of the trees of a section: AES_k(s + 1), where k is the deal's key and s the section's
/// number.
pub fn section_key(public_key: u128, section: u64) -> u128 {
    encrypted(public_key, u128::from(section) + 1)
}

fn encrypted(key: u128, block: u128) -> u128 {
    let mut blocks = [block];
    Cipher::new(key).encrypt(&mut blocks);
    blocks[0]
}

/// Public keys of a section's trees, a fresh one for every batch: the g-th is AES_k(g) under the section's
/// key k.
///
/// Whoever looks for the seed of one of N trees under one key has N targets, so no two batches share theirs.
pub(crate) struct TreeKeys {
    section: u128,
    next: u128,
}

impl TreeKeys {
    pub(crate) fn new(section: u128) -> Self {
        Self { section, next: 0 }
    }

    /// The key of the next batch.
    pub(crate) fn next_key(&mut self) -> u128 {
        let key = encrypted(self.section, self.next);
        self.next += 1;
        key
    }
}

/// AES-128 in counter mode under a secret seed: the shares that a party derives instead of storing them.
pub(crate) struct Stream {
    cipher: Cipher,
    counter: u128,
    calls: Calls,
}

impl Stream {
    pub(crate) fn new(seed: u128, calls: Calls) -> Self {
        Self { cipher: Cipher::new(seed), counter: 0, calls }
    }

    /// The next `count` blocks.
    pub(crate) fn blocks(&mut self, count: usize) -> Vec<u128> {
        let mut blocks: Vec<u128> = (0..count as u128).map(|index| self.counter + index).collect();
        self.counter += count as u128;
        self.calls.add(count);
        self.cipher.encrypt(&mut blocks);
        blocks
    }

    /// Blocks that `count` words of `bits` bits are drawn from. Every draw starts a new block.
    pub(crate) fn blocks_for(count: usize, bits: u32) -> u64 {
        (count as u128 * u128::from(bits)).div_ceil(128) as u64
    }

    /// The next `count` words of `bits` bits, appended.
    pub(crate) fn words(&mut self, count: usize, bits: u32, words: &mut Vec<u64>) {
        let blocks = Secret::new(self.blocks(Self::blocks_for(count, bits) as usize));
        let mask = u64::MAX >> (64 - bits);
        words.reserve(count);
        let half = |index: usize| (blocks[index / 2] >> (64 * (index % 2))) as u64;
        if 64 % bits == 0 {
            let in_word = (64 / bits) as usize;
            words.extend((0..count).map(|i| half(i / in_word) >> ((i % in_word) as u32 * bits) & mask));
            return;
        }
        let (mut pending, mut held, mut next) = (0u128, 0u32, 0usize);
        words.extend((0..count).map(|_| {
            if held < bits {
                pending |= u128::from(half(next)) << held;
                next += 1;
                held += 64;
            }
            let word = pending as u64 & mask;
            pending >>= bits;
            held -= bits;
            word
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigma_is_an_orthomorphism() {
        // Linear, so it is enough that no basis combination vanishes: σ and σ ⊕ id have full rank.
        let rank = |map: &dyn Fn(u128) -> u128| {
            let mut rows: Vec<u128> = (0..128).map(|bit| map(1 << bit)).collect();
            let mut rank = 0;
            for bit in 0..128 {
                if let Some(pivot) = (rank..128).find(|&row| rows[row] >> bit & 1 == 1) {
                    rows.swap(rank, pivot);
                    for row in rank + 1..128 {
                        if rows[row] >> bit & 1 == 1 {
                            rows[row] ^= rows[rank];
                        }
                    }
                    rank += 1;
                }
            }
            rank
        };
        assert_eq!(rank(&sigma), 128);
        assert_eq!(rank(&|x| sigma(x) ^ x), 128);
        assert_eq!(rank(&|x| x & !1), 127, "the rank must be able to fall");
    }

    #[test]
    fn every_batch_of_trees_has_a_key_of_its_own() {
        let keys = |section: u64| {
            let mut keys = TreeKeys::new(section_key(5, section));
            (0..50).map(|_| keys.next_key()).collect::<Vec<_>>()
        };
        assert_eq!(keys(3), keys(3), "dealer and parties come to the same");
        let all: std::collections::BTreeSet<u128> = (0..40).flat_map(keys).collect();
        assert_eq!(all.len(), 40 * 50);
        assert!(!all.contains(&5));
    }

    #[test]
    fn the_hash_is_a_cipher_with_feed_forward() {
        let key = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100;
        let inputs: Vec<u128> = (0..77u128).map(|i| i * 0x1234_5678_9abc_def1_0000_0001).collect();
        let mut hashed = inputs.clone();
        TreeHash::new(key, Calls::default()).apply(&mut hashed);
        for (input, hashed) in inputs.into_iter().zip(hashed) {
            let mut block = [sigma(input)];
            Cipher::portable(key).encrypt(&mut block);
            assert_eq!(hashed, block[0] ^ sigma(input));
        }
    }

    #[test]
    fn words_of_a_stream_are_its_bits_in_order() {
        for bits in [1, 7, 16, 33, 50, 64] {
            let mut words = Vec::new();
            Stream::new(5, Calls::default()).words(40, bits, &mut words);
            let blocks = Stream::new(5, Calls::default()).blocks(Stream::blocks_for(40, bits) as usize);
            let bit = |at: usize| (blocks[at / 128] >> (at % 128)) as u64 & 1;
            for (index, &word) in words.iter().enumerate() {
                let start = index * bits as usize;
                let expected = (0..bits as usize).fold(0, |word, i| word | bit(start + i) << i);
                assert_eq!(word, expected, "{bits} bits, word {index}");
            }
        }
    }
}
