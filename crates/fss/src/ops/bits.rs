//! Comparisons, and values chosen by bits.

use crate::backend::Words;
use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::formula::View;
use crate::ring::Ring;
use crate::tensor::{Share, Wire};

impl Evaluator {
    /// MSB(x + c) for every public c, from one key.
    ///
    /// MSB(x + c) = MSB(x̂ + c) ⊕ MSB(r) ⊕ 1[(x̂ + c) mod 2^(n−1) < r mod 2^(n−1)]: a point function of n − 1
    /// bits at r, one walk for each c. Masked by a fresh bit each.
    pub fn signs(&self, x: &Wire, shifts: &[u64]) -> Result<Vec<Share>> {
        let (ring, len, word) = (x.ring(), x.len(), x.words());
        if ring.bits() < 2 {
            return Err(Error::Unsupported { gate: "a sign", what: "a ring of one bit has none".into() });
        }
        let keys = self.points(ring.bits() - 1, x)?;
        let below = &self.less_than(&keys, x, shifts)?;
        let fresh = &self.fresh(len * shifts.len(), Ring::BIT)?;
        let sign = |(row, &shift): (usize, &u64)| {
            let row = || View::From(row * len);
            self.compute(
                "a sign",
                (Ring::BIT, len),
                Bound::bit(),
                |w| (w.read(word) + shift).msb(ring),
                |w| w.read(word).msb(ring) ^ w.read_as(fresh, row()),
                |w, party| {
                    let public = (w.read(word) + shift).msb(ring);
                    w.read_as(below, row()) ^ public.once(party) ^ w.read_as(fresh, row())
                },
            )
        };
        shifts.iter().enumerate().map(sign).collect()
    }

    /// 1[x ∈ [lo, hi)] for every pair of public ends, cyclically in the ring, from one key. Equal ends are an
    /// empty interval.
    ///
    /// x ∈ [lo, hi) ⇔ r ∈ (x̂ − hi, x̂ − lo], so the bit is 1[x̂ − lo < r] ⊕ 1[x̂ − hi < r] ⊕ 1[x̂ − lo < x̂
    /// − hi], whose last term is public: a point function of n bits at r, one walk for each distinct end.
    pub fn intervals(&self, x: &Wire, ends: &[(u64, u64)]) -> Result<Vec<Share>> {
        let empty = |lo: u64, hi: u64| x.ring().reduce(lo) == x.ring().reduce(hi);
        let sets: Vec<Vec<(u64, u64)>> =
            ends.iter().map(|&(lo, hi)| if empty(lo, hi) { vec![] } else { vec![(lo, hi)] }).collect();
        self.unions(x, &sets.iter().collect::<Vec<_>>())
    }

    /// Whether x is in a union of disjoint cyclic intervals, for every union, from one key: the exclusive or
    /// of interval tests. An interval whose ends are equal is the whole ring.
    pub(crate) fn unions(&self, x: &Wire, sets: &[&Vec<(u64, u64)>]) -> Result<Vec<Share>> {
        let (ring, len, word) = (x.ring(), x.len(), x.words());
        let ends =
            sets.iter().flat_map(|set| set.iter()).filter(|(lo, hi)| ring.reduce(*lo) != ring.reduce(*hi));
        let mut cuts: Vec<u64> = ends.flat_map(|&(lo, hi)| [ring.reduce(lo), ring.reduce(hi)]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let keys = self.points(ring.bits(), x)?;
        let shifts: Vec<u64> = cuts.iter().map(|cut| cut.wrapping_neg()).collect();
        let below = &self.less_than(&keys, x, &shifts)?;
        let fresh = &self.fresh(len * sets.len(), Ring::BIT)?;
        let row_of = |end: u64| cuts.partition_point(|&cut| cut < ring.reduce(end));
        let union = |(row, set): (usize, &&Vec<(u64, u64)>)| {
            let mask = || View::From(row * len);
            let whole = set.iter().any(|(lo, hi)| ring.reduce(*lo) == ring.reduce(*hi));
            let parts: Vec<(u64, u64)> = if whole { Vec::new() } else { set.to_vec() };
            self.compute(
                "an interval test",
                (Ring::BIT, len),
                Bound::bit(),
                |w| {
                    // Disjoint intervals, so that at most one bit is set.
                    parts.iter().fold(w.number(whole.into()), |bit, &(lo, hi)| {
                        bit ^ (w.read(word) - lo)
                            .reduce(ring)
                            .below(w.number(ring.reduce(hi.wrapping_sub(lo))))
                    })
                },
                |w| w.read_as(fresh, mask()),
                |w, party| {
                    let start = w.read_as(fresh, mask()) ^ w.number(whole.into()).once(party);
                    parts.iter().fold(start, |bit, &(lo, hi)| {
                        let [from, to] = [lo, hi].map(|end| w.read_as(below, View::From(row_of(end) * len)));
                        let [after, before] = [lo, hi].map(|end| (w.read(word) - end).reduce(ring));
                        bit ^ from ^ to ^ after.below(before).once(party)
                    })
                },
            )
        };
        sets.iter().enumerate().map(union).collect()
    }

    /// The same public bit for every element, shared without a mask: for sums with shares that have one.
    pub(crate) fn constant_bits(&self, len: usize, bit: bool) -> Result<Share> {
        let bit = u64::from(bit);
        self.compute(
            "a constant",
            (Ring::BIT, len),
            Bound::bit(),
            |w| w.number(bit),
            |w| w.number(0),
            |w, party| w.number(bit).once(party),
        )
    }

    /// b x for an opened bit b̂ = b ⊕ ρ.
    ///
    /// b = 0 ⊕ ρ: x̂ ⟨ρ⟩ + u; b = 1 ⊕ ρ: x̂ − x̂ ⟨ρ⟩ + ⟨u + (2ρ − 1) r⟩. Two words of key, of which a party
    /// stores half.
    pub fn select(&self, bit: &Wire, x: &Wire) -> Result<Share> {
        expect_bits(bit, x.len(), "a selection")?;
        let (ring, len) = (x.ring(), x.len());
        let (bit, word) = (bit.words(), x.words());
        let fresh = &self.fresh(len, ring)?;
        let flip = &self.deal(len, ring, |w| w.read(bit))?;
        let other = &self.deal(len, ring, |w| {
            let [u, rho, r] = w.read_all([fresh, bit, word]);
            u + (rho * 2 - 1) * r
        })?;
        self.compute(
            "a selection",
            (ring, len),
            x.bound().or_zero(),
            |w| w.read(bit) * w.read(word),
            |w| w.read(fresh) + w.read(bit) * w.read(word),
            |w, party| {
                let [b, x, u, flip, other] = w.read_all([bit, word, fresh, flip, other]);
                let product = x * flip;
                b.choose(product + u, x.once(party) - product + other)
            },
        )
    }

    /// A bit as 0 or 1 of a ring: b = b̂ + (1 − 2 b̂) ⟨ρ⟩.
    pub fn bit_value(&self, bit: &Wire, ring: Ring) -> Result<Share> {
        let len = bit.len();
        expect_bits(bit, len, "a bit's value")?;
        let bit = bit.words();
        let fresh = &self.fresh(len, ring)?;
        let flip = &self.deal(len, ring, |w| w.read(bit))?;
        self.compute(
            "a bit's value",
            (ring, len),
            Bound::bit(),
            |w| w.read(bit),
            |w| w.read(fresh),
            |w, party| {
                let [b, u, flip] = w.read_all([bit, fresh, flip]);
                b.once(party) + b.sign(flip) + u
            },
        )
    }

    /// a ∧ b of opened bits: â b̂ ⊕ â ⟨ρ_b⟩ ⊕ b̂ ⟨ρ_a⟩ ⊕ u.
    pub fn and(&self, a: &Wire, b: &Wire) -> Result<Share> {
        let len = a.len();
        expect_bits(a, len, "a conjunction")?;
        expect_bits(b, len, "a conjunction")?;
        let (a, b): (&Words, &Words) = (a.words(), b.words());
        let fresh = &self.fresh(len, Ring::BIT)?;
        let flip_a = &self.deal(len, Ring::BIT, |w| w.read(a))?;
        let flip_b = &self.deal(len, Ring::BIT, |w| w.read(b))?;
        self.compute(
            "a conjunction",
            (Ring::BIT, len),
            Bound::bit(),
            |w| w.read(a) & w.read(b),
            |w| (w.read(a) & w.read(b)) ^ w.read(fresh),
            |w, party| {
                let [a, b, u, flip_a, flip_b] = w.read_all([a, b, fresh, flip_a, flip_b]);
                (a & b).once(party) ^ (a & flip_b) ^ (b & flip_a) ^ u
            },
        )
    }
}

pub(super) fn expect_bits(bit: &Wire, len: usize, gate: &'static str) -> Result<()> {
    if bit.ring() == Ring::BIT && bit.len() == len {
        return Ok(());
    }
    Err(Error::Shape { gate, what: format!("{bit:?} where {len} bits belong") })
}
