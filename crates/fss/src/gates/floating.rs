//! Functions of widely varying arguments, by exponent and mantissa.

use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::ops::{Lookup, Payload};
use crate::ring::Ring;
use crate::table::{LARGEST_TABLE_BITS, Table};
use crate::tensor::Wire;

/// F(x) of 2^a ≤ x < 2^b, from the position of the leading one and the bits behind it: a table over (exponent, mantissa).
///
/// The exponent e and the factor 2^(b−1−e) come from one interval lookup. The factor moves the leading one of x to bit b − 1, and
/// a truncation leaves the mantissa, which lands beside the exponent in one index.
///
/// ```text
/// round 1   the interval's constants       round 2   x 2^(b−1−e)       round 3   the borrow
/// round 4   the index                      round 5   ±F(x), ready for a product
/// ```
#[derive(Debug, Clone)]
pub struct FloatingTable {
    least: u32,
    most: u32,
    mantissa: u32,
    table: Table,
}

impl FloatingTable {
    /// The table of `function`, with as many mantissa bits as fit into an index of 16 bits.
    pub fn new(least: u32, most: u32, function: impl Fn(f64) -> f64) -> Result<Self> {
        Self::of(least, most, function, |make| make())
    }

    /// The same of a function of that name and two parameters, made only if it is not known.
    pub(super) fn known(
        name: &'static str,
        [first, second]: [u64; 2],
        [least, most]: [u32; 2],
        function: impl Fn(f64) -> f64,
    ) -> Result<Self> {
        let ends = u64::from(least) << 32 | u64::from(most);
        Self::of(least, most, function, |make| Table::known(name, [first, second, ends], make))
    }

    fn of(
        least: u32,
        most: u32,
        function: impl Fn(f64) -> f64,
        keep: impl FnOnce(&dyn Fn() -> Result<Table>) -> Result<Table>,
    ) -> Result<Self> {
        if least.saturating_add(2) > most || most > 63 {
            let what = format!("from 2^{least} to 2^{most}");
            return Err(Error::Unsupported { gate: "a floating table", what });
        }
        let exponent_bits = u32::BITS - (most - least - 1).leading_zeros();
        let mantissa = (LARGEST_TABLE_BITS - exponent_bits).min(most - 2);
        let entry = |index: u64| {
            let exponent = least + (index >> mantissa) as u32;
            let (fraction, steps) = (index & ((1 << mantissa) - 1), (1u64 << mantissa) as f64);
            // Beyond the last exponent nothing is ever read.
            let at =
                |fraction: f64| function((1u128 << exponent.min(most)) as f64 * (1.0 + fraction / steps));
            ((at(fraction as f64) + at(fraction as f64 + 1.0)) / 2.0).round() as i64
        };
        let table = keep(&|| Table::new(exponent_bits + mantissa, entry))?;
        Ok(Self { least, most, mantissa, table })
    }

    /// 2^out / √(x / 2^fraction): reciprocal square roots with `out` fractional bits.
    pub fn reciprocal_root(least: u32, most: u32, fraction: u32, out: u32) -> Result<Self> {
        let (unit, scale) = ((1u128 << fraction.min(100)) as f64, (1u128 << out.min(100)) as f64);
        Self::new(least, most, |x| scale / (x / unit).sqrt())
    }

    /// By how much, relative to F, a table of a function like 1/√x can be off.
    pub fn mantissa_bits(&self) -> u32 {
        self.mantissa
    }

    /// F(x) of every element, looked up in the ring of `x`.
    pub async fn apply(&self, evaluator: &Evaluator, x: &Wire) -> Result<Lookup> {
        const GATE: &str = "a floating table";
        let (ring, bound) = (x.ring(), x.bound());
        if bound.lo() < 1 << self.least || bound.hi() >= 1 << self.most || self.most >= ring.bits() {
            let room = format!("2^{} to 2^{}, half a ring of {} bits", self.least, self.most, ring.bits());
            return Err(Error::NotProved { gate: GATE, lo: bound.lo(), hi: bound.hi(), room });
        }
        let piece = |exponent: u32| Payload {
            start: if exponent == self.least { 0 } else { 1 << exponent },
            words: vec![0, 1 << (self.most - 1 - exponent), u64::from(exponent - self.least)],
        };
        let pieces: Vec<Payload> = (self.least..self.most).map(piece).collect();
        let constants = evaluator.piecewise(x, &pieces, ring).await?;
        let leading = Bound::proved(1 << (self.most - 1), (1 << self.most) - 1);
        let normal = evaluator.polynomial(&constants, 0, 1, x, leading)?;
        let exponents = i128::from(self.most - self.least) - 1;
        let exponent = evaluator.polynomial(&constants, 2, 0, x, Bound::proved(0, exponents))?;
        let domain = Ring::new(self.table.domain())?;
        let normal = evaluator.open(normal).await?;
        let mantissa = evaluator.gap_truncate(&normal, self.most - 1 - self.mantissa, domain).await?;
        let exponent = exponent.low_bits(domain.bits())?.times(1 << self.mantissa)?;
        let index = evaluator.offset_share(&mantissa.plus(&exponent)?, -(1 << self.mantissa))?;
        let index = evaluator.open(index).await?;
        evaluator.lookup(&index, &self.table, ring).await
    }
}
