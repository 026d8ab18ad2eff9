//! Public tables at secret places.
//!
//! The parties' unit vectors differ at the place r alone, so that the difference of their sums is ±T(x). The sign is a
//! secret, but one that the dealer knows when it makes the keys: it follows from party 0's vector at r, not from x. So it
//! is never opened; σ T(x) is, under a mask a, and whatever uses the value multiplies by the dealer's ⟨σ⟩ on the way:
//!
//! ```text
//! v̂ = σ T(x) + a        T(x) = σ (v̂ − a)
//! ```

use crate::backend::Words;
use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, Request, Role};
use crate::formula::View;
use crate::party::Party;
use crate::ring::Ring;
use crate::table::Table;
use crate::tensor::{Share, Wire};

use super::bits::expect_bits;

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
        self.opened.len()
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

impl Evaluator {
    /// T(x) for x of as many bits as the table has. Key: one point function; no comparison. One word of `out` is opened.
    pub async fn lookup(&self, x: &Wire, table: &Table, out: Ring) -> Result<Lookup> {
        const GATE: &str = "a lookup";
        if x.ring().bits() != table.domain() {
            let what = format!("{x:?} and a table of {} bits", table.domain());
            return Err(Error::Shape { gate: GATE, what });
        }
        let len = x.len();
        let bound = table.bound().in_ring(GATE, out)?;
        let either_sign = bound.hull(&bound.negated()).in_ring(GATE, out)?;
        let keys = self.points(table.domain(), x)?;
        let sums = self.unit_sums(&keys, x, table)?;
        let fresh = self.fresh(len, out)?;
        let words = match &self.role {
            Role::Clear => {
                let index = x.words().download()?;
                self.public(index.iter().map(|&index| out.reduce(table.value(index))).collect())?
            }
            Role::Dealer(_) => fresh,
            Role::Party(party, _) => self.words(len, out, |w| match party {
                Party::Zero => w.read(&fresh) + w.read(&sums),
                Party::One => w.read(&fresh) - w.read(&sums),
            })?,
            Role::Estimate | Role::Scout(..) => fresh,
        };
        let words = self.exchange(Request { ring: out, words, from: None }).await;
        let signs = keys.signs.derive(len, Ring::WORD, |w| w.read(&keys.signs) * 2 - 1)?;
        Ok(Lookup { opened: Wire::new(out, words, either_sign), signs, bound })
    }

    /// The value itself: v̂ ⟨σ⟩ + u.
    pub fn looked_up(&self, found: &Lookup) -> Result<Share> {
        let (ring, len) = (found.opened.ring(), found.len());
        let (v, signs) = (found.opened.words(), &found.signs);
        let fresh = &self.fresh(len, ring)?;
        let sign = &self.deal(len, ring, |w| w.read(signs))?;
        self.compute(
            "a lookup",
            (ring, len),
            found.bound,
            |w| w.read(v),
            |w| w.read(fresh) + w.read(signs) * w.read(v),
            |w, _| w.read(fresh) + w.read(v) * w.read(sign),
        )
    }

    /// b T(x) for an opened bit b̂ = b ⊕ ρ: v̂ ⟨ρ σ⟩ + u, or v̂ ⟨(1 − ρ) σ⟩ + ⟨u + (2 ρ − 1) σ a⟩.
    pub fn select_looked_up(&self, bit: &Wire, found: &Lookup) -> Result<Share> {
        let (ring, len) = (found.opened.ring(), found.len());
        expect_bits(bit, len, "a selection")?;
        let (v, signs, bit) = (found.opened.words(), &found.signs, bit.words());
        let fresh = &self.fresh(len, ring)?;
        let zero = &self.deal(len, ring, |w| w.read(bit) * w.read(signs))?;
        let one = &self.deal(len, ring, |w| {
            let [rho, sigma] = w.read_all([bit, signs]);
            sigma - rho * sigma
        })?;
        let other = &self.deal(len, ring, |w| {
            let [rho, sigma, a, u] = w.read_all([bit, signs, v, fresh]);
            u + (rho * sigma * 2 - sigma) * a
        })?;
        self.compute(
            "a selection",
            (ring, len),
            found.bound.or_zero(),
            |w| w.read(bit) * w.read(v),
            |w| {
                let [rho, sigma, a, u] = w.read_all([bit, signs, v, fresh]);
                u + rho * sigma * a
            },
            |w, _| {
                let [b, v, zero, one, u, other] = w.read_all([bit, v, zero, one, fresh, other]);
                v * b.choose(zero, one) + b.choose(u, other)
            },
        )
    }

    /// b S(x) T(y) in one round after the lookups, for an opened bit b̂ = b ⊕ ρ.
    ///
    /// With σ = σ_S σ_T and τ = b σ: v̂ ŵ ⟨τ⟩ − v̂ ⟨τ b_w⟩ − ŵ ⟨τ a⟩ + u, where τ is ρ σ or (1 − ρ) σ as b̂ says. Seven words of key.
    pub fn select_product(&self, bit: &Wire, left: &Lookup, right: &Lookup) -> Result<Share> {
        const GATE: &str = "a product of lookups";
        left.opened.same_shape(&right.opened, GATE)?;
        let (ring, len) = (left.opened.ring(), left.len());
        expect_bits(bit, len, GATE)?;
        let (v, w_words, bit) = (left.opened.words(), right.opened.words(), bit.words());
        let (left_sign, right_sign) = (&left.signs, &right.signs);
        let fresh = &self.fresh(len, ring)?;
        // ⟨ρ σ f⟩ and ⟨σ f⟩ for a factor f: 1, or one of the masks.
        let both = |factor: Option<&Words>| -> Result<[Words; 2]> {
            let when_zero = self.deal(len, ring, |w| {
                let [rho, s, t] = w.read_all([bit, left_sign, right_sign]);
                rho * (s * t) * factor.map_or(w.number(1), |factor| w.read(factor))
            })?;
            let all = self.deal(len, ring, |w| {
                let [s, t] = w.read_all([left_sign, right_sign]);
                s * t * factor.map_or(w.number(1), |factor| w.read(factor))
            })?;
            Ok([when_zero, all])
        };
        let sign = &both(None)?;
        let signed_w = &both(Some(w_words))?;
        let signed_v = &both(Some(v))?;
        let other = &self.deal(len, ring, |w| {
            // τ changes from ρ σ to (1 − ρ) σ, and the mask u − τ a b_w must not.
            let [rho, s, t, a, b, u] = w.read_all([bit, left_sign, right_sign, v, w_words, fresh]);
            let sigma = s * t;
            u + (sigma - rho * sigma * 2) * (a * b)
        })?;
        self.compute(
            GATE,
            (ring, len),
            left.bound.times(&right.bound).or_zero(),
            |w| w.read(bit) * w.read(v) * w.read(w_words),
            |w| {
                let [rho, s, t, a, b, u] = w.read_all([bit, left_sign, right_sign, v, w_words, fresh]);
                u - rho * (s * t) * (a * b)
            },
            |w, _| {
                let [b, v, w_word, u, other] = w.read_all([bit, v, w_words, fresh, other]);
                let [sign, signed_w, signed_v] = [sign, signed_w, signed_v].map(|[when_zero, all]| {
                    let [when_zero, all] = w.read_all([when_zero, all]);
                    b.choose(when_zero, all - when_zero)
                });
                let crossed = v * signed_w + w_word * signed_v;
                v * w_word * sign - crossed + b.choose(u, other)
            },
        )
    }

    /// x T(y) with one looked-up value for each row, `row_of` the row of each element: x̂ v̂ ⟨σ⟩ − x̂ ⟨σ a⟩ − v̂ ⟨σ r⟩ + u. Two
    /// words of key a row and one an element.
    ///
    /// `bound` is a tighter proof than the factors' intervals give, if there is one.
    pub fn scale_rows(&self, x: &Wire, rows: &Lookup, row_of: &View, bound: Option<Bound>) -> Result<Share> {
        const GATE: &str = "a product with a lookup";
        let (ring, len) = (x.ring(), x.len());
        if row_of.needs(len) > rows.len() || !row_of.covers(len) || ring != rows.opened.ring() {
            let what = format!("{x:?} in {} rows of {} bits", rows.len(), rows.opened.ring().bits());
            return Err(Error::Shape { gate: GATE, what });
        }
        let (word, v, signs) = (x.words(), rows.opened.words(), &rows.signs);
        let sign = &self.deal(rows.len(), ring, |w| w.read(signs))?;
        let signed_a = &self.deal(rows.len(), ring, |w| w.read(signs) * w.read(v))?;
        let signed_r = &self.deal(len, ring, |w| w.read_as(signs, row_of.clone()) * w.read(word))?;
        let fresh = &self.fresh(len, ring)?;
        self.compute(
            GATE,
            (ring, len),
            bound.unwrap_or_else(|| x.bound().times(&rows.bound)),
            |w| w.read(word) * w.read_as(v, row_of.clone()),
            |w| {
                let [sigma, a] = [signs, v].map(|words| w.read_as(words, row_of.clone()));
                w.read(fresh) - sigma * a * w.read(word)
            },
            |w, _| {
                let [v, sign, signed_a] = [v, sign, signed_a].map(|words| w.read_as(words, row_of.clone()));
                let [x, signed_r, u] = w.read_all([word, signed_r, fresh]);
                x * (v * sign - signed_a) - v * signed_r + u
            },
        )
    }
}
