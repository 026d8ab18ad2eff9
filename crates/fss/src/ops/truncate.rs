//! Divisions by powers of two, and changes of ring.
//!
//! With x̂ = x + r mod 2^l, over the integers
//!
//! ```text
//! ⌊x / 2^s⌋ = ⌊x̂ / 2^s⌋ − ⌊r / 2^s⌋ − 1[x̂ mod 2^s < r mod 2^s] + 2^(l−s) 1[x̂ < r]
//! ```

use crate::bound::{Bound, GapProof};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ring::Ring;
use crate::runtime::Request;
use crate::tensor::{Share, Wire, Words};

use super::bits::{choose, signed_by};

impl Engine {
    /// The opened bit ρ ⊕ 1[x̂ mod 2^k < r mod 2^k], which no one reads in clear: one bit on the wire. The dealer's word is ρ.
    async fn borrow_bit(&self, x: &Wire, offset: u64, domain: u32) -> Result<Words> {
        let keys = self.points(domain, x.len, |index| x.words[index])?;
        let below = self.less_than(&keys, 1, |_, index| x.words[index].wrapping_add(offset))?;
        let mut words = self.free(x.len, Ring::BIT);
        for (word, below) in words.iter_mut().zip(below.iter()) {
            *word ^= below;
        }
        for word in words.iter_mut() {
            *word &= 1;
        }
        Ok(self.exchange(Request { ring: Ring::BIT, len: x.len, words, from: None }).await)
    }

    /// ⌊x / 2^s⌋ in any ring that holds it, where the value's bound leaves a gap (see [`GapProof`]).
    ///
    /// Below half the ring 1[x̂ < r] = MSB(r) (1 − MSB(x̂)), so only the short borrow is compared: one round of one bit, a
    /// key of s bits, ⟨ρ⟩, and ⟨MSB(r)⟩ in the bits by which the result's ring is wider than l − s. Without a proof it is
    /// an error, never a hope. With s = 0 it only widens the ring and opens nothing.
    pub async fn gap_truncate(&self, x: &Wire, shift: u32, out: Ring) -> Result<Share> {
        const GATE: &str = "a truncation with a gap";
        let (ring, len) = (x.ring, x.len);
        let not_proved = || {
            let room = format!("below a quarter of a ring of {} bits", ring.bits());
            Error::NotProved { gate: GATE, lo: x.bound.lo(), hi: x.bound.hi(), room }
        };
        let offset = GapProof::of(&x.bound, ring).ok_or_else(not_proved)?.offset();
        if shift.saturating_add(2) > ring.bits() {
            let what = format!("{shift} of {} bits: at least two must stay", ring.bits());
            return Err(Error::Unsupported { gate: GATE, what });
        }
        let quotient = ring.bits() - shift;
        let borrow = if shift == 0 { Words::default() } else { self.borrow_bit(x, offset, shift).await? };
        let flip = if shift == 0 { Words::default() } else { self.deal(len, out, |index| borrow[index])? };
        let wrap = if out.bits() > quotient {
            self.deal(len, Ring::new(out.bits() - quotient)?, |index| ring.msb(x.words[index]))?
        } else {
            Words::default()
        };
        let fresh = self.free(len, out);
        self.compute(
            GATE,
            (out, len),
            x.bound.shifted_right(shift),
            |index| (ring.reduce(x.words[index].wrapping_add(offset)) >> shift).wrapping_sub(offset >> shift),
            |index| fresh[index].wrapping_add(x.words[index] >> shift),
            |index, party| {
                let shifted = ring.reduce(x.words[index].wrapping_add(offset));
                let mut public = (shifted >> shift).wrapping_sub(offset >> shift);
                let mut share = fresh[index];
                if shift > 0 {
                    public = public.wrapping_sub(borrow[index]);
                    share = share.wrapping_sub(signed_by(borrow[index], flip[index]));
                }
                if out.bits() > quotient {
                    share = share.wrapping_add(choose(ring.msb(shifted), wrap[index], 0) << quotient);
                }
                share.wrapping_add(party.once(public))
            },
        )
    }

    /// ⌊x / 2^s⌋ mod 2^k, k ≤ l − s, of any x: the wrap-around falls away. One round of one bit, a key of s bits and ⟨ρ⟩.
    pub async fn truncate_reduce(&self, x: &Wire, shift: u32, out: Ring) -> Result<Share> {
        const GATE: &str = "a truncation that reduces";
        let (ring, len) = (x.ring, x.len);
        if shift == 0 || shift.saturating_add(out.bits()) > ring.bits() {
            let what = format!("{shift} bits off and {} kept, of {}", out.bits(), ring.bits());
            return Err(Error::Unsupported { gate: GATE, what });
        }
        let borrow = self.borrow_bit(x, 0, shift).await?;
        let flip = self.deal(len, out, |index| borrow[index])?;
        let fresh = self.free(len, out);
        let quotient = x.bound.shifted_right(shift);
        let bound = if quotient.fits(out) { quotient } else { Bound::unsigned(out) };
        self.compute(
            GATE,
            (out, len),
            bound,
            |index| x.words[index] >> shift,
            |index| fresh[index].wrapping_add(x.words[index] >> shift),
            |index, party| {
                let public = (x.words[index] >> shift).wrapping_sub(borrow[index]);
                let flipped = signed_by(borrow[index], flip[index]);
                party.once(public).wrapping_sub(flipped).wrapping_add(fresh[index])
            },
        )
    }

    /// The same integer in a wider ring, for any x: x̂ − r + 2^l 1[x̂ < r], with 2^(l−1) added before and taken off after if
    /// values are signed. One round of one bit, a key of l bits, and ⟨ρ⟩ in the new bits.
    pub async fn extend(&self, x: &Wire, out: Ring) -> Result<Share> {
        const GATE: &str = "an extension";
        let (ring, len) = (x.ring, x.len);
        let wider = out.bits().checked_sub(ring.bits()).filter(|&wider| wider > 0);
        let narrow = || Error::Unsupported {
            gate: GATE,
            what: format!("from {} to {} bits", ring.bits(), out.bits()),
        };
        let top = Ring::new(wider.ok_or_else(narrow)?)?;
        let offset = if Bound::unsigned(ring).contains(&x.bound) {
            0
        } else if Bound::signed(ring).contains(&x.bound) {
            1u64 << (ring.bits() - 1)
        } else {
            let room = "either the signed or the unsigned residues".to_owned();
            return Err(Error::NotProved { gate: GATE, lo: x.bound.lo(), hi: x.bound.hi(), room });
        };
        let wrapped = self.borrow_bit(x, offset, ring.bits()).await?;
        let flip = self.deal(len, top, |index| wrapped[index])?;
        let fresh = self.free(len, out);
        self.compute(
            GATE,
            (out, len),
            x.bound,
            |index| ring.reduce(x.words[index].wrapping_add(offset)).wrapping_sub(offset),
            |index| fresh[index].wrapping_add(x.words[index]),
            |index, party| {
                let shifted = ring.reduce(x.words[index].wrapping_add(offset));
                let public = shifted.wrapping_sub(offset).wrapping_add(wrapped[index] << ring.bits());
                let flipped = signed_by(wrapped[index], flip[index]) << ring.bits();
                party.once(public).wrapping_add(flipped).wrapping_add(fresh[index])
            },
        )
    }

    /// ⌊x / 2^s⌋ of any x, in a ring of at least l − s bits: [`Engine::truncate_reduce`], then [`Engine::extend`]. Three
    /// rounds with the opening in between.
    pub async fn faithful_truncate(&self, x: &Wire, shift: u32, out: Ring) -> Result<Share> {
        let quotient = Ring::new(x.ring.bits().saturating_sub(shift))?;
        if out.bits() <= quotient.bits() {
            let quotient = self.truncate_reduce(x, shift, out).await?;
            return self.claim("a faithful truncation", quotient, x.bound.shifted_right(shift));
        }
        let reduced = self.truncate_reduce(x, shift, quotient).await?;
        let opened = self.open(reduced).await?;
        self.extend(&opened, out).await
    }

    /// ⌊x / 2^s⌋: with a gap where the bound proves one, faithfully elsewhere. Which of the two is public.
    pub async fn truncate(&self, x: &Wire, shift: u32, out: Ring) -> Result<Share> {
        match GapProof::of(&x.bound, x.ring) {
            Some(_) => self.gap_truncate(x, shift, out).await,
            None => self.faithful_truncate(x, shift, out).await,
        }
    }
}
