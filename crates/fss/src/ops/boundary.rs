//! Where values enter and leave.

use std::ops::RangeInclusive;

use crate::backend::Words;
use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, Request, Role};
use crate::party::Party;
use crate::ring::Ring;
use crate::secret::Secret;
use crate::tensor::{MaskShare, Wire};

/// A wire with the shares of its mask, as products need it. The same mask may serve for as long as the values
/// are the same bits, as a model's weights are.
#[derive(Clone)]
pub struct Weights {
    wire: Wire,
    mask: MaskShare,
}

impl Weights {
    /// Lengths without words: what an estimate of something that uses them needs.
    pub fn shape(ring: Ring, len: usize, bound: Bound) -> Self {
        let words = Words::absent(len);
        Self { wire: Wire::new(ring, words.clone(), bound), mask: MaskShare::new(ring, words) }
    }

    /// The masked values.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The shares of their mask.
    pub fn mask(&self) -> &MaskShare {
        &self.mask
    }
}

impl Evaluator {
    /// x̂ = x + r of one party's private x, with a mask r that only this party derives. One word from the
    /// owner.
    ///
    /// The owner's values are checked against `range`, which becomes their proved bound.
    pub async fn input(
        &self,
        owner: Party,
        ring: Ring,
        len: usize,
        range: RangeInclusive<i64>,
    ) -> Result<Wire> {
        self.input_checked(owner, ring, len, range, |_| Ok(())).await
    }

    /// `rows` rows of bits in groups, exactly one of each of which is set: one row of each part of a table,
    /// in a product with it.
    ///
    /// The owner's rows are checked; the other party has to trust that, as it does that inputs are in range.
    pub async fn one_hot_input(
        &self,
        owner: Party,
        ring: Ring,
        rows: usize,
        groups: &[usize],
    ) -> Result<Wire> {
        let width = groups.iter().try_fold(0usize, |sum, &width| sum.checked_add(width));
        let len = width.and_then(|width| rows.checked_mul(width)).filter(|_| !groups.contains(&0));
        let what = || format!("{rows} rows of {groups:?}");
        let shape = || Error::Shape { gate: "a one-hot input", what: what() };
        let (Some(width @ 1..), Some(len)) = (width, len) else { return Err(shape()) };
        let is_one_hot = |row: &[u64]| {
            let mut rest = row;
            // Every element is zero or one by the range.
            groups.iter().all(|&width| {
                let (group, after) = rest.split_at(width);
                rest = after;
                group.iter().sum::<u64>() == 1
            })
        };
        let one_hot = |values: &[u64]| match values.chunks(width).position(|row| !is_one_hot(row)) {
            None => Ok(()),
            Some(row) => Err(format!("row {row} is not one-hot")),
        };
        self.input_checked(owner, ring, len, 0..=1, one_hot).await
    }

    async fn input_checked(
        &self,
        owner: Party,
        ring: Ring,
        len: usize,
        range: RangeInclusive<i64>,
        check: impl Fn(&[u64]) -> Result<(), String>,
    ) -> Result<Wire> {
        let index = self.inputs_taken.replace(self.inputs_taken.get() + 1);
        let refused = |what: String| Error::Input { index, party: owner, what };
        if range.is_empty() {
            return Err(refused(format!("{range:?} holds no value")));
        }
        let bound =
            Bound::proved((*range.start()).into(), (*range.end()).into()).in_ring("an input", ring)?;
        let mask = self.fresh_for(owner, len, ring)?;
        let given = self.inputs.borrow_mut().pop_front().flatten();
        let owned = match &self.role {
            Role::Clear => true,
            Role::Party(party, _) => *party == owner,
            Role::Dealer(_) | Role::Estimate | Role::Scout(..) => false,
        };
        let words = if let (true, true, Role::Party(_, keys)) = (self.rehearses, owned, &self.role) {
            // As many words as the values would be.
            let values = self.kept(len, keys.borrow_mut().keys_mut().derived_alone(len, ring)?);
            self.words(len, ring, |w| w.read(&values) + w.read(&mask))?
        } else if owned {
            let values = Secret::new(given.ok_or_else(|| refused("it was not given".into()))?);
            if values.len() != len {
                return Err(refused(format!("it has {} elements, the circuit declares {len}", values.len())));
            }
            if let Some(place) = values.iter().position(|&value| bound.decode(ring, value).is_none()) {
                return Err(refused(format!("element {place} is not within {range:?}")));
            }
            check(&values).map_err(refused)?;
            let values = self.host_words(values)?;
            match &self.role {
                Role::Party(..) => self.words(len, ring, |w| w.read(&values) + w.read(&mask))?,
                _ => self.words(len, ring, |w| w.read(&values))?,
            }
        } else {
            mask
        };
        let words = self.exchange(Request { ring, words, from: Some(owner) }).await;
        Ok(Wire::new(ring, words, bound))
    }

    /// One party's weights: masked once, usable in any number of products.
    pub async fn weights(
        &self,
        owner: Party,
        ring: Ring,
        len: usize,
        range: RangeInclusive<i64>,
    ) -> Result<Weights> {
        let wire = self.input(owner, ring, len, range).await?;
        Ok(Weights { mask: self.mask_share(&wire)?, wire })
    }

    /// ⟨r⟩, as products with x need it: half a word of key a party and element.
    pub fn mask_share(&self, x: &Wire) -> Result<MaskShare> {
        Ok(MaskShare::new(x.ring(), self.deal(x.len(), x.ring(), |w| w.read(x.words()))?))
    }

    /// x to one party, who alone is given r. Nothing is sent. `None` for all other roles but the clear one.
    pub fn reveal(&self, x: &Wire, to: Party) -> Result<Option<Vec<u64>>> {
        let mask = self.give(to, x.words(), x.ring())?;
        let words = match &self.role {
            Role::Clear => x.words().clone(),
            Role::Party(party, _) if *party == to => {
                self.words(x.len(), x.ring(), |w| w.read(x.words()) - w.read(&mask))?
            }
            _ => return Ok(None),
        };
        Ok(Some(words.download()?.to_vec()))
    }
}
