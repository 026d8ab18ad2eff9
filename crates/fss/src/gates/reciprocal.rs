//! 1 / x.

use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::ops::Lookup;
use crate::ring::Ring;
use crate::table::{LARGEST_TABLE_BITS, Table};
use crate::tensor::Wire;

/// 1 / x of 1 ≤ x ≤ `largest`, all with f fractional bits: a table of up to 16 bits of the leading bits of x.
///
/// One round gives ±1/x, ready for a product; where low bits are cut off, of both numbers that the index can
/// be, and the product chooses.
#[derive(Debug, Clone)]
pub struct Reciprocal {
    fraction: u32,
    largest: u64,
    shift: u32,
    table: Table,
}

impl Reciprocal {
    /// The gate for whole numbers up to `largest` and fractions between them.
    pub fn new(fraction: u32, largest: u64) -> Result<Self> {
        let bits = fraction.saturating_add(u64::BITS - largest.leading_zeros());
        if largest == 0 || fraction > 20 || bits > 40 {
            let what = format!("up to {largest} with {fraction} fractional bits");
            return Err(Error::Unsupported { gate: "a reciprocal", what });
        }
        let domain = bits.min(LARGEST_TABLE_BITS);
        let shift = bits - domain;
        let unit = (1u64 << fraction) as f64;
        let exact = |x: u64| unit * unit / x as f64;
        let middle = |index: u64| {
            let first = (index << shift).max(1 << fraction);
            let last = ((index + 1) << shift).max(first + 1) - 1;
            ((exact(first) + exact(last)) / 2.0).round() as i64
        };
        let parameters = [fraction.into(), bits.into(), 0];
        let table = Table::known("reciprocal", parameters, || Table::new(domain, middle))?;
        Ok(Self { fraction, largest, shift, table })
    }

    /// The reciprocal of every element, looked up in the ring `out`.
    pub async fn apply(&self, evaluator: &Evaluator, x: &Wire, out: Ring) -> Result<Lookup> {
        let bound = x.bound();
        let (lo, hi) = (1i128 << self.fraction, i128::from(self.largest) << self.fraction);
        if bound.lo() < lo || bound.hi() > hi {
            let room = format!("the numbers from 1 to {}", self.largest);
            return Err(Error::NotProved { gate: "a reciprocal", lo: bound.lo(), hi: bound.hi(), room });
        }
        let domain = self.table.domain();
        let low = x.low_bits(domain + self.shift)?;
        match self.shift {
            0 => evaluator.lookup(&low, &self.table, out).await,
            shift => evaluator.lookup_quotient(&low, shift, &self.table, out).await,
        }
    }
}
