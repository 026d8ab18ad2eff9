//! Public tables.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::bound::Bound;
use crate::error::{Error, Result};

/// A public function from k-bit indices to integers, laid out for lookups by secret-shared unit vectors.
///
/// The word (−i) mod 2^k lies at places i and i + 2^k, so that T((x − j) mod 2^k), j = 0, 1, .. is a run of
/// words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    domain: u32,
    reversed: Arc<[u64]>,
    bound: Bound,
}

/// Tables that were computed before. They are public and follow from a few numbers, and every node of every
/// inference asks for them.
static KNOWN: Mutex<BTreeMap<(&'static str, [u64; 3]), Table>> = Mutex::new(BTreeMap::new());

/// Tables that are kept, of up to 1 MiB each.
const MOST_KNOWN: usize = 64;

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

    /// The table of that name and parameters, made only if it is not known.
    pub(crate) fn known(
        name: &'static str,
        parameters: [u64; 3],
        make: impl FnOnce() -> Result<Self>,
    ) -> Result<Self> {
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = known().get(&(name, parameters)) {
            return Ok(table.clone());
        }
        let table = make()?;
        let mut known = known();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert((name, parameters), table.clone());
        Ok(table)
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

    /// The words as they lie, all windows in them.
    pub(crate) fn reversed(&self) -> &Arc<[u64]> {
        &self.reversed
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

    #[test]
    fn a_known_table_is_not_made_again() {
        let make = |factor: i64| {
            Table::known("test", [factor as u64, 0, 0], || Table::new(2, |x| factor * x as i64))
        };
        assert_eq!(make(3).unwrap(), Table::new(2, |x| 3 * x as i64).unwrap());
        assert_eq!(make(4).unwrap().value(1), 4);
        let known = Table::known("test", [3, 0, 0], || unreachable!("it is known"));
        assert_eq!(known.unwrap(), make(3).unwrap());
        for factor in 0..2 * MOST_KNOWN as i64 {
            assert_eq!(make(factor).unwrap().value(2), 2 * factor as u64);
        }
        assert!(Table::known("test", [7, 7, 7], || Table::new(0, |_| 0)).is_err());
    }
}
