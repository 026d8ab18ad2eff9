//! Public tables at secret places.
//!
//! The parties' unit vectors differ at the place r alone, so that the difference of their sums is ±T(x). The
//! sign is a secret, but one that the dealer knows when it makes the keys: it follows from party 0's vector
//! at r, not from x. So it is never opened; σ T(x) is, under a mask a, and whatever uses the value multiplies
//! by the dealer's ⟨σ⟩ on the way:
//!
//! ```text
//! v̂ = σ T(x) + a        T(x) = σ (v̂ − a)
//! ```
//!
//! A place that is a quotient y = ⌊x / 2^s⌋ need not be opened before: ⌊x̂ / 2^s⌋ − ⌊r / 2^s⌋ is y or y + 1,
//! as the borrow b of the low bits says. So T is looked up at both with one key, and b is opened beside them.
//! With ŵ_0 the value at y + b, ŵ_1 the one before it, a_0 and a_1 their masks and b̂ = b ⊕ ρ, the value is
//! chosen by whatever uses it:
//!
//! ```text
//! T(y) = σ_0 (ŵ_b̂ − a_b̂) + σ_1 (ŵ_(1−b̂) − a_(1−b̂))       σ_0 = (1 − ρ) σ,   σ_1 = ρ σ
//! ```

use crate::backend::Words;
use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, Points, Request, Role, join};
use crate::formula::{Tape, View, Word};
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
    /// The value before it, if a borrow chooses between the two.
    before: Option<Before>,
}

/// The value that holds if a borrow is set.
#[derive(Clone)]
struct Before {
    opened: Wire,
    /// b̂; the dealer's word is ρ.
    borrow: Words,
}

impl Before {
    /// A party's ŵ_b̂ and ŵ_(1−b̂).
    fn candidates<'t>(&self, first: &Words, view: &View, w: &'t Tape) -> [Word<'t>; 2] {
        let [first, second] = [first, self.opened.words()].map(|words| w.read_as(words, view.clone()));
        let borrow = w.read_as(&self.borrow, view.clone());
        [borrow.choose(first, second), borrow.choose(second, first)]
    }

    /// The dealer's [ρ = z] σ.
    fn chosen<'t>(&self, z: usize, signs: &Words, view: &View, w: &'t Tape) -> Word<'t> {
        let [rho, sign] = [&self.borrow, signs].map(|words| w.read_as(words, view.clone()));
        let second = rho * sign;
        if z == 0 { sign - second } else { second }
    }

    /// The dealer's σ_0 a_b + σ_1 a_(1−b): what has to be taken off if b̂ is b.
    fn masks<'t>(&self, b: usize, found: &Lookup, view: &View, w: &'t Tape) -> Word<'t> {
        let words = [found.opened.words(), self.opened.words()];
        let term =
            |z: usize| self.chosen(z, &found.signs, view, w) * w.read_as(words[(b + z) % 2], view.clone());
        term(0) + term(1)
    }
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

    fn without_borrow(&self, gate: &'static str) -> Result<()> {
        match self.before {
            None => Ok(()),
            Some(_) => Err(Error::Unsupported { gate, what: "of a quotient that was not opened".into() }),
        }
    }
}

impl Evaluator {
    /// T(x) for x of as many bits as the table has. Key: one point function; no comparison. One word of `out`
    /// is opened.
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
        let words = self.looked_up_words(&keys, x, table, out)?;
        let words = self.exchange(Request { ring: out, words, from: None }).await;
        let signs = keys.signs.derive(len, Ring::WORD, |w| w.read(&keys.signs) * 2 - 1)?;
        Ok(Lookup { opened: Wire::new(out, words, either_sign), signs, bound, before: None })
    }

    /// T(⌊x / 2^s⌋) for x of s bits more than the table has, in the round in which the quotient would be
    /// opened. Key: that of the borrow, of s bits, and one point function. Two words of `out` and a bit are
    /// opened.
    pub async fn lookup_quotient(&self, x: &Wire, shift: u32, table: &Table, out: Ring) -> Result<Lookup> {
        const GATE: &str = "a lookup of a quotient";
        let domain = table.domain();
        if shift == 0 || x.ring().bits() != domain.saturating_add(shift) {
            let what = format!("{x:?}, a table of {domain} bits and {shift} bits below");
            return Err(Error::Shape { gate: GATE, what });
        }
        let len = x.len();
        let bound = table.bound().in_ring(GATE, out)?;
        let either_sign = bound.hull(&bound.negated()).in_ring(GATE, out)?;
        let place = self.quotient_or_next(x, shift, Ring::new(domain)?)?;
        let keys = self.points(domain, &place)?;
        let first = self.looked_up_words(&keys, &place, table, out)?;
        let second = self.looked_up_words(&keys, &self.offset_in_ring(&place, -1)?, table, out)?;
        let open = async |words: Words| Ok(self.exchange(Request { ring: out, words, from: None }).await);
        let values = join(open(first), open(second));
        let (borrow, (first, second)) = join(self.borrow_bit(x, 0, shift), values).await?;
        let signs = keys.signs.derive(len, Ring::WORD, |w| w.read(&keys.signs) * 2 - 1)?;
        let before = Some(Before { opened: Wire::new(out, second, either_sign), borrow });
        Ok(Lookup { opened: Wire::new(out, first, either_sign), signs, bound, before })
    }

    /// ⌊x / 2^s⌋ in clear, and that or the next number for parties, under the mask ⌊r / 2^s⌋: which of the
    /// two is what the borrow of the low bits says. Nothing is opened.
    pub(crate) fn quotient_or_next(&self, x: &Wire, shift: u32, out: Ring) -> Result<Wire> {
        const GATE: &str = "a quotient or the next";
        if shift.saturating_add(out.bits()) > x.ring().bits() {
            let what = format!("{shift} bits off and {} kept, of {}", out.bits(), x.ring().bits());
            return Err(Error::Unsupported { gate: GATE, what });
        }
        let bound = x.bound().shifted_right(shift);
        let either = bound.hull(&bound.plus(&Bound::exactly(1)));
        let bound = if either.fits(out) { either } else { Bound::unsigned(out) };
        self.compute_linear(GATE, (out, x.len()), bound, |w| w.read(x.words()) >> shift)
    }

    /// What is opened of a table at the places of a wire: σ T(x) + a.
    fn looked_up_words(&self, keys: &Points, x: &Wire, table: &Table, out: Ring) -> Result<Words> {
        let len = x.len();
        let sums = self.unit_sums(keys, x, table)?;
        let fresh = self.fresh(len, out)?;
        match &self.role {
            Role::Clear => {
                let index = x.words().download()?;
                self.public(index.iter().map(|&index| out.reduce(table.value(index))).collect())
            }
            Role::Dealer(_) => Ok(fresh),
            Role::Party(party, _) => self.words(len, out, |w| match party {
                Party::Zero => w.read(&fresh) + w.read(&sums),
                Party::One => w.read(&fresh) - w.read(&sums),
            }),
            Role::Estimate | Role::Scout(..) => Ok(fresh),
        }
    }

    /// The value itself: v̂ ⟨σ⟩ + u; Σ_z ŵ_z ⟨σ_z⟩ + u under the mask u + A_0 if it is of a quotient, with A
    /// as in [`Evaluator::scale_rows`].
    pub fn looked_up(&self, found: &Lookup) -> Result<Share> {
        const GATE: &str = "a lookup";
        let (ring, len) = (found.opened.ring(), found.len());
        let (v, signs, whole) = (found.opened.words(), &found.signs, &View::Whole);
        let fresh = &self.fresh(len, ring)?;
        let Some(before) = &found.before else {
            let sign = &self.deal(len, ring, |w| w.read(signs))?;
            return self.compute(
                GATE,
                (ring, len),
                found.bound,
                |w| w.read(v),
                |w| w.read(fresh) + w.read(signs) * w.read(v),
                |w, _| w.read(fresh) + w.read(v) * w.read(sign),
            );
        };
        let sign = |z: usize| self.deal(len, ring, |w| before.chosen(z, signs, whole, w));
        let signs = &[sign(0)?, sign(1)?];
        let other = &self.deal(len, ring, |w| {
            let [at_zero, at_one] = [0, 1].map(|b| before.masks(b, found, whole, w));
            w.read(fresh) + at_zero - at_one
        })?;
        self.compute(
            GATE,
            (ring, len),
            found.bound,
            |w| w.read(v),
            |w| w.read(fresh) + before.masks(0, found, whole, w),
            |w, _| {
                let candidates = before.candidates(v, whole, w);
                let [borrow, u, other] = w.read_all([&before.borrow, fresh, other]);
                let terms = (0..2).fold(w.number(0), |sum, z| sum + candidates[z] * w.read(&signs[z]));
                terms + borrow.choose(u, other)
            },
        )
    }

    /// b T(x) for an opened bit b̂ = b ⊕ ρ: v̂ ⟨ρ σ⟩ + u, or v̂ ⟨(1 − ρ) σ⟩ + ⟨u + (2 ρ − 1) σ a⟩.
    pub fn select_looked_up(&self, bit: &Wire, found: &Lookup) -> Result<Share> {
        let (ring, len) = (found.opened.ring(), found.len());
        expect_bits(bit, len, "a selection")?;
        found.without_borrow("a selection")?;
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

    /// b S(⌊x / 2^s⌋) T(y) in one round after the lookups, for an opened bit b̂ = b ⊕ ρ_b: `left` is of a
    /// quotient, `right` is not.
    ///
    /// With κ_z = σ_z σ_T, A_c = κ_0 a_c + κ_1 a_(1−c) for the borrow's ĉ and t the mask of T: b (Σ_z ŵ_z
    /// ⟨κ_z⟩ v̂ − Σ_z ŵ_z ⟨κ_z t⟩ − v̂ ⟨A_ĉ⟩)
    /// + u, where b κ is ρ_b κ or (1 − ρ_b) κ as b̂ says. Fifteen words of key.
    pub fn select_product(&self, bit: &Wire, left: &Lookup, right: &Lookup) -> Result<Share> {
        const GATE: &str = "a product of lookups";
        left.opened.same_shape(&right.opened, GATE)?;
        right.without_borrow(GATE)?;
        let (ring, len) = (left.opened.ring(), left.len());
        expect_bits(bit, len, GATE)?;
        let Some(before) = &left.before else {
            return Err(Error::Unsupported { gate: GATE, what: "the left one is not of a quotient".into() });
        };
        let pair = &Pair { before, left, right };
        let (first, v, bit) = (left.opened.words(), right.opened.words(), bit.words());
        let fresh = &self.fresh(len, ring)?;
        // ⟨ρ_b f⟩ and ⟨f⟩ for a factor f.
        let both = |factor: &dyn for<'t> Fn(&'t Tape) -> Word<'t>| -> Result<[Words; 2]> {
            let when_zero = self.deal(len, ring, |w| w.read(bit) * factor(w))?;
            Ok([when_zero, self.deal(len, ring, |w| factor(w))?])
        };
        let signs = &[both(&|w| pair.sign(0, w))?, both(&|w| pair.sign(1, w))?];
        let signed_t = &[both(&|w| pair.sign(0, w) * w.read(v))?, both(&|w| pair.sign(1, w) * w.read(v))?];
        let masks = &[both(&|w| pair.masks(0, w))?, both(&|w| pair.masks(1, w))?];
        // b A_ĉ t changes with b̂ and ĉ, and the mask u − ρ_b A_0 t must not.
        let other = |set: bool, borrow: usize| {
            self.deal(len, ring, |w| {
                let [rho, t, u] = w.read_all([bit, v, fresh]);
                let chosen = if set { -rho + 1 } else { rho };
                u + (chosen * pair.masks(borrow, w) - rho * pair.masks(0, w)) * t
            })
        };
        let others = &[other(true, 0)?, other(false, 1)?, other(true, 1)?];
        self.compute(
            GATE,
            (ring, len),
            left.bound.times(&right.bound).or_zero(),
            |w| w.read(bit) * w.read(first) * w.read(v),
            |w| {
                let [rho, t, u] = w.read_all([bit, v, fresh]);
                u - rho * pair.masks(0, w) * t
            },
            |w, _| {
                let [b, c, v, u] = w.read_all([bit, &before.borrow, v, fresh]);
                let selected = |[when_zero, all]: &[Words; 2]| {
                    let [when_zero, all] = w.read_all([when_zero, all]);
                    b.choose(when_zero, all - when_zero)
                };
                let candidates = before.candidates(first, &View::Whole, w);
                let terms = (0..2).fold(w.number(0), |sum, z| {
                    sum + candidates[z] * (v * selected(&signs[z]) - selected(&signed_t[z]))
                });
                let masks = c.choose(selected(&masks[0]), selected(&masks[1]));
                let [set, borrowed, set_borrowed] = w.read_all([&others[0], &others[1], &others[2]]);
                let fresh = c.choose(b.choose(u, set), b.choose(borrowed, set_borrowed));
                terms - v * masks + fresh
            },
        )
    }

    /// x T(y) with one looked-up value for each row, `row_of` the row of each element: x̂ v̂ ⟨σ⟩ − x̂ ⟨σ a⟩ −
    /// v̂ ⟨σ r⟩ + u. Two words of key a row and one an element; four and three if y is a quotient.
    ///
    /// `bound` is a tighter proof than the factors' intervals give, if there is one.
    pub fn scale_rows(&self, x: &Wire, rows: &Lookup, row_of: &View, bound: Option<Bound>) -> Result<Share> {
        const GATE: &str = "a product with a lookup";
        let (ring, len) = (x.ring(), x.len());
        if row_of.needs(len) > rows.len() || !row_of.covers(len) || ring != rows.opened.ring() {
            let what = format!("{x:?} in {} rows of {} bits", rows.len(), rows.opened.ring().bits());
            return Err(Error::Shape { gate: GATE, what });
        }
        let bound = bound.unwrap_or_else(|| x.bound().times(&rows.bound));
        if let Some(before) = &rows.before {
            return self.scale_rows_by_quotients(x, (rows, before), row_of, bound);
        }
        let (word, v, signs) = (x.words(), rows.opened.words(), &rows.signs);
        let sign = &self.deal(rows.len(), ring, |w| w.read(signs))?;
        let signed_a = &self.deal(rows.len(), ring, |w| w.read(signs) * w.read(v))?;
        let signed_r = &self.deal(len, ring, |w| w.read_as(signs, row_of.clone()) * w.read(word))?;
        let fresh = &self.fresh(len, ring)?;
        self.compute(
            GATE,
            (ring, len),
            bound,
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

    /// With A_b = σ_0 a_b + σ_1 a_(1−b): x̂ (Σ_z ŵ_z ⟨σ_z⟩ − ⟨A_b̂⟩) − Σ_z ŵ_z ⟨σ_z r⟩ + u, under the mask u
    /// − A_0 r.
    fn scale_rows_by_quotients(
        &self,
        x: &Wire,
        (rows, before): (&Lookup, &Before),
        row_of: &View,
        bound: Bound,
    ) -> Result<Share> {
        let (ring, len, count) = (x.ring(), x.len(), rows.len());
        let (word, first, whole) = (x.words(), rows.opened.words(), &View::Whole);
        let sign = |z: usize| self.deal(count, ring, |w| before.chosen(z, &rows.signs, whole, w));
        let mask = |b: usize| self.deal(count, ring, |w| before.masks(b, rows, whole, w));
        let signed =
            |z: usize| self.deal(len, ring, |w| before.chosen(z, &rows.signs, row_of, w) * w.read(word));
        let (signs, masks) = (&[sign(0)?, sign(1)?], &[mask(0)?, mask(1)?]);
        let signed_r = &[signed(0)?, signed(1)?];
        let fresh = &self.fresh(len, ring)?;
        let other = &self.deal(len, ring, |w| {
            let [at_one, at_zero] = [1, 0].map(|b| before.masks(b, rows, row_of, w));
            w.read(fresh) + (at_one - at_zero) * w.read(word)
        })?;
        self.compute(
            "a product with a lookup",
            (ring, len),
            bound,
            |w| w.read(word) * w.read_as(first, row_of.clone()),
            |w| w.read(fresh) - before.masks(0, rows, row_of, w) * w.read(word),
            |w, _| {
                let row = |words: &Words| w.read_as(words, row_of.clone());
                let [x, u, other] = w.read_all([word, fresh, other]);
                let candidates = before.candidates(first, row_of, w);
                let borrow = row(&before.borrow);
                let terms = (0..2).fold(w.number(0), |sum, z| {
                    sum + candidates[z] * (x * row(&signs[z]) - w.read(&signed_r[z]))
                });
                terms - x * borrow.choose(row(&masks[0]), row(&masks[1])) + borrow.choose(u, other)
            },
        )
    }
}

/// A product of two lookups, the left one of a quotient, as the dealer knows it.
struct Pair<'a> {
    before: &'a Before,
    left: &'a Lookup,
    right: &'a Lookup,
}

impl Pair<'_> {
    /// κ_z.
    fn sign<'t>(&self, z: usize, w: &'t Tape) -> Word<'t> {
        self.before.chosen(z, &self.left.signs, &View::Whole, w) * w.read(&self.right.signs)
    }

    /// A_c.
    fn masks<'t>(&self, c: usize, w: &'t Tape) -> Word<'t> {
        self.before.masks(c, self.left, &View::Whole, w) * w.read(&self.right.signs)
    }
}
