//! e^−x for x ≥ 0.

use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, join3};
use crate::reference;
use crate::ring::Ring;
use crate::table::Table;
use crate::tensor::{Share, Wire};

/// e^−x of not negative x with f fractional bits, zero from x = 16 on.
///
/// x is split into h, the bits from f/2 + 2 on, and l below: e^−x = S(h) T(l) with tables of f + 2 fractional
/// bits, whose product is rounded to f. l needs no interaction at all, since the low bits of a masked value
/// are masked low bits. h is not opened either: S is looked up at both numbers that it can be, and the
/// product chooses by the borrow. Whether x < 16 is a comparison of the upper bits, of h or of h + 1. That is
/// the same, since S is zero at the last h below 16.
///
/// ```text
/// round 1   the borrow of the split, ±S(h + b), ±S(h + b − 1), ±T(l), 1[h + b < 16]
/// round 2   the product                          round 3   the borrow of its rounding
/// round 4   the result, by whoever opens it
/// ```
#[derive(Debug, Clone)]
pub struct NegativeExponential {
    fraction: u32,
    split: u32,
    high: Table,
    low: Table,
}

/// Fractional bits of the tables beyond the result's.
const GUARD: u32 = 2;

impl NegativeExponential {
    /// The gate for numbers with `fraction` fractional bits, an even number.
    pub fn new(fraction: u32) -> Result<Self> {
        if !fraction.is_multiple_of(2) || !(4..=14).contains(&fraction) {
            let what = format!("{fraction} fractional bits: there must be 4 to 14, and an even number");
            return Err(Error::Unsupported { gate: "an exponential", what });
        }
        let split = fraction / 2 + 2;
        let (unit, scale) = ((1u64 << fraction) as f64, (1u64 << (fraction + GUARD)) as f64);
        let entry = |steps: u64| (reference::exp(-(steps as f64) / unit) * scale).round() as i64;
        let high = Table::new(split, |index| entry(index << split))?;
        // Whoever compares h + 1 with 16 instead of h drops the last entry.
        debug_assert_eq!(high.value((1 << split) - 1), 0);
        Ok(Self { fraction, split, high, low: Table::new(split, entry)? })
    }

    /// Bits of the ring in which the tables' product fits, with the gap that its rounding needs.
    fn product_ring(&self) -> Result<Ring> {
        Ring::new(2 * (self.fraction + GUARD) + 2)
    }

    /// Where results lie: 0 to 1.
    pub fn bound(&self) -> Bound {
        Bound::proved(0, 1 << self.fraction)
    }

    /// e^−x of every element, in the ring `out`.
    pub async fn apply(&self, evaluator: &Evaluator, x: &Wire, out: Ring) -> Result<Share> {
        const GATE: &str = "an exponential";
        let bound = x.bound();
        if bound.lo() < 0 {
            let room = "the numbers from zero on".to_owned();
            return Err(Error::NotProved { gate: GATE, lo: bound.lo(), hi: bound.hi(), room });
        }
        let (ring, reach) = (self.product_ring()?, self.fraction + 4);
        let (limit, next) = (1i128 << reach, 1i128 << self.split);
        let bits = bound.plus(&Bound::exactly(next - limit)).signed_bits().max(reach + 1);
        if bits > x.ring().bits() {
            let room = format!("half a ring of {} bits", x.ring().bits());
            return Err(Error::NotProved { gate: GATE, lo: bound.lo(), hi: bound.hi(), room });
        }
        let inside = async {
            let high = evaluator.quotient_or_next(x, self.split, Ring::new(bits - self.split)?)?;
            let shift = high.ring().encode(-(limit >> self.split));
            evaluator.open(evaluator.signs(&high, &[shift])?.remove(0)).await
        };
        let high = async {
            evaluator.lookup_quotient(&x.low_bits(2 * self.split)?, self.split, &self.high, ring).await
        };
        let low = async { evaluator.lookup(&x.low_bits(self.split)?, &self.low, ring).await };
        let (inside, high, low) = join3(inside, high, low).await?;
        let product = evaluator.select_product(&inside, &high, &low)?;
        let shift = self.fraction + 2 * GUARD;
        let rounded = evaluator.open(evaluator.offset_share(&product, 1 << (shift - 1))?).await?;
        evaluator.claim(GATE, evaluator.gap_truncate(&rounded, shift, out).await?, self.bound())
    }
}
