//! Functions of widely varying arguments, by exponent and mantissa.

use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::ops::{Leading, Lookup};
use crate::ring::Ring;
use crate::table::{LARGEST_TABLE_BITS, Table};
use crate::tensor::Wire;

/// F(x) of 2^a ≤ x < 2^b, from the position of the leading one and the bits behind it: a table over
/// (exponent, mantissa).
///
/// The index comes from [`Evaluator::leading_index`], which has the truncations of all exponents side by
/// side.
///
/// ```text
/// round 1   bits and borrows of all exponents       round 2   the index       round 3   ±F(x), ready for a product
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
        let leading = Leading { least: self.least, most: self.most, mantissa: self.mantissa };
        let domain = Ring::new(self.table.domain())?;
        let index = evaluator.open(evaluator.leading_index(x, leading, domain).await?).await?;
        evaluator.lookup(&index, &self.table, ring).await
    }
}
