//! Quotients by powers of two that are computed with before they are opened.
//!
//! Once the borrow of a truncation with a gap is open, ⌊x / 2^s⌋ = a − m: a is public, and m is a sum of the
//! dealer's words with public coefficients,
//!
//! ```text
//! m = h + (1 − 2 b̂) ρ − c w       h = ⌊r / 2^s⌋,   b̂ = b ⊕ ρ the borrow,   w = MSB(r),   c = 2^(l−s) (1 − MSB(x̂))
//! ```
//!
//! So is every product of m with words that the dealer knows. What is computed with a quotient is opened in
//! the round in which the quotient would be.

use crate::backend::Words;
use crate::bound::{Bound, GapProof};
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, Request, Role, join};
use crate::formula::{Tape, View, Word};
use crate::ring::Ring;
use crate::tensor::{MaskShare, Share, Wire};

use super::boundary::Weights;
use super::multiply::expect_mask;

/// ⌊x / 2^s⌋ of a value with a gap (see [`GapProof`]), whose borrow is open.
pub struct Quotient {
    x: Wire,
    shift: u32,
    offset: u64,
    /// b̂; the dealer's word is ρ. None if no bits are cut off.
    borrow: Option<Words>,
}

impl Quotient {
    /// Where the quotients lie.
    pub fn bound(&self) -> Bound {
        self.x.bound().shifted_right(self.shift)
    }

    /// l − s, the bits of the quotient.
    fn bits(&self) -> u32 {
        self.x.ring().bits() - self.shift
    }

    /// The bits by which a ring is wider than the quotient: as many of w count. None if it is not.
    fn wider(&self, out: Ring) -> Option<u32> {
        out.bits().checked_sub(self.bits()).filter(|&wider| wider > 0)
    }

    fn shifted<'t>(&self, tape: &'t Tape) -> Word<'t> {
        (tape.read(self.x.words()) + self.offset).reduce(self.x.ring())
    }

    /// In clear, the quotient.
    fn clear<'t>(&self, tape: &'t Tape) -> Word<'t> {
        (self.shifted(tape) >> self.shift) - (self.offset >> self.shift)
    }

    /// A party's a.
    fn public<'t>(&self, tape: &'t Tape) -> Word<'t> {
        let quotient = self.clear(tape);
        self.borrow.as_ref().map_or(quotient, |borrow| quotient - tape.read(borrow))
    }

    /// (1 − 2 b̂) v; zero if no bits are cut off.
    fn borrowed<'t>(&self, tape: &'t Tape, value: Word<'t>) -> Word<'t> {
        self.borrow.as_ref().map_or(tape.number(0), |borrow| tape.read(borrow).sign(value))
    }

    /// c v.
    fn wrapped<'t>(&self, tape: &'t Tape, value: Word<'t>) -> Word<'t> {
        self.shifted(tape).msb(self.x.ring()).choose(value, tape.number(0)) << self.bits()
    }

    /// The dealer's h.
    fn high<'t>(&self, tape: &'t Tape) -> Word<'t> {
        tape.read(self.x.words()) >> self.shift
    }

    /// The dealer's ρ.
    fn rho<'t>(&self, tape: &'t Tape) -> Word<'t> {
        self.borrow.as_ref().map_or(tape.number(0), |borrow| tape.read(borrow))
    }

    /// The dealer's w.
    fn top<'t>(&self, tape: &'t Tape) -> Word<'t> {
        tape.read(self.x.words()).msb(self.x.ring())
    }
}

/// A party's shares of ρ f and w f for a factor f that the dealer knows. Absent where nothing depends on
/// them.
struct Corrections {
    borrow: Option<Words>,
    wrap: Option<Words>,
}

impl Corrections {
    /// (1 − 2 b̂) ⟨ρ f⟩ − c ⟨w f⟩.
    fn share<'t>(&self, quotient: &Quotient, tape: &'t Tape) -> Word<'t> {
        let borrow = self.borrow.as_ref().map(|words| quotient.borrowed(tape, tape.read(words)));
        let wrap = self.wrap.as_ref().map(|words| quotient.wrapped(tape, tape.read(words)));
        let zero = || tape.number(0);
        borrow.unwrap_or_else(zero) - wrap.unwrap_or_else(zero)
    }
}

impl Evaluator {
    /// The quotient of a truncation with a gap: one round of one bit and a key of s bits. Without a proof it
    /// is an error, never a hope.
    ///
    /// Below half the ring 1[x̂ < r] = MSB(r) (1 − MSB(x̂)), so only the short borrow is compared. With s = 0
    /// nothing is opened.
    pub async fn quotient(&self, x: &Wire, shift: u32) -> Result<Quotient> {
        const GATE: &str = "a truncation with a gap";
        let ring = x.ring();
        let not_proved = || {
            let room = format!("below a quarter of a ring of {} bits", ring.bits());
            Error::NotProved { gate: GATE, lo: x.bound().lo(), hi: x.bound().hi(), room }
        };
        let offset = GapProof::of(&x.bound(), ring).ok_or_else(not_proved)?.offset();
        if shift.saturating_add(2) > ring.bits() {
            let what = format!("{shift} of {} bits: at least two must stay", ring.bits());
            return Err(Error::Unsupported { gate: GATE, what });
        }
        let borrow = match shift {
            0 => None,
            _ => Some(self.borrow_bit(x, offset, shift).await?),
        };
        Ok(Quotient { x: x.clone(), shift, offset, borrow })
    }

    /// Shares of ρ f and w f, in a ring and in those of its bits that count.
    fn corrections(
        &self,
        quotient: &Quotient,
        out: Ring,
        factor: impl for<'t> Fn(&'t Tape) -> Word<'t>,
    ) -> Result<Corrections> {
        let len = quotient.x.len();
        let borrow = match quotient.borrow {
            None => None,
            Some(_) => Some(self.deal(len, out, |w| quotient.rho(w) * factor(w))?),
        };
        let wrap = match quotient.wider(out) {
            None => None,
            Some(wider) => Some(self.deal(len, Ring::new(wider)?, |w| quotient.top(w) * factor(w))?),
        };
        Ok(Corrections { borrow, wrap })
    }

    /// The quotient itself, in any ring that holds it: ⟨ρ⟩, and ⟨w⟩ in the bits by which the ring is wider
    /// than l − s.
    pub fn quotient_share(&self, quotient: &Quotient, out: Ring) -> Result<Share> {
        let corrections = &self.corrections(quotient, out, |w| w.number(1))?;
        let fresh = &self.fresh(quotient.x.len(), out)?;
        self.compute(
            "a truncation with a gap",
            (out, quotient.x.len()),
            quotient.bound(),
            |w| quotient.clear(w),
            |w| w.read(fresh) + quotient.high(w),
            |w, party| quotient.public(w).once(party) - corrections.share(quotient, w) + w.read(fresh),
        )
    }

    /// ⌊x / 2^s⌋ in the ring `out`, and ⌊x / 2^(s+t)⌋ in the ring `coarse`, of at most l − s − t bits, after
    /// one round of three bits.
    ///
    /// With b the borrow of the low s bits, and x̂' and r' the t bits above them, the borrow of all s + t
    /// bits is 1[x̂' < r'] + 1[x̂' = r'] b: comparisons of s and of t bits, from one key each. The product is
    /// one of opened bits, ê b̂ + (1 − 2 b̂) ê ⟨ρ_b⟩ + (1 − 2 ê) b̂ ⟨ρ_e⟩ + (1 − 2 ê) (1 − 2 b̂) ⟨ρ_e ρ_b⟩.
    pub async fn two_quotients(
        &self,
        x: &Wire,
        [shift, more]: [u32; 2],
        out: Ring,
        coarse: Ring,
    ) -> Result<[Share; 2]> {
        const GATE: &str = "two quotients";
        let (len, all) = (x.len(), shift.saturating_add(more));
        // The offset of a signed value must not reach into the bits that are cut off.
        if shift == 0 || more == 0 || all.saturating_add(coarse.bits().max(2)) > x.ring().bits() {
            let what = format!("{shift} and {more} bits off and {} kept, of {x:?}", coarse.bits());
            return Err(Error::Unsupported { gate: GATE, what });
        }
        let above = self.quotient_or_next(x, shift, Ring::new(more)?)?;
        let (fine, (below, equal)) = join(self.quotient(x, shift), self.compared(&above)).await?;
        let Some(borrow) = &fine.borrow else {
            return Err(Error::Unsupported { gate: GATE, what: "nothing is cut off".into() });
        };
        let share = self.quotient_share(&fine, out)?;
        let (word, below, equal) = (x.words(), &below, &equal);
        let rho = |bits: &Words| self.deal(len, coarse, |w| w.read(bits));
        let (rho_below, rho_equal, rho_borrow) = (&rho(below)?, &rho(equal)?, &rho(borrow)?);
        let rho_both = &self.deal(len, coarse, |w| w.read(equal) * w.read(borrow))?;
        let fresh = &self.fresh(len, coarse)?;
        let quotient = x.bound().shifted_right(all);
        let bound = if quotient.fits(coarse) { quotient } else { Bound::unsigned(coarse) };
        let coarse = self.compute(
            GATE,
            (coarse, len),
            bound,
            |w| w.read(word) >> all,
            |w| w.read(fresh) + (w.read(word) >> all),
            |w, party| {
                let [x, below, equal, borrow, u] = w.read_all([word, below, equal, borrow, fresh]);
                let [rho_below, rho_equal, rho_borrow, rho_both] =
                    w.read_all([rho_below, rho_equal, rho_borrow, rho_both]);
                let public = (x >> all) - below - (equal & borrow);
                let crossed = equal * borrow.sign(rho_borrow) + borrow * equal.sign(rho_equal);
                let borrowed = below.sign(rho_below) + crossed + equal.sign(borrow.sign(rho_both));
                public.once(party) - borrowed + u
            },
        )?;
        Ok([share, coarse])
    }

    /// The opened bits 1[x̂ < r] and 1[x̂ = r], from one key of as many bits as the ring has. No one reads
    /// them in clear.
    async fn compared(&self, x: &Wire) -> Result<(Words, Words)> {
        let (len, word) = (x.len(), x.words());
        let keys = self.points(x.ring().bits(), x)?;
        // 1[x̂ = r] = 1[x̂ < r] ⊕ 1[x̂ − 1 < r], but for x̂ = 0, which has none before it.
        let below = &self.less_than(&keys, x, &[0, u64::MAX])?;
        let (first, second) = (self.fresh(len, Ring::BIT)?, self.fresh(len, Ring::BIT)?);
        let (first, second) = match &self.role {
            Role::Party(party, _) => {
                let less = self.words(len, Ring::BIT, |w| w.read(&first) ^ w.read(below))?;
                let equal = self.words(len, Ring::BIT, |w| {
                    let is_zero = w.read(word).below(w.number(1));
                    let differ = w.read(below) ^ w.read_as(below, View::From(len));
                    w.read(&second) ^ differ ^ is_zero.once(*party)
                })?;
                (less, equal)
            }
            _ => (first, second),
        };
        let open =
            async |words: Words| Ok(self.exchange(Request { ring: Ring::BIT, words, from: None }).await);
        join(open(first), open(second)).await
    }

    /// q γ elementwise, with weights that repeat as `weight_of` says: with γ̂ = γ + g,
    /// a γ̂ − a ⟨g⟩ − γ̂ ⟨m⟩ + (1 − 2 b̂) ⟨ρ g⟩ − c ⟨w g⟩ + u, under the mask u − h g.
    pub fn quotient_product(
        &self,
        quotient: &Quotient,
        weights: &Weights,
        weight_of: &View,
        out: Ring,
    ) -> Result<Share> {
        const GATE: &str = "a product with a quotient";
        let len = quotient.x.len();
        let (gamma, mask) = (weights.wire(), weights.mask().words());
        if gamma.ring() != out || weight_of.needs(len) > gamma.len() || !weight_of.covers(len) {
            return Err(Error::Shape { gate: GATE, what: format!("{:?} and {gamma:?}", quotient.x) });
        }
        let bound = quotient.bound().times(&gamma.bound());
        let gamma = gamma.words();
        let high = &self.deal(len, out, |w| quotient.high(w))?;
        let ones = &self.corrections(quotient, out, |w| w.number(1))?;
        let masks = &self.corrections(quotient, out, |w| w.read_as(gamma, weight_of.clone()))?;
        let fresh = &self.fresh(len, out)?;
        self.compute(
            GATE,
            (out, len),
            bound,
            |w| quotient.clear(w) * w.read_as(gamma, weight_of.clone()),
            |w| w.read(fresh) - quotient.high(w) * w.read_as(gamma, weight_of.clone()),
            |w, party| {
                let [gamma, mask] = [gamma, mask].map(|words| w.read_as(words, weight_of.clone()));
                let public = quotient.public(w);
                let m = w.read(high) + ones.share(quotient, w);
                (public * gamma).once(party) - public * mask - gamma * m
                    + masks.share(quotient, w)
                    + w.read(fresh)
            },
        )
    }

    /// Σ (x − q)² over rows of `width`, where q is a quotient of each row: Σ x² − 2 q Σ x + d q².
    ///
    /// With S = Σ x, Ŝ = S + t and q = a − m, where m² and m t are polynomials of the dealer's h, ρ, w and t:
    ///
    /// ```text
    /// d m² − 2 m t = (d h² − 2 h t) + d ρ + (1 − 2 b̂) ρ g + c² d w − c w g − 2 d (1 − 2 b̂) c ρ w       g = 2 d h − 2 t
    /// ```
    pub fn centred_square_sums(
        &self,
        x: &Wire,
        mask: &MaskShare,
        quotient: &Quotient,
        bound: Option<Bound>,
    ) -> Result<Share> {
        const GATE: &str = "a sum of squares";
        expect_mask(x, mask, GATE)?;
        let (ring, rows) = (x.ring(), quotient.x.len());
        if rows == 0 || !x.len().is_multiple_of(rows) {
            return Err(Error::Shape { gate: GATE, what: format!("{x:?} in {rows} rows") });
        }
        let width = x.len() / rows;
        let centred = x.bound().plus(&quotient.bound().negated());
        let bound = bound.unwrap_or_else(|| centred.squared().summed(width));
        let d = width as u64;
        let (sums, sum_masks) = (&x.row_sums(width)?, &mask.row_sums(width)?);
        let (sums, sum_masks) = (sums.words(), sum_masks.words());
        let squares = &self.square_terms(x, mask, width)?;
        let high = &self.deal(rows, ring, |w| quotient.high(w))?;
        let ones = &self.corrections(quotient, ring, |w| w.number(1))?;
        let factors = &self.corrections(quotient, ring, |w| quotient.high(w) * (2 * d) - w.read(sums) * 2)?;
        let both = &self.deal(rows, ring, |w| quotient.rho(w) * quotient.top(w))?;
        let fresh = &self.fresh(rows, ring)?;
        self.compute(
            GATE,
            (ring, rows),
            bound,
            |w| w.read(squares) + polynomial(d, quotient.clear(w), w.read(sums)),
            |w| w.read(fresh) + w.read(squares) - polynomial(d, quotient.high(w), w.read(sums)),
            |w, party| {
                let [sum, sum_mask, both] = w.read_all([sums, sum_masks, both]);
                let a = quotient.public(w);
                let m = w.read(high) + ones.share(quotient, w);
                let public = polynomial(d, a, sum).once(party);
                let crossed = a * sum_mask * 2 + m * (sum * 2 - a * (2 * d));
                // d ρ, c² d w, and the term of both.
                let rho = ones.borrow.as_ref().map_or(w.number(0), |words| w.read(words));
                let top = ones.wrap.as_ref().map_or(w.number(0), |words| w.read(words));
                let twice = quotient.wrapped(w, quotient.wrapped(w, top));
                let pair = quotient.borrowed(w, quotient.wrapped(w, both)) * 2;
                let squared = (rho + twice - pair) * d + factors.share(quotient, w);
                w.read(squares) + public + crossed + squared + w.read(fresh)
            },
        )
    }
}

/// d q² − 2 q s.
fn polynomial<'t>(d: u64, q: Word<'t>, s: Word<'t>) -> Word<'t> {
    q * q * d - q * s * 2
}
