//! Public tables.

use crate::bound::Bound;
use crate::error::{Error, Result};

/// A public function from k-bit indices to integers, laid out for lookups by secret-shared unit vectors.
///
/// The word (−i) mod 2^k lies at places i and i + 2^k, so that T((x − j) mod 2^k), j = 0, 1, .. is a run of words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    domain: u32,
    reversed: Vec<u64>,
    bound: Bound,
}

/// The largest domain that is expanded in full.
pub const LARGEST_TABLE_BITS: u32 = 16;

impl Table {
    /// The table of `function` on 0..2^domain.
    pub fn new(domain: u32, function: impl Fn(u64) -> i64) -> Result<Self> {
        if !(1..=LARGEST_TABLE_BITS).contains(&domain) {
            let what = format!("a table of {domain} bits: tables have 1 to {LARGEST_TABLE_BITS}");
            return Err(Error::Unsupported { gate: "lookup", what });
        }
        let size = 1u64 << domain;
        let values: Vec<i64> = (0..size).map(function).collect();
        let bound = values.iter().fold(Bound::exactly(i128::from(values[0])), |bound, &value| {
            bound.hull(&Bound::exactly(i128::from(value)))
        });
        let reversed = (0..2 * size).map(|i| values[(i.wrapping_neg() % size) as usize] as u64).collect();
        Ok(Self { domain, reversed, bound })
    }

    /// Bits of the index.
    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// T(index), as a 64-bit word.
    pub fn value(&self, index: u64) -> u64 {
        self.window(index)[0]
    }

    /// Where the values lie.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// T(x), T(x − 1), .. around the table once.
    pub(crate) fn window(&self, x: u64) -> &[u64] {
        let size = 1usize << self.domain;
        let start = (x as usize).wrapping_neg() & (size - 1);
        &self.reversed[start..start + size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_down_from_its_index() {
        let table = Table::new(3, |x| x as i64 * 10 - 5).unwrap();
        let word = |x: i64| (x * 10 - 5) as u64;
        assert_eq!(table.window(2), [2, 1, 0, 7, 6, 5, 4, 3].map(word));
        assert_eq!(table.value(6), word(6));
        assert_eq!((table.bound().lo(), table.bound().hi()), (-5, 65));
        assert!(Table::new(17, |_| 0).is_err());
    }
}
