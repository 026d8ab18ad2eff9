//! Unit vectors of small domains, shared as they are.

use crate::table::Table;

use super::masked_sum::masked_sum;

/// 64-bit words of one key: 2^k bits, at least one word.
pub(crate) fn words_per_table(domain: u32) -> usize {
    1 << domain.saturating_sub(6)
}

/// The parity of the bits above place x.
pub(super) fn less_than(domain: u32, count: usize, words: &[u64], points: &[u64]) -> Vec<u64> {
    let width = words_per_table(domain);
    let parity_above = |vector: &[u64], point: u64| {
        let (word, bit) = ((point >> 6) as usize, point & 63);
        let partial = vector[word] & (u64::MAX << 1) << bit;
        let folded = vector[word + 1..].iter().fold(partial, |folded, word| folded ^ word);
        u64::from(folded.count_ones()) & 1
    };
    let vectors = words.chunks_exact(width).take(count).cycle();
    vectors.zip(points).map(|(vector, &point)| parity_above(vector, point)).collect()
}

pub(super) fn lookup(domain: u32, words: &[u64], points: &[u64], table: &Table) -> Vec<u64> {
    let vectors = words.chunks_exact(words_per_table(domain));
    vectors.zip(points).map(|(vector, &point)| masked_sum(vector, table.window(point))).collect()
}
