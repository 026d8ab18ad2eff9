//! Public tables at secret places.
//!
//! The parties' unit vectors differ at the place r alone, so that the difference of their sums is ±T(x). The sign is a
//! secret, but one that the dealer knows when it makes the keys: it follows from party 0's vector at r, not from x. So it
//! is never opened; σ T(x) is, under a mask a, and whatever uses the value multiplies by the dealer's ⟨σ⟩ on the way:
//!
//! ```text
//! v̂ = σ T(x) + a        T(x) = σ (v̂ − a)
//! ```

use crate::bound::Bound;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lut::Table;
use crate::ring::Ring;
use crate::runtime::Request;
use crate::tensor::{Share, Wire, Words};

use super::bits::{choose, expect_bits};

/// Values that were looked up: opened up to a sign that only the dealer knows.
#[derive(Clone)]
pub struct Lookup {
    /// v̂; for the dealer a; in clear T(x).
    opened: Wire,
    /// The dealer's σ.
    signs: Words,
    bound: Bound,
}

impl Lookup {
    /// Elements.
    pub fn len(&self) -> usize {
        self.opened.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.opened.is_empty()
    }

    /// Where the values lie.
    pub fn bound(&self) -> Bound {
        self.bound
    }
}

impl Engine {
    /// T(x) for x of as many bits as the table has. Key: one point function; no comparison. One word of `out` is opened.
    pub async fn lookup(&self, x: &Wire, table: &Table, out: Ring) -> Result<Lookup> {
        const GATE: &str = "a lookup";
        if x.ring.bits() != table.domain() {
            let what = format!("{x:?} and a table of {} bits", table.domain());
            return Err(Error::Shape { gate: GATE, what });
        }
        let bound = table.bound().in_ring(GATE, out)?;
        let either_sign = bound.hull(&bound.negated()).in_ring(GATE, out)?;
        let keys = self.points(table.domain(), x.len, |index| x.words[index])?;
        let sums = self.sums(&keys, table, |index| x.words[index])?;
        let fresh = self.free(x.len, out);
        let share: Share = self.compute(
            GATE,
            (out, x.len),
            either_sign,
            |index| table.value(x.words[index]),
            |index| fresh[index],
            |index, party| {
                let sum = choose(party.index() as u64, sums[index], sums[index].wrapping_neg());
                fresh[index].wrapping_add(sum)
            },
        )?;
        let words = self.exchange(Request { ring: out, len: x.len, words: share.words, from: None }).await;
        let signs = keys.signs.iter().map(|&positive| (2 * positive).wrapping_sub(1)).collect();
        Ok(Lookup { opened: Wire::of_words(out, x.len, words, either_sign), signs: Words::new(signs), bound })
    }

    /// The value itself: v̂ ⟨σ⟩ + u.
    pub fn looked_up(&self, found: &Lookup) -> Result<Share> {
        let (ring, len) = (found.opened.ring, found.len());
        let (v, signs) = (&found.opened.words, &found.signs);
        let fresh = self.free(len, ring);
        let sign = self.deal(len, ring, |index| signs[index])?;
        self.compute(
            "a lookup",
            (ring, len),
            found.bound,
            |index| v[index],
            |index| fresh[index].wrapping_add(signs[index].wrapping_mul(v[index])),
            |index, _| fresh[index].wrapping_add(v[index].wrapping_mul(sign[index])),
        )
    }

    /// b T(x) for an opened bit b̂ = b ⊕ ρ: v̂ ⟨ρ σ⟩ + u, or v̂ ⟨(1 − ρ) σ⟩ + ⟨u + (2 ρ − 1) σ a⟩.
    pub fn select_looked_up(&self, bit: &Wire, found: &Lookup) -> Result<Share> {
        let (ring, len) = (found.opened.ring, found.len());
        expect_bits(bit, len, "a selection")?;
        let (v, signs, b) = (&found.opened.words, &found.signs, &bit.words);
        let fresh = self.free(len, ring);
        let when_zero = |index: usize| b[index].wrapping_mul(signs[index]);
        let when_one = |index: usize| signs[index].wrapping_sub(when_zero(index));
        let zero = self.deal(len, ring, when_zero)?;
        let one = self.deal(len, ring, when_one)?;
        let other = self.deal(len, ring, |index| {
            let difference = when_zero(index).wrapping_sub(when_one(index));
            fresh[index].wrapping_add(difference.wrapping_mul(v[index]))
        })?;
        self.compute(
            "a selection",
            (ring, len),
            found.bound.or_zero(),
            |index| b[index].wrapping_mul(v[index]),
            |index| fresh[index].wrapping_add(when_zero(index).wrapping_mul(v[index])),
            |index, _| {
                let factor = choose(b[index], zero[index], one[index]);
                v[index].wrapping_mul(factor).wrapping_add(choose(b[index], fresh[index], other[index]))
            },
        )
    }

    /// b S(x) T(y) in one round after the lookups, for an opened bit b̂ = b ⊕ ρ.
    ///
    /// With σ = σ_S σ_T and τ = b σ: v̂ ŵ ⟨τ⟩ − v̂ ⟨τ b_w⟩ − ŵ ⟨τ a⟩ + u, where τ is ρ σ or (1 − ρ) σ as b̂ says. Seven words of key.
    pub fn select_product(&self, bit: &Wire, left: &Lookup, right: &Lookup) -> Result<Share> {
        const GATE: &str = "a product of lookups";
        left.opened.same_shape(&right.opened, GATE)?;
        let (ring, len) = (left.opened.ring, left.len());
        expect_bits(bit, len, GATE)?;
        let (v, w, b) = (&left.opened.words, &right.opened.words, &bit.words);
        let sign_of = |index: usize| left.signs[index].wrapping_mul(right.signs[index]);
        let kept = |index: usize| b[index].wrapping_mul(sign_of(index));
        let fresh = self.free(len, ring);
        let both = |factor: &dyn Fn(usize) -> u64| -> Result<[Words; 2]> {
            let when_zero = self.deal(len, ring, |index| kept(index).wrapping_mul(factor(index)))?;
            let all = self.deal(len, ring, |index| sign_of(index).wrapping_mul(factor(index)))?;
            Ok([when_zero, all])
        };
        let sign = both(&|_| 1)?;
        let signed_w = both(&|index| w[index])?;
        let signed_v = both(&|index| v[index])?;
        let masks = |index: usize| v[index].wrapping_mul(w[index]);
        let other = self.deal(len, ring, |index| {
            // τ changes from ρ σ to (1 − ρ) σ, and the mask u − τ a b_w must not.
            let change = sign_of(index).wrapping_sub(kept(index).wrapping_mul(2));
            fresh[index].wrapping_add(change.wrapping_mul(masks(index)))
        })?;
        let chosen = |words: &[Words; 2], index: usize| {
            choose(b[index], words[0][index], words[1][index].wrapping_sub(words[0][index]))
        };
        self.compute(
            GATE,
            (ring, len),
            left.bound.times(&right.bound).or_zero(),
            |index| b[index].wrapping_mul(v[index]).wrapping_mul(w[index]),
            |index| fresh[index].wrapping_sub(kept(index).wrapping_mul(masks(index))),
            |index, _| {
                let crossed = (v[index].wrapping_mul(chosen(&signed_w, index)))
                    .wrapping_add(w[index].wrapping_mul(chosen(&signed_v, index)));
                let squared = v[index].wrapping_mul(w[index]).wrapping_mul(chosen(&sign, index));
                squared.wrapping_sub(crossed).wrapping_add(choose(b[index], fresh[index], other[index]))
            },
        )
    }

    /// x T(y) with one looked-up value for each row, `row_of` the row of each element: x̂ v̂ ⟨σ⟩ − x̂ ⟨σ a⟩ − v̂ ⟨σ r⟩ + u. Two
    /// words of key a row and one an element.
    ///
    /// `bound` is a tighter proof than the factors' intervals give, if there is one.
    pub(crate) fn scale_rows(
        &self,
        x: &Wire,
        rows: &Lookup,
        row_of: &[usize],
        bound: Option<Bound>,
    ) -> Result<Share> {
        const GATE: &str = "a product with a lookup";
        let fits = row_of.len() == x.len && row_of.iter().all(|&row| row < rows.len());
        if !fits || x.ring != rows.opened.ring {
            let what = format!("{x:?} in {} rows of {} bits", rows.len(), rows.opened.ring.bits());
            return Err(Error::Shape { gate: GATE, what });
        }
        let (v, signs, ring) = (&rows.opened.words, &rows.signs, x.ring);
        let sign = self.deal(rows.len(), ring, |row| signs[row])?;
        let signed_a = self.deal(rows.len(), ring, |row| signs[row].wrapping_mul(v[row]))?;
        let signed_r = self.deal(x.len, ring, |index| signs[row_of[index]].wrapping_mul(x.words[index]))?;
        let fresh = self.free(x.len, ring);
        self.compute(
            GATE,
            (ring, x.len),
            bound.unwrap_or_else(|| x.bound.times(&rows.bound)),
            |index| x.words[index].wrapping_mul(v[row_of[index]]),
            |index| {
                let row = row_of[index];
                fresh[index].wrapping_sub(signs[row].wrapping_mul(v[row]).wrapping_mul(x.words[index]))
            },
            |index, _| {
                let (row, word) = (row_of[index], x.words[index]);
                let factor = v[row].wrapping_mul(sign[row]).wrapping_sub(signed_a[row]);
                let crossed = v[row].wrapping_mul(signed_r[index]);
                word.wrapping_mul(factor).wrapping_sub(crossed).wrapping_add(fresh[index])
            },
        )
    }
}
