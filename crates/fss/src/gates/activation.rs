//! ReLU, GELU and SiLU.

use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, join};
use crate::reference;
use crate::ring::Ring;
use crate::table::Table;
use crate::tensor::{Share, Wire};

/// MSB(x + c) for each c, on as few bits as the values' bound allows.
///
/// Where x + c might leave the ring the sign is an interval test of all n bits instead.
pub(super) fn negatives(evaluator: &Evaluator, x: &Wire, shifts: &[i128]) -> Result<Vec<Share>> {
    let shifted = |shift: &i128| x.bound().plus(&Bound::exactly(*shift)).signed_bits();
    let bits = shifts.iter().map(shifted).max().unwrap_or(1).max(2);
    let ring = x.ring();
    if bits <= ring.bits() {
        let narrow = Ring::new(bits)?;
        let words: Vec<u64> = shifts.iter().map(|&shift| narrow.encode(shift)).collect();
        return evaluator.signs(&x.narrow(bits)?, &words);
    }
    signed_in("a sign", x)?;
    let ends: Vec<(u64, u64)> =
        shifts.iter().map(|&shift| (1 << (ring.bits() - 1), ring.encode(-shift))).collect();
    evaluator.intervals(x, &ends)
}

/// Refuses values whose residues, read as signed, need not be the values.
pub(super) fn signed_in(gate: &'static str, x: &Wire) -> Result<()> {
    let (bound, ring) = (x.bound(), x.ring());
    if Bound::signed(ring).contains(&bound) {
        return Ok(());
    }
    let room = format!("a signed number of {} bits", ring.bits());
    Err(Error::NotProved { gate, lo: bound.lo(), hi: bound.hi(), room })
}

/// max(x, 0) = 1[x ≥ 0] x: one comparison and one selection. Two rounds with the opening of the result.
pub async fn relu(evaluator: &Evaluator, x: &Wire) -> Result<Share> {
    let negative = negatives(evaluator, x, &[0])?.remove(0);
    let positive = evaluator.open(evaluator.offset_share(&negative, 1)?).await?;
    let share = evaluator.select(&positive, x)?;
    let bound = x.bound();
    evaluator.claim("a ReLU", share, Bound::proved(bound.lo().max(0), bound.hi().max(0)))
}

/// g(x) = max(x, 0) − δ(x), where δ is even, small, and zero outside [−2^e, 2^e).
///
/// With y = ⌊x / 2^s⌋, δ is a public table of its middle over the 2^s inputs that share y, read at y modulo
/// the table's size; outside the interval the value is dropped by a bit. The comparisons are of y, which has
/// fewer bits than x: three walks of one key.
///
/// ```text
/// round 1   the borrow of the truncation       round 2   y
/// round 3   ±δ, and the bits 1[y ≥ 0] and 1[−2^e ≤ x < 2^e]
/// round 4   the result, by whoever opens it
/// ```
///
/// Where x is itself a quotient, [`Activation::truncated`] opens y beside it, and rounds 1 and 2 fall away.
#[derive(Debug, Clone)]
pub struct Activation {
    fraction: u32,
    /// log2 of the first magnitude at which δ counts as zero, in whole units.
    reach: u32,
    shift: u32,
    table: Table,
}

/// Fractional bits of a table's index.
const INDEX_FRACTION: u32 = 6;

impl Activation {
    /// x Φ(x), to within 16 units of the last of 12 fractional bits.
    pub fn gelu(fraction: u32) -> Result<Self> {
        Self::new("gelu", fraction, 2, reference::gelu)
    }

    /// GELU by the hyperbolic tangent, to within 16 units of the last of 12 fractional bits.
    pub fn gelu_tanh(fraction: u32) -> Result<Self> {
        Self::new("gelu by tanh", fraction, 2, reference::gelu_tanh)
    }

    /// x / (1 + e^−x), to within 16 units of the last of 12 fractional bits.
    pub fn silu(fraction: u32) -> Result<Self> {
        Self::new("silu", fraction, 3, reference::silu)
    }

    fn new(name: &'static str, fraction: u32, reach: u32, function: fn(f64) -> f64) -> Result<Self> {
        if !(INDEX_FRACTION + 1..=24).contains(&fraction) {
            let what = format!("{fraction} fractional bits: there must be {} to 24", INDEX_FRACTION + 1);
            return Err(Error::Unsupported { gate: "an activation", what });
        }
        let shift = fraction - INDEX_FRACTION;
        let domain = 1 + reach + INDEX_FRACTION;
        let index_ring = Ring::new(domain)?;
        let unit = (1u64 << fraction) as f64;
        let delta = |x: i64| {
            let x = x as f64 / unit;
            (x.max(0.0) - function(x)) * unit
        };
        // The value that is least wrong over its whole run: the middle of the largest and the smallest.
        let middle = |index: u64| {
            let first = index_ring.signed(index) << shift;
            let run = (first..first + (1 << shift)).map(delta);
            let (lo, hi) = run.fold((f64::MAX, f64::MIN), |(lo, hi), x| (lo.min(x), hi.max(x)));
            ((lo + hi) / 2.0).round() as i64
        };
        let table = Table::known(name, [fraction.into(), 0, 0], || Table::new(domain, middle))?;
        Ok(Self { fraction, reach, shift, table })
    }

    /// g(x) of every element, in the ring of `x`.
    pub async fn apply(&self, evaluator: &Evaluator, x: &Wire) -> Result<Share> {
        let (bits, quotient) = self.index_ring(&x.bound(), x.ring())?;
        let y = evaluator.truncate_reduce(&x.narrow(bits)?, self.shift, quotient).await?;
        self.apply_at(evaluator, x, &evaluator.open(y).await?).await
    }

    /// x = ⌊p / 2^t⌋ in the ring of p, and y of it, both opened in the round in which x alone would be, for
    /// [`Activation::apply_at`].
    pub async fn truncated(&self, evaluator: &Evaluator, product: &Wire, shift: u32) -> Result<(Wire, Wire)> {
        let ring = product.ring();
        let (_, quotient) = self.index_ring(&product.bound().shifted_right(shift), ring)?;
        let [x, y] = evaluator.two_quotients(product, [shift, self.shift], ring, quotient).await?;
        join(evaluator.open(x), evaluator.open(y)).await
    }

    /// Bits of x that y depends on, and the ring of y.
    fn index_ring(&self, bound: &Bound, ring: Ring) -> Result<(u32, Ring)> {
        let domain = self.table.domain();
        // In fewer bits the limits themselves are no signed numbers.
        if ring.bits() <= domain + self.shift {
            let what =
                format!("in a ring of {} bits: at least {} are needed", ring.bits(), domain + self.shift + 1);
            return Err(Error::Unsupported { gate: "an activation", what });
        }
        let limit = self.limit();
        let sums = [limit, -limit].map(|shift| bound.plus(&Bound::exactly(shift)).signed_bits());
        let bits = sums[0].max(sums[1]).max(domain + self.shift).min(ring.bits());
        Ok((bits, Ring::new(bits.saturating_sub(self.shift))?))
    }

    /// 2^e with f fractional bits.
    fn limit(&self) -> i128 {
        1 << (self.reach + self.fraction)
    }

    /// g(x) of every element, in the ring of `x`, where y is known.
    pub async fn apply_at(&self, evaluator: &Evaluator, x: &Wire, y: &Wire) -> Result<Share> {
        let comparisons = async {
            let limit = self.limit() >> self.shift;
            let signs = negatives(evaluator, y, &[0, limit, -limit])?;
            let positive = evaluator.offset_share(&signs[0], 1)?;
            let inside = signs[1].xor(&signs[2])?;
            join(evaluator.open(positive), evaluator.open(inside)).await
        };
        let delta =
            async { evaluator.lookup(&y.low_bits(self.table.domain())?, &self.table, x.ring()).await };
        let ((positive, inside), delta) = join(comparisons, delta).await?;
        evaluator.select(&positive, x)?.minus(&evaluator.select_looked_up(&inside, &delta)?)
    }
}
