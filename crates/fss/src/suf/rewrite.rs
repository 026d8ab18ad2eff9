//! Predicates on x as predicates on x̂ = x + r.
//!
//! Every predicate is a cyclic interval [a, b) of the ring, or of the ring of its low bits, and
//!
//! ```text
//! x ∈ [a, b)  ⇔  r ∈ (x̂ − b, x̂ − a]  ⇔  1[x̂ − a < r] ⊕ 1[x̂ − b < r] ⊕ 1[x̂ − a < x̂ − b]
//! ```
//!
//! so that the secret enters only as the one place r of a point function: thresholds stay public and on the
//! public side, and neither the number of comparisons nor their widths depend on r.

use crate::error::Result;
use crate::ring::Ring;

use super::function::Predicate;

/// 1[x̂ − offset < r] in the ring of the low `bits` bits, r being the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Comparison {
    /// Of how many low bits.
    pub bits: u32,
    /// a.
    pub offset: u64,
}

/// A predicate after the rewrite: two comparisons with the secret, and two public numbers to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masked {
    /// The same for every x.
    Constant(bool),
    /// `from` ⊕ `to` ⊕ 1[x̂ − from < x̂ − to].
    Interval {
        /// The comparison with the interval's start.
        from: Comparison,
        /// The comparison with the interval's end.
        to: Comparison,
    },
}

impl Masked {
    /// Its value for a public x̂ and a secret r.
    pub fn holds(&self, masked: u64, secret: u64) -> bool {
        match self {
            Self::Constant(value) => *value,
            Self::Interval { from, to } => {
                let mask = u64::MAX >> (64 - from.bits);
                let below = |c: &Comparison| masked.wrapping_sub(c.offset) & mask < secret & mask;
                let public = masked.wrapping_sub(from.offset) & mask < masked.wrapping_sub(to.offset) & mask;
                below(from) ^ below(to) ^ public
            }
        }
    }

    fn interval(bits: u32, start: u64, end: u64) -> Self {
        let mask = u64::MAX >> (64 - bits);
        let comparison = |offset: u64| Comparison { bits, offset: offset & mask };
        Self::Interval { from: comparison(start), to: comparison(end) }
    }
}

/// The mask-correct form of a predicate.
pub fn rewrite(ring: Ring, predicate: &Predicate) -> Result<Masked> {
    predicate.validate(ring)?;
    Ok(match *predicate {
        Predicate::Below { limit: 0 } | Predicate::LowBelow { limit: 0, .. } => Masked::Constant(false),
        Predicate::Below { limit } if limit > ring.mask() => Masked::Constant(true),
        Predicate::LowBelow { bits, limit } if limit >= 1 << bits => Masked::Constant(true),
        Predicate::Below { limit } => Masked::interval(ring.bits(), 0, limit),
        Predicate::LowBelow { bits, limit } => Masked::interval(bits, 0, limit),
        Predicate::Msb { shift } => {
            let half = 1u64 << (ring.bits() - 1);
            Masked::interval(ring.bits(), half.wrapping_sub(shift), shift.wrapping_neg())
        }
    })
}
