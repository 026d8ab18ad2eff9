//! The four roles in which a circuit runs.

mod material;
mod role;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::party::Party;
use crate::ring::{Ring, packed_bytes};
use crate::runtime::{Mailbox, Request};
use crate::tally::Cost;
use crate::tensor::{Opened, Share, Tensor, Unopened, Wire, Words};

pub(crate) use role::{PartyRole, Role};

/// Runs circuits: in clear, as the dealer who makes keys, as a party who uses them, or only counting.
///
/// Every gate is written once for all four, so that they cannot drift apart: each asks for its key material and its opens
/// in one order, and says what a word is in clear, what mask it has, and what share of it a party computes.
pub struct Engine {
    pub(crate) role: Role,
    pub(crate) mailbox: Mailbox,
    tally: RefCell<Cost>,
    pub(crate) inputs: RefCell<VecDeque<Option<Vec<u64>>>>,
    pub(crate) inputs_taken: Cell<usize>,
}

impl Engine {
    pub(crate) fn new(role: Role, inputs: Vec<Option<Vec<u64>>>) -> Self {
        Self {
            role,
            mailbox: Mailbox::default(),
            tally: RefCell::default(),
            inputs: RefCell::new(inputs.into()),
            inputs_taken: Cell::new(0),
        }
    }

    /// What was counted so far.
    pub fn cost(&self) -> Cost {
        *self.tally.borrow()
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Cost)) {
        count(&mut self.tally.borrow_mut());
    }

    /// A tensor from what its words are in each role.
    pub(crate) fn compute<State>(
        &self,
        gate: &'static str,
        (ring, len): (Ring, usize),
        bound: Bound,
        clear: impl Fn(usize) -> u64,
        mask: impl Fn(usize) -> u64,
        share: impl Fn(usize, Party) -> u64,
    ) -> Result<Tensor<State>> {
        let bound = bound.in_ring(gate, ring)?;
        let words = match &self.role {
            Role::Clear => {
                let words: Vec<u64> = (0..len).map(|index| ring.reduce(clear(index))).collect();
                check(gate, ring, &bound, &words)?;
                words
            }
            Role::Dealer(_) => (0..len).map(|index| ring.reduce(mask(index))).collect(),
            Role::Party(party) => (0..len).map(|index| ring.reduce(share(index, party.party))).collect(),
            Role::Estimate => Vec::new(),
        };
        Ok(Tensor::new(ring, len, words, bound))
    }

    /// Opens shares: both parties learn the value under its mask. One word of `ring` a party and element.
    pub async fn open(&self, share: Share) -> Result<Wire> {
        let Share { ring, len, words, bound, .. } = share;
        let words = self.exchange(Request { ring, len, words, from: None }).await;
        Ok(Tensor::of_words(ring, len, words, bound))
    }

    /// Sends a request with everything else that this phase opens.
    pub(crate) async fn exchange(&self, request: Request) -> Words {
        let (ring, len) = (request.ring, request.len);
        self.count(|cost| {
            for party in Party::BOTH.into_iter().filter(|&party| request.sent_by(party)) {
                cost.sent_bytes[party.index()] += packed_bytes(len, ring.bits()) as u64;
                cost.sent_bits[party.index()] += len as u64 * u64::from(ring.bits());
            }
            cost.opened_words += len as u64;
        });
        self.mailbox.open(request).await
    }

    /// x + c for a public c.
    pub fn offset(&self, x: &Wire, constant: i128) -> Result<Wire> {
        let bound = x.bound.plus(&Bound::exactly(constant));
        let public = |index: usize| x.words[index].wrapping_add(constant as u64);
        self.compute::<Opened>(
            "an offset",
            (x.ring, x.len),
            bound,
            public,
            |index| x.words[index],
            |index, _| public(index),
        )
    }

    /// A public constant, which has no mask.
    pub fn constant(&self, ring: Ring, value: i64) -> Result<Wire> {
        let word = value as u64;
        self.compute("a constant", (ring, 1), Bound::exactly(value.into()), |_| word, |_| 0, |_, _| word)
    }

    /// x + c for a public c, of shares.
    pub fn offset_share(&self, x: &Share, constant: i128) -> Result<Share> {
        let bound = x.bound.plus(&Bound::exactly(constant));
        let bound = if x.ring == Ring::BIT { Bound::bit() } else { bound };
        let word = |index: usize| x.words[index];
        let clear = |index| word(index).wrapping_add(constant as u64);
        self.compute::<Unopened>("an offset", (x.ring, x.len), bound, clear, word, |index, party| {
            word(index).wrapping_add(party.once(constant as u64))
        })
    }

    /// x + c in the ring, whatever the integers: the result may be any residue.
    pub(crate) fn offset_in_ring(&self, x: &Wire, constant: i128) -> Result<Wire> {
        let anything = x.clone().with_bound(Bound::unsigned(x.ring));
        let public = |index: usize| anything.words[index].wrapping_add(constant as u64);
        let shape = (x.ring, x.len);
        self.compute(
            "an offset",
            shape,
            anything.bound,
            public,
            |index| x.words[index],
            |index, _| public(index),
        )
    }

    /// The same values under a bound that the crate proves by other means than intervals: what a gate does, or range analysis.
    ///
    /// The only way to attach a bound to a value. In clear every value is checked against it, and one outside is an error.
    pub(crate) fn claim<State>(
        &self,
        gate: &'static str,
        x: Tensor<State>,
        bound: Bound,
    ) -> Result<Tensor<State>> {
        let bound = bound.in_ring(gate, x.ring)?;
        if matches!(self.role, Role::Clear) {
            check(gate, x.ring, &bound, &x.words)?;
        }
        Ok(x.with_bound(bound))
    }

    /// s + x of a share and an opened value.
    pub fn add_wire(&self, share: &Share, x: &Wire) -> Result<Share> {
        self.sum_with_wire(share, x, share.bound.plus(&x.bound))
    }

    /// s + x in the ring, whatever the integers: the result may be any residue.
    pub(crate) fn add_wire_in_ring(&self, share: &Share, x: &Wire) -> Result<Share> {
        self.sum_with_wire(share, x, Bound::unsigned(x.ring))
    }

    fn sum_with_wire(&self, share: &Share, x: &Wire, bound: Bound) -> Result<Share> {
        share.same_shape(x, "a sum")?;
        let sum = |index: usize| share.words[index].wrapping_add(x.words[index]);
        self.compute("a sum", (x.ring, x.len), bound, sum, sum, |index, party| {
            share.words[index].wrapping_add(party.once(x.words[index]))
        })
    }
}

/// The clear evaluator's check of a claimed bound.
fn check(gate: &'static str, ring: Ring, bound: &Bound, words: &[u64]) -> Result<()> {
    match words.iter().position(|&word| bound.decode(ring, word).is_none()) {
        None => Ok(()),
        Some(index) => {
            let (value, lo, hi) = (words[index], bound.lo(), bound.hi());
            Err(Error::BoundViolated { gate, index, value, lo, hi })
        }
    }
}
