//! Comparisons, and values chosen by bits.

use crate::bound::Bound;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ring::Ring;
use crate::tensor::{Share, Wire};

impl Engine {
    /// MSB(x + c) for every public c, from one key.
    ///
    /// MSB(x + c) = MSB(x̂ + c) ⊕ MSB(r) ⊕ 1[(x̂ + c) mod 2^(n−1) < r mod 2^(n−1)]: a point function of n − 1 bits at r,
    /// one walk for each c. Masked by a fresh bit each.
    pub fn signs(&self, x: &Wire, shifts: &[u64]) -> Result<Vec<Share>> {
        let (ring, len) = (x.ring, x.len);
        if ring.bits() < 2 {
            return Err(Error::Unsupported { gate: "a sign", what: "a ring of one bit has none".into() });
        }
        let keys = self.points(ring.bits() - 1, len, |index| x.words[index])?;
        let below =
            self.less_than(&keys, shifts.len(), |row, index| x.words[index].wrapping_add(shifts[row]))?;
        let fresh = self.free(len * shifts.len(), Ring::BIT);
        let sign = |(row, &shift): (usize, &u64)| {
            let at = row * len;
            let shifted = |index: usize| ring.msb(ring.reduce(x.words[index].wrapping_add(shift)));
            self.compute(
                "a sign",
                (Ring::BIT, len),
                Bound::bit(),
                shifted,
                |index| ring.msb(x.words[index]) ^ fresh[at + index],
                |index, party| below[at + index] ^ party.once(shifted(index)) ^ fresh[at + index],
            )
        };
        shifts.iter().enumerate().map(sign).collect()
    }

    /// 1[x ∈ [lo, hi)] for every pair of public ends, cyclically in the ring, from one key. Equal ends are an empty interval.
    ///
    /// x ∈ [lo, hi) ⇔ r ∈ (x̂ − hi, x̂ − lo], so the bit is 1[x̂ − lo < r] ⊕ 1[x̂ − hi < r] ⊕ 1[x̂ − lo < x̂ − hi], whose last term
    /// is public: a point function of n bits at r, one walk for each distinct end.
    pub fn intervals(&self, x: &Wire, ends: &[(u64, u64)]) -> Result<Vec<Share>> {
        let empty = |lo: u64, hi: u64| x.ring.reduce(lo) == x.ring.reduce(hi);
        let sets: Vec<Vec<(u64, u64)>> =
            ends.iter().map(|&(lo, hi)| if empty(lo, hi) { vec![] } else { vec![(lo, hi)] }).collect();
        self.unions(x, &sets.iter().collect::<Vec<_>>())
    }

    /// Whether x is in a union of disjoint cyclic intervals, for every union, from one key: the exclusive or of interval tests. An
    /// interval whose ends are equal is the whole ring.
    pub(crate) fn unions(&self, x: &Wire, sets: &[&Vec<(u64, u64)>]) -> Result<Vec<Share>> {
        let (ring, len) = (x.ring, x.len);
        let ends =
            sets.iter().flat_map(|set| set.iter()).filter(|(lo, hi)| ring.reduce(*lo) != ring.reduce(*hi));
        let mut cuts: Vec<u64> = ends.flat_map(|&(lo, hi)| [ring.reduce(lo), ring.reduce(hi)]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let keys = self.points(ring.bits(), len, |index| x.words[index])?;
        let below = self.less_than(&keys, cuts.len(), |row, index| x.words[index].wrapping_sub(cuts[row]))?;
        let fresh = self.free(len * sets.len(), Ring::BIT);
        let row_of = |end: u64| cuts.partition_point(|&cut| cut < ring.reduce(end));
        let shifted = |index: usize, end: u64| ring.reduce(x.words[index].wrapping_sub(end));
        let union = |(row, set): (usize, &&Vec<(u64, u64)>)| {
            let at = row * len;
            let whole = set.iter().any(|(lo, hi)| ring.reduce(*lo) == ring.reduce(*hi));
            let parts: Vec<(u64, u64)> = if whole { Vec::new() } else { set.to_vec() };
            self.compute(
                "an interval test",
                (Ring::BIT, len),
                Bound::bit(),
                |index| {
                    let inside =
                        |&(lo, hi): &(u64, u64)| shifted(index, lo) < ring.reduce(hi.wrapping_sub(lo));
                    u64::from(whole || parts.iter().any(inside))
                },
                |index| fresh[at + index],
                |index, party| {
                    let part = |bit: u64, &(lo, hi): &(u64, u64)| {
                        let wrapped = u64::from(shifted(index, lo) < shifted(index, hi));
                        let [from, to] = [lo, hi].map(|end| below[row_of(end) * len + index]);
                        bit ^ from ^ to ^ party.once(wrapped)
                    };
                    parts.iter().fold(fresh[at + index] ^ party.once(u64::from(whole)), part)
                },
            )
        };
        sets.iter().enumerate().map(union).collect()
    }

    /// The same public bit for every element, shared without a mask: for sums with shares that have one.
    pub(crate) fn constant_bits(&self, len: usize, bit: bool) -> Result<Share> {
        let bit = u64::from(bit);
        self.compute("a constant", (Ring::BIT, len), Bound::bit(), |_| bit, |_| 0, |_, party| party.once(bit))
    }

    /// b x for an opened bit b̂ = b ⊕ ρ.
    ///
    /// b = 0 ⊕ ρ: x̂ ⟨ρ⟩ + u; b = 1 ⊕ ρ: x̂ − x̂ ⟨ρ⟩ + ⟨u + (2ρ − 1) r⟩. Two words of key, of which a party stores half.
    pub fn select(&self, bit: &Wire, x: &Wire) -> Result<Share> {
        expect_bits(bit, x.len, "a selection")?;
        let (ring, len) = (x.ring, x.len);
        let (b, r) = (&bit.words, &x.words);
        let fresh = self.free(len, ring);
        let flip = self.deal(len, ring, |index| b[index])?;
        let other = self.deal(len, ring, |index| {
            let sign = (2 * b[index]).wrapping_sub(1);
            fresh[index].wrapping_add(sign.wrapping_mul(r[index]))
        })?;
        self.compute(
            "a selection",
            (ring, len),
            x.bound.or_zero(),
            |index| b[index].wrapping_mul(r[index]),
            |index| fresh[index].wrapping_add(b[index].wrapping_mul(r[index])),
            |index, party| {
                let (word, product) = (r[index], r[index].wrapping_mul(flip[index]));
                let when_zero = product.wrapping_add(fresh[index]);
                let when_one = party.once(word).wrapping_sub(product).wrapping_add(other[index]);
                choose(b[index], when_zero, when_one)
            },
        )
    }

    /// A bit as 0 or 1 of a ring: b = b̂ + (1 − 2 b̂) ⟨ρ⟩.
    pub fn bit_value(&self, bit: &Wire, ring: Ring) -> Result<Share> {
        expect_bits(bit, bit.len, "a bit's value")?;
        let b = &bit.words;
        let fresh = self.free(bit.len, ring);
        let flip = self.deal(bit.len, ring, |index| b[index])?;
        self.compute(
            "a bit's value",
            (ring, bit.len),
            Bound::bit(),
            |index| b[index],
            |index| fresh[index],
            |index, party| {
                let flipped = signed_by(b[index], flip[index]);
                party.once(b[index]).wrapping_add(flipped).wrapping_add(fresh[index])
            },
        )
    }

    /// a ∧ b of opened bits: â b̂ ⊕ â ⟨ρ_b⟩ ⊕ b̂ ⟨ρ_a⟩ ⊕ u.
    pub fn and(&self, a: &Wire, b: &Wire) -> Result<Share> {
        expect_bits(a, a.len, "a conjunction")?;
        expect_bits(b, a.len, "a conjunction")?;
        let (a, b, len) = (&a.words, &b.words, a.len);
        let fresh = self.free(len, Ring::BIT);
        let flip_a = self.deal(len, Ring::BIT, |index| a[index])?;
        let flip_b = self.deal(len, Ring::BIT, |index| b[index])?;
        self.compute(
            "a conjunction",
            (Ring::BIT, len),
            Bound::bit(),
            |index| a[index] & b[index],
            |index| (a[index] & b[index]) ^ fresh[index],
            |index, party| {
                let crossed = (a[index] & flip_b[index]) ^ (b[index] & flip_a[index]);
                party.once(a[index] & b[index]) ^ crossed ^ fresh[index]
            },
        )
    }
}

/// One of two words by a bit, without a branch.
pub(super) fn choose(bit: u64, when_zero: u64, when_one: u64) -> u64 {
    when_zero ^ (bit.wrapping_neg() & (when_zero ^ when_one))
}

/// (1 − 2 b) v.
pub(super) fn signed_by(bit: u64, value: u64) -> u64 {
    choose(bit, value, value.wrapping_neg())
}

pub(super) fn expect_bits(bit: &Wire, len: usize, gate: &'static str) -> Result<()> {
    if bit.ring == Ring::BIT && bit.len == len {
        return Ok(());
    }
    Err(Error::Shape { gate, what: format!("{bit:?} where {len} bits belong") })
}
