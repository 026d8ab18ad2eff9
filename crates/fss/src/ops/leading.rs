//! The bits behind the leading one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use gatework_gpu::Locked;

use crate::backend::{Sums, Words};
use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, join};
use crate::formula::{Places, Tape, View, Word};
use crate::ring::Ring;
use crate::tensor::{Share, Wire};

/// Which numbers are indexed by [`Evaluator::leading_index`], and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leading {
    /// a: numbers are at least 2^a.
    pub least: u32,
    /// b: numbers are below 2^b, b ≥ a + 2.
    pub most: u32,
    /// k: bits behind the leading one, at most b − 2.
    pub mantissa: u32,
}

/// Arrays of [`Leading::exponents`] by a and b.
type Known = HashMap<[u32; 2], Arc<[u64]>>;

impl Leading {
    /// Exponents.
    fn count(self) -> usize {
        (self.most - self.least) as usize
    }

    /// s: bits of x 2^(b−1−e) below the mantissa.
    fn shift(self) -> u32 {
        self.most - 1 - self.mantissa
    }

    /// Exponents whose numbers have bits below their mantissa: the largest ones. Of the others the cut-off
    /// bits are zero, and so are those of their masks.
    fn cut(self) -> usize {
        (self.most - self.least.max(self.mantissa + 1)) as usize
    }

    /// Of every exponent e, the largest first: all 2^(b−1−e), then all 2^(e+1), then all e − a − 1. One array
    /// for equal exponents, as every layer asks for it.
    fn exponents(self) -> Arc<[u64]> {
        static KNOWN: LazyLock<Locked<Known>> = LazyLock::new(Locked::default);
        let make = || {
            let places = || 0..self.most - self.least;
            let factors = places().map(|place| 1 << place);
            let ends = places().map(|place| 1 << (self.most - place));
            let numbers = places().rev().map(|number| u64::from(number).wrapping_sub(1));
            factors.chain(ends).chain(numbers).collect()
        };
        // Both are below 64, which bounds what is kept.
        KNOWN.lock().entry([self.least, self.most]).or_insert_with(make).clone()
    }
}

impl Evaluator {
    /// (e − a) 2^k + ⌊x / 2^(e−k)⌋ − 2^k for 2^a ≤ x < 2^b, where e is the place of the leading one: its
    /// exponent, and the k bits behind it.
    ///
    /// For every exponent e at once: the bit u_e = 1[2^e ≤ x < 2^(e+1)], from one key of b bits; and with n_e
    /// = x 2^(b−1−e) mod 2^(b+1) the quotient q_e = ⌊n_e / 2^s⌋, whose borrow is a comparison of s = b − 1 −
    /// k bits. All bits are opened in one round, and Σ_e u_e (q_e + (e − a − 1) 2^k) is one expression of
    /// them and of the dealer's words. n_e is below half its ring where u_e is set, so that its wrap-around
    /// is no comparison; elsewhere it does not count.
    pub async fn leading_index(&self, x: &Wire, leading: Leading, out: Ring) -> Result<Share> {
        const GATE: &str = "the bits behind the leading one";
        let Leading { least, most, mantissa } = leading;
        let (bound, ring) = (x.bound(), x.ring());
        if least.saturating_add(2) > most || mantissa.saturating_add(2) > most || most > 63 {
            return Err(Error::Unsupported { gate: GATE, what: format!("{leading:?}") });
        }
        if bound.lo() < 1 << least || bound.hi() >= 1 << most || most >= ring.bits() {
            let room = format!("2^{least} to 2^{most}, half a ring of {} bits", ring.bits());
            return Err(Error::NotProved { gate: GATE, lo: bound.lo(), hi: bound.hi(), room });
        }
        let (rows, count, shift) = (x.len(), leading.count(), leading.shift());
        // All numbers with the largest exponent, then all with the next: x 2^p, and the end of the interval
        // of the exponent b − 1 − p.
        let len = count * rows;
        let each = || View::Each(rows.max(1));
        let [factors, ends, numbers] = &self.exponents(leading)?;
        let residues = &x.narrow(most + 1)?;
        let wide = residues.ring();
        // Only one of a number's multiples counts, and the others may be any residue.
        let multiples = self.compute_linear(GATE, (wide, len), Bound::unsigned(wide), |w| {
            w.read_as(residues.words(), View::Cycle(rows.max(1))) * w.read_as(factors, each())
        })?;
        let unit = self.exponent_bits(&x.narrow(most)?, ends, leading)?;
        let borrow = async {
            let cut = leading.cut() * rows;
            let borrow = self.borrow_bit(&multiples.part(0, cut)?, 0, shift).await?;
            // The others have no borrow, and no mask of one.
            let places = Places::of_shape("borrows of multiples", &[cut, len], || {
                Places::of((0..len).map(|place| (place < cut).then_some(place)))
            })?;
            Wire::new(Ring::BIT, borrow, Bound::bit()).gather(&places)
        };
        let (unit, borrow) = join(self.open(unit), borrow).await?;
        self.index_of(&multiples, &unit, &borrow, (leading, numbers), out)
    }

    /// Of every exponent, the largest first: 2^(b−1−e), 2^(e+1) and e − a − 1.
    fn exponents(&self, leading: Leading) -> Result<[Words; 3]> {
        let count = leading.count();
        let all = &self.constants(&leading.exponents())?;
        let part =
            |index: usize| all.derive(count, Ring::WORD, |w| w.read_as(all, View::From(index * count)));
        Ok([part(0)?, part(1)?, part(2)?])
    }

    /// u_e of every exponent, the largest first: of one key, at the ends of all intervals.
    fn exponent_bits(&self, x: &Wire, ends: &Words, leading: Leading) -> Result<Share> {
        let (ring, rows, word) = (x.ring(), x.len(), x.words());
        let len = leading.count() * rows;
        let keys = self.points(ring.bits(), x)?;
        let shifts: Vec<u64> =
            (leading.least..=leading.most).rev().map(|exponent| (1u64 << exponent).wrapping_neg()).collect();
        let below = &self.less_than(&keys, x, &shifts)?;
        let fresh = &self.fresh(len, Ring::BIT)?;
        let each = || View::Each(rows.max(1));
        let cycle = || View::Cycle(rows.max(1));
        self.compute(
            "an exponent",
            (Ring::BIT, len),
            Bound::bit(),
            |w| {
                let start = w.read_as(ends, each()) >> 1;
                (w.read_as(word, cycle()) - start).reduce(ring).below(start)
            },
            |w| w.read(fresh),
            |w, party| {
                let end = w.read_as(ends, each());
                let [before, after] =
                    [end, end >> 1].map(|end| (w.read_as(word, cycle()) - end).reduce(ring));
                let [to, from] = [w.read(below), w.read_as(below, View::From(rows))];
                from ^ to ^ after.below(before).once(party) ^ w.read(fresh)
            },
        )
    }

    /// Σ_e u_e (q_e + (e − a − 1) 2^k). With û = u ⊕ ρ and q = p − h − (1 − 2 b̂) β + c w, as for
    /// [`Quotient`](super::Quotient)s: u q is ρ q where û is 0, and q − ρ q where it is 1.
    fn index_of(
        &self,
        multiples: &Wire,
        unit: &Wire,
        borrow: &Wire,
        (leading, numbers): (Leading, &Words),
        out: Ring,
    ) -> Result<Share> {
        const GATE: &str = "the bits behind the leading one";
        let (wide, len) = (multiples.ring(), multiples.len());
        let (shift, count, rows) = (leading.shift(), leading.count(), len / leading.count());
        let (word, unit, borrow) = (multiples.words(), unit.words(), borrow.words());
        let quotient_bits = wide.bits() - shift;
        let top =
            out.bits().checked_sub(quotient_bits).filter(|&bits| bits > 0).map(Ring::new).transpose()?;
        // ⟨ρ f⟩ and ⟨f⟩.
        let both = |ring: Ring, factor: &dyn for<'t> Fn(&'t Tape) -> Word<'t>| -> Result<[Words; 2]> {
            let chosen = self.deal(len, ring, |w| w.read(unit) * factor(w))?;
            Ok([chosen, self.deal(len, ring, |w| factor(w))?])
        };
        let rho = &self.deal(len, out, |w| w.read(unit))?;
        let high = &both(out, &|w| w.read(word) >> shift)?;
        let borrowed = &both(out, &|w| w.read(borrow))?;
        let wrapped = &top.map(|top| both(top, &|w| w.read(word).msb(wide))).transpose()?;
        let fresh = &self.fresh(rows, out)?;
        let terms: Wire = self.compute(
            GATE,
            (out, len),
            Bound::unsigned(out),
            |w| {
                w.read(unit)
                    * ((w.read(word) >> shift)
                        + (w.read_as(numbers, View::Each(rows.max(1))) << leading.mantissa))
            },
            |w| w.number(0),
            |w, party| {
                let [unit, x, borrow] = w.read_all([unit, word, borrow]);
                let public =
                    (x >> shift) - borrow + (w.read_as(numbers, View::Each(rows.max(1))) << leading.mantissa);
                let taken = |which: usize| {
                    let taken = w.read(&high[which]) + borrow.sign(w.read(&borrowed[which]));
                    let wrap = wrapped.as_ref().map(|wrapped| {
                        x.msb(wide).choose(w.read(&wrapped[which]), w.number(0)) << quotient_bits
                    });
                    taken - wrap.unwrap_or(w.number(0))
                };
                let chosen = public * w.read(rho) - taken(0);
                unit.choose(chosen, public.once(party) - taken(1) - chosen)
            },
        )?;
        let sums = &terms.words().sums(Sums::Columns(rows), out)?;
        self.compute(
            GATE,
            (out, rows),
            Bound::proved(0, ((count as i128) << leading.mantissa) - 1),
            |w| w.read(sums),
            |w| w.read(fresh),
            |w, _| w.read(fresh) + w.read(sums),
        )
    }
}
