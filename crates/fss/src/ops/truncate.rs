//! Divisions by powers of two, and changes of ring.
//!
//! With x̂ = x + r mod 2^l, over the integers
//!
//! ```text
//! ⌊x / 2^s⌋ = ⌊x̂ / 2^s⌋ − ⌊r / 2^s⌋ − 1[x̂ mod 2^s < r mod 2^s] + 2^(l−s) 1[x̂ < r]
//! ```

use crate::backend::Words;
use crate::bound::{Bound, GapProof};
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, Request, Role};
use crate::ring::Ring;
use crate::tensor::{Share, Wire};

impl Evaluator {
    /// The opened bit ρ ⊕ 1[x̂ mod 2^k < r mod 2^k], which no one reads in clear: one bit on the wire. The
    /// dealer's word is ρ.
    pub(super) async fn borrow_bit(&self, x: &Wire, offset: u64, domain: u32) -> Result<Words> {
        let keys = self.points(domain, x)?;
        let below = self.less_than(&keys, x, &[offset])?;
        let fresh = self.fresh(x.len(), Ring::BIT)?;
        let words = match &self.role {
            Role::Party(..) => self.words(x.len(), Ring::BIT, |w| w.read(&fresh) ^ w.read(&below))?,
            _ => fresh,
        };
        Ok(self.exchange(Request { ring: Ring::BIT, words, from: None }).await)
    }

    /// ⌊x / 2^s⌋ in any ring that holds it, where the value's bound leaves a gap (see [`GapProof`]).
    ///
    /// One round of one bit, a key of s bits, ⟨ρ⟩, and ⟨MSB(r)⟩ in the bits by which the result's ring is
    /// wider than l − s. With s = 0 it only widens the ring and opens nothing.
    pub async fn gap_truncate(&self, x: &Wire, shift: u32, out: Ring) -> Result<Share> {
        self.quotient_share(&self.quotient(x, shift).await?, out)
    }

    /// ⌊x / 2^s⌋ mod 2^k, k ≤ l − s, of any x: the wrap-around falls away. One round of one bit, a key of s
    /// bits and ⟨ρ⟩.
    pub async fn truncate_reduce(&self, x: &Wire, shift: u32, out: Ring) -> Result<Share> {
        const GATE: &str = "a truncation that reduces";
        let (ring, len, word) = (x.ring(), x.len(), x.words());
        if shift == 0 || shift.saturating_add(out.bits()) > ring.bits() {
            let what = format!("{shift} bits off and {} kept, of {}", out.bits(), ring.bits());
            return Err(Error::Unsupported { gate: GATE, what });
        }
        let borrow = &self.borrow_bit(x, 0, shift).await?;
        let flip = &self.deal(len, out, |w| w.read(borrow))?;
        let fresh = &self.fresh(len, out)?;
        let quotient = x.bound().shifted_right(shift);
        let bound = if quotient.fits(out) { quotient } else { Bound::unsigned(out) };
        self.compute(
            GATE,
            (out, len),
            bound,
            |w| w.read(word) >> shift,
            |w| w.read(fresh) + (w.read(word) >> shift),
            |w, party| {
                let [x, borrow, flip, u] = w.read_all([word, borrow, flip, fresh]);
                ((x >> shift) - borrow).once(party) - borrow.sign(flip) + u
            },
        )
    }

    /// The same integer in a wider ring, for any x: x̂ − r + 2^l 1[x̂ < r], with 2^(l−1) added before and
    /// taken off after if values are signed. One round of one bit, a key of l bits, and ⟨ρ⟩ in the new bits.
    pub async fn extend(&self, x: &Wire, out: Ring) -> Result<Share> {
        const GATE: &str = "an extension";
        let (ring, len, word) = (x.ring(), x.len(), x.words());
        let wider = out.bits().checked_sub(ring.bits()).filter(|&wider| wider > 0);
        let narrow = || Error::Unsupported {
            gate: GATE,
            what: format!("from {} to {} bits", ring.bits(), out.bits()),
        };
        let top = Ring::new(wider.ok_or_else(narrow)?)?;
        let offset = if Bound::unsigned(ring).contains(&x.bound()) {
            0
        } else if Bound::signed(ring).contains(&x.bound()) {
            1u64 << (ring.bits() - 1)
        } else {
            let room = "either the signed or the unsigned residues".to_owned();
            return Err(Error::NotProved { gate: GATE, lo: x.bound().lo(), hi: x.bound().hi(), room });
        };
        let wrapped = &self.borrow_bit(x, offset, ring.bits()).await?;
        let flip = &self.deal(len, top, |w| w.read(wrapped))?;
        let fresh = &self.fresh(len, out)?;
        self.compute(
            GATE,
            (out, len),
            x.bound(),
            |w| (w.read(word) + offset).reduce(ring) - offset,
            |w| w.read(fresh) + w.read(word),
            |w, party| {
                let [x, wrapped, flip, u] = w.read_all([word, wrapped, flip, fresh]);
                let public = (x + offset).reduce(ring) - offset + (wrapped << ring.bits());
                public.once(party) + (wrapped.sign(flip) << ring.bits()) + u
            },
        )
    }

    /// ⌊x / 2^s⌋ of any x, in a ring of at least l − s bits: [`Evaluator::truncate_reduce`], then
    /// [`Evaluator::extend`]. Three rounds with the opening in between.
    pub async fn faithful_truncate(&self, x: &Wire, shift: u32, out: Ring) -> Result<Share> {
        let quotient = Ring::new(x.ring().bits().saturating_sub(shift))?;
        if out.bits() <= quotient.bits() {
            let quotient = self.truncate_reduce(x, shift, out).await?;
            return self.claim("a faithful truncation", quotient, x.bound().shifted_right(shift));
        }
        let reduced = self.truncate_reduce(x, shift, quotient).await?;
        let opened = self.open(reduced).await?;
        self.extend(&opened, out).await
    }

    /// ⌊x / 2^s⌋: with a gap where the bound proves one, faithfully elsewhere. Which of the two is public.
    pub async fn truncate(&self, x: &Wire, shift: u32, out: Ring) -> Result<Share> {
        match GapProof::of(&x.bound(), x.ring()) {
            Some(_) => self.gap_truncate(x, shift, out).await,
            None => self.faithful_truncate(x, shift, out).await,
        }
    }
}
