//! Distributed point functions: secret-shared unit vectors, and what can be read from them.
//!
//! A point function of a domain of 2^k has two keys. Each alone is pseudorandom; together they are the vector
//! e_0 ⊕ e_1 that is one at the secret place α and zero elsewhere. From it come, without interaction,
//!
//! * `less_than`: shares of 1[x < α] for any public x, by one walk down the tree;
//! * `lookup`: Σ_j e_b(j) T((x − j) mod 2^k) for any public table.
//!
//! Up to [`TABLE_BITS`] bits the vector itself is shared; above, a half-tree with 128-bit leaves is. Keys of
//! a batch lie in tiles of 32, and within a tile level by level: the correction words of level 0 for all its
//! keys, then those of level 1, so that neighbouring lanes (or GPU threads) read neighbouring words.

mod corrections;
mod masked_sum;
mod table;
mod threads;
mod tree;
#[cfg(target_arch = "x86_64")]
mod vectors;

use crate::prg::TreeHash;
use crate::secret::Secret;
use crate::table::Table;

pub(crate) use corrections::{Corrections, TILE};
pub(crate) use table::words_per_table;
pub(crate) use tree::generate;

/// Domains up to this many bits are shared as truth tables, which are smaller than trees there.
pub const TABLE_BITS: u32 = 9;

/// log2 of the bits of a leaf.
pub(crate) const LEAF_BITS: u32 = 7;

/// One party's keys of `count` point functions over the same domain.
pub struct PointKeys {
    pub(crate) domain: u32,
    pub(crate) count: usize,
    pub(crate) form: Form,
}

pub(crate) enum Form {
    /// `words_per_table(domain)` words for each key.
    Table(Secret<u64>),
    /// A root for each key, and correction words level by level.
    Tree { roots: Secret<u128>, corrections: Corrections },
}

/// Generator calls of a walk down to a leaf.
pub(crate) fn walk_blocks(domain: u32) -> u64 {
    if domain <= TABLE_BITS { 0 } else { u64::from(domain - LEAF_BITS) }
}

/// Generator calls of expanding the whole domain: one for two children, and one for each leaf.
pub(crate) fn expand_blocks(domain: u32) -> u64 {
    if domain <= TABLE_BITS {
        return 0;
    }
    let leaves = 1 << (domain - LEAF_BITS);
    leaves + leaves / 2 - 1
}

/// 128-bit correction words of one key.
pub(crate) fn correction_words(domain: u32) -> usize {
    if domain <= TABLE_BITS { 0 } else { (domain - LEAF_BITS + 1) as usize }
}

impl PointKeys {
    /// Bits of the domain.
    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// Shares of 1[x < α], one bit a word. `points` are public: all keys' first points, then all keys' second
    /// ones.
    pub(crate) fn less_than(&self, hash: &TreeHash, points: &[u64]) -> Vec<u64> {
        let (roots, corrections) = match &self.form {
            Form::Table(words) => return table::less_than(self.domain, self.count, words, points),
            Form::Tree { roots, corrections } => (roots, corrections),
        };
        let parts = threads::parts(self.count, points.len() as u64 * walk_blocks(self.domain));
        if let [_] = parts[..] {
            return tree::less_than(hash, self.domain, roots, corrections, points);
        }
        let found = threads::each(&parts, |keys| {
            let own =
                points.chunks(self.count).flat_map(|row| &row[keys.clone()]).copied().collect::<Vec<_>>();
            tree::less_than(hash, self.domain, &roots[keys.clone()], &corrections.part(keys), &own)
        });
        let mut bits = vec![0; points.len()];
        for (keys, found) in parts.iter().zip(found.into_iter().map(Secret::new)) {
            for (row, found) in bits.chunks_mut(self.count).zip(found.chunks(keys.len())) {
                row[keys.clone()].copy_from_slice(found);
            }
        }
        bits
    }

    /// Σ_j e_b(j) T((x − j) mod 2^k) in 64-bit words, for one public x a key.
    pub(crate) fn lookup(&self, hash: &TreeHash, points: &[u64], table: &Table) -> Vec<u64> {
        let parts = threads::parts(self.count, (self.count as u64) << self.domain);
        let found = threads::each(&parts, |keys| {
            let points = &points[keys.clone()];
            match &self.form {
                Form::Table(words) => {
                    let width = words_per_table(self.domain);
                    table::lookup(self.domain, &words[keys.start * width..keys.end * width], points, table)
                }
                Form::Tree { roots, corrections } => {
                    let (roots, corrections) = (&roots[keys.clone()], corrections.part(keys));
                    tree::lookup(hash, self.domain, roots, &corrections, points, table)
                }
            }
        });
        let mut sums = Vec::with_capacity(self.count);
        found.into_iter().map(Secret::new).for_each(|part| sums.extend_from_slice(&part));
        sums
    }
}

#[cfg(test)]
mod tests;
