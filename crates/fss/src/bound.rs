//! Proofs that a value stays where it should.

use crate::error::{Error, Result};
use crate::ring::Ring;

/// An interval that is *proved* to hold a value: lo ≤ v ≤ hi as integers, whatever the secrets are.
///
/// A bound comes from what made the value: a table's entries, a declared and checked input, an explicit
/// clamp, sums and products of bounded values. What proves one by other means, as a range analysis of a whole
/// network does, makes it with [`Bound::proved`] and attaches it with
/// [`Evaluator::claim`](crate::Evaluator::claim).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    lo: i128,
    hi: i128,
}

impl Bound {
    /// The interval of two ends, for which the caller vouches: a range analysis, a clamp, a gate with a known
    /// range.
    ///
    /// A value outside gives a wrong result without a word, except in the clear evaluation, where it is an
    /// error.
    pub fn proved(lo: i128, hi: i128) -> Self {
        Self { lo: lo.min(hi), hi: hi.max(lo) }
    }

    /// A public constant.
    pub fn exactly(value: i128) -> Self {
        Self { lo: value, hi: value }
    }

    /// A bit.
    pub fn bit() -> Self {
        Self { lo: 0, hi: 1 }
    }

    /// Every residue, read as unsigned.
    pub fn unsigned(ring: Ring) -> Self {
        Self { lo: 0, hi: ring.size() - 1 }
    }

    /// Every residue, read as signed.
    pub fn signed(ring: Ring) -> Self {
        Self { lo: -ring.size() / 2, hi: ring.size() / 2 - 1 }
    }

    /// The least value.
    pub fn lo(&self) -> i128 {
        self.lo
    }

    /// The greatest value.
    pub fn hi(&self) -> i128 {
        self.hi
    }

    /// max |v|.
    pub fn magnitude(&self) -> i128 {
        self.lo.saturating_abs().max(self.hi.saturating_abs())
    }

    /// Whether every value of `other` is within this bound.
    pub fn contains(&self, other: &Self) -> bool {
        self.lo <= other.lo && other.hi <= self.hi
    }

    /// Values of either.
    pub fn hull(&self, other: &Self) -> Self {
        Self { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// u + v.
    pub fn plus(&self, other: &Self) -> Self {
        Self { lo: self.lo.saturating_add(other.lo), hi: self.hi.saturating_add(other.hi) }
    }

    /// −v.
    pub fn negated(&self) -> Self {
        Self { lo: self.hi.saturating_neg(), hi: self.lo.saturating_neg() }
    }

    /// u v.
    pub fn times(&self, other: &Self) -> Self {
        let products = [self.lo, self.hi].map(|u| [other.lo, other.hi].map(|v| u.saturating_mul(v)));
        let products = products.into_iter().flatten();
        products.map(Self::exactly).reduce(|a, b| a.hull(&b)).unwrap_or(*self)
    }

    /// v².
    pub fn squared(&self) -> Self {
        let square = self.times(self);
        let least = if self.lo > 0 || self.hi < 0 { square.lo } else { 0 };
        Self { lo: least, hi: square.hi }
    }

    /// A sum of `count` such values.
    pub fn summed(&self, count: usize) -> Self {
        self.times(&Self::exactly(count as i128))
    }

    /// ⌊v / 2^shift⌋.
    pub fn shifted_right(&self, shift: u32) -> Self {
        Self { lo: self.lo >> shift, hi: self.hi >> shift }
    }

    /// Where v or zero lies.
    pub fn or_zero(&self) -> Self {
        self.hull(&Self::exactly(0))
    }

    /// Whether distinct values have distinct residues, so that the integer can be told from its residue.
    pub fn fits(&self, ring: Ring) -> bool {
        self.hi.checked_sub(self.lo).is_some_and(|width| width < ring.size())
    }

    /// The integer of a residue, if it is within the bound.
    pub fn decode(&self, ring: Ring, word: u64) -> Option<i128> {
        let above = i128::from(ring.reduce(word).wrapping_sub(ring.encode(self.lo)) & ring.mask());
        let value = self.lo + above;
        (value <= self.hi).then_some(value)
    }

    /// This bound, if it fits the ring.
    pub fn in_ring(self, gate: &'static str, ring: Ring) -> Result<Self> {
        if self.fits(ring) {
            return Ok(self);
        }
        let room = format!("a ring of {} bits", ring.bits());
        Err(Error::NotProved { gate, lo: self.lo, hi: self.hi, room })
    }

    /// Bits of the narrowest ring in which every value, and its sign, can be told.
    pub fn signed_bits(&self) -> u32 {
        let above = |value: i128| 128 - if value < 0 { !value } else { value }.leading_zeros();
        above(self.lo).max(above(self.hi)) + 1
    }
}

/// A proof that a value leaves room for a truncation with one short comparison: v + offset is below half the
/// ring.
///
/// * signed: |v| < 2^(n−2), offset 2^(n−2);
/// * not negative: 0 ≤ v < 2^(n−1), offset 0.
///
/// Which of the two is public; the bound itself is not used further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GapProof {
    offset: u64,
}

impl GapProof {
    /// The proof, if the bound gives one.
    pub fn of(bound: &Bound, ring: Ring) -> Option<Self> {
        let half = ring.size() / 2;
        if bound.lo >= 0 && bound.hi < half {
            return Some(Self { offset: 0 });
        }
        let quarter = half / 2;
        (quarter > 0 && bound.lo > -quarter && bound.hi < quarter).then_some(Self { offset: quarter as u64 })
    }

    /// The public constant that makes the value unsigned.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_holds_every_value() {
        let values = |bound: Bound| bound.lo..=bound.hi;
        let bounds = [Bound::proved(-3, 4), Bound::proved(2, 5), Bound::proved(-6, -2), Bound::exactly(0)];
        for a in bounds {
            for b in bounds {
                for u in values(a) {
                    assert!(a.squared().contains(&Bound::exactly(u * u)));
                    assert!(a.shifted_right(1).contains(&Bound::exactly(u.div_euclid(2))));
                    for v in values(b) {
                        assert!(a.plus(&b).contains(&Bound::exactly(u + v)));
                        assert!(a.plus(&b.negated()).contains(&Bound::exactly(u - v)));
                        assert!(a.times(&b).contains(&Bound::exactly(u * v)));
                    }
                }
            }
        }
    }

    #[test]
    fn residues_decode_within_their_bound_only() {
        let ring = Ring::new(6).unwrap();
        let bound = Bound::proved(-20, 30);
        for value in -20..=30 {
            assert_eq!(bound.decode(ring, ring.encode(value)), Some(value));
        }
        assert_eq!(bound.decode(ring, ring.encode(31)), None);
        assert!(!Bound::proved(-32, 32).fits(ring));
    }

    #[test]
    fn a_gap_is_proved_up_to_its_edge() {
        let ring = Ring::new(10).unwrap();
        let offset = |lo, hi| GapProof::of(&Bound::proved(lo, hi), ring).map(|proof| proof.offset());
        assert_eq!(offset(0, 511), Some(0));
        assert_eq!(offset(-1, 255), Some(256));
        assert_eq!(offset(-255, 255), Some(256));
        assert_eq!(offset(-256, 255), None);
        assert_eq!(offset(-1, 256), None);
        assert_eq!(offset(0, 512), None);
    }

    #[test]
    fn signed_bits_are_enough_and_not_more() {
        for (lo, hi, bits) in [(0, 0, 1), (-1, 0, 1), (0, 1, 2), (-2, 1, 2), (-128, 127, 8), (0, 128, 9)] {
            assert_eq!(Bound::proved(lo, hi).signed_bits(), bits, "{lo}..={hi}");
        }
    }
}
