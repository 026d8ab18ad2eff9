//! An explicit clamp: the way to a bound where nothing else proves one.

use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, join};
use crate::tensor::{Share, Wire};

use super::activation::signed_in;

/// min(max(x, lo), hi) = lo + 1[x ≥ lo] (x − lo) − 1[x ≥ hi] (x − hi), of any signed x in the ring.
///
/// One key of as many bits as the values' bound and the limits take, and two selections; the result's bound
/// is [lo, hi], proved. Two rounds with its opening.
pub async fn clamp(evaluator: &Evaluator, x: &Wire, lo: i64, hi: i64) -> Result<Share> {
    let ring = x.ring();
    let room = Bound::signed(ring);
    if lo > hi || !room.contains(&Bound::proved(lo.into(), hi.into())) {
        let what = format!("to {lo} to {hi} in a ring of {} bits", ring.bits());
        return Err(Error::Unsupported { gate: "a clamp", what });
    }
    signed_in("a clamp", x)?;
    let limits = Bound::proved(lo.into(), hi.into());
    let bits = x.bound().hull(&limits).signed_bits().min(ring.bits());
    let narrow = x.narrow(bits)?;
    let (from, to) = (narrow.ring().encode(lo.into()), narrow.ring().encode(hi.into()));
    let least = 1u64 << (bits - 1);
    let below = evaluator.intervals(&narrow, &[(least, from), (least, to)])?;
    let above_lo = evaluator.open(evaluator.offset_share(&below[0], 1)?);
    let above_hi = evaluator.open(evaluator.offset_share(&below[1], 1)?);
    let (above_lo, above_hi) = join(above_lo, above_hi).await?;
    let low = evaluator.select(&above_lo, &evaluator.offset_in_ring(x, -i128::from(lo))?)?;
    let high = evaluator.select(&above_hi, &evaluator.offset_in_ring(x, -i128::from(hi))?)?;
    let sum = evaluator.offset_share(&low.minus_in_ring(&high)?, lo.into())?;
    evaluator.claim("a clamp", sum, Bound::proved(lo.into(), hi.into()))
}
