//! How key material lies: what is stored, what is derived, and so what it costs.
//!
//! Shares are uniform, so a party can derive them from its seed instead of storing them. A sharing that the
//! dealer may choose freely (a fresh mask) costs no key bytes at all. One whose sum is given costs one
//! correction: of every array, party 0 stores the first half and derives the second, party 1 the other way
//! round, so that both streams are equally long and half of what they would be.

use crate::dpf::{self, TABLE_BITS, words_per_table};
use crate::party::Party;
use crate::prg::Stream;
use crate::ring::packed_bytes;

/// Elements of an array that party 0 stores.
pub(crate) fn stored_by_zero(count: usize) -> usize {
    count / 2
}

/// Elements that a party stores.
pub(crate) fn stored(party: Party, count: usize) -> usize {
    match party {
        Party::Zero => stored_by_zero(count),
        Party::One => count - stored_by_zero(count),
    }
}

/// Key bytes and derived blocks of one array, for a party.
pub(crate) fn share_cost(party: Party, count: usize, bits: u32) -> (u64, u64) {
    let own = stored(party, count);
    (packed_bytes(own, bits) as u64, Stream::blocks_for(count - own, bits))
}

/// Bits of one word of a truth table, and words of `count` tables.
pub(crate) fn table_layout(domain: u32, count: usize) -> (u32, usize) {
    ((1 << domain.min(6)) as u32, count * words_per_table(domain))
}

/// Key bytes and derived blocks of point keys, for a party.
pub(crate) fn point_cost(party: Party, domain: u32, count: usize) -> (u64, u64) {
    if domain <= TABLE_BITS {
        let (bits, words) = table_layout(domain, count);
        return share_cost(party, words, bits);
    }
    (16 * (dpf::correction_words(domain) * count) as u64, count as u64)
}
