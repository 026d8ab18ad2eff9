//! The four roles in which a circuit runs.

mod ahead;
mod join;
mod keys;
mod mailbox;
mod role;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use crate::backend::{Backend, Words, compute};
use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::formula::{Tape, Word};
use crate::party::Party;
use crate::ring::{Ring, packed_bytes};
use crate::secret::Secret;
use crate::tally::Cost;
use crate::tensor::{Opened, Share, Tensor, Unopened, Wire};

pub(crate) use ahead::{Ask, KeysAhead};
pub use join::{join, join3};
pub(crate) use keys::Points;
pub(crate) use mailbox::{Mailbox, Request};
pub(crate) use role::Role;

/// Evaluates circuits: in clear, as the dealer who makes keys, as a party who uses them, or only counting.
///
/// Every gate is written once for all four, so that they cannot drift apart: each asks for its key material
/// and its opens in one order, and says what a word is in clear, what mask it has, and what share of it a
/// party computes.
pub struct Evaluator {
    pub(crate) role: Role,
    backend: Arc<dyn Backend>,
    pub(crate) mailbox: Mailbox,
    tally: RefCell<Cost>,
    pub(crate) inputs: RefCell<VecDeque<Option<Vec<u64>>>>,
    pub(crate) inputs_taken: Cell<usize>,
    /// Whether words have lengths and no values.
    pub(crate) rehearses: bool,
}

impl Evaluator {
    pub(crate) fn new(role: Role, backend: Arc<dyn Backend>, inputs: Vec<Option<Vec<u64>>>) -> Self {
        Self {
            role,
            backend,
            mailbox: Mailbox::default(),
            tally: RefCell::default(),
            inputs: RefCell::new(inputs.into()),
            inputs_taken: Cell::new(0),
            rehearses: false,
        }
    }

    /// Whether it looks ahead on shapes, beside an evaluator that computes the same: what a circuit tells
    /// others it tells them once.
    pub fn is_scout(&self) -> bool {
        matches!(self.role, Role::Scout(..))
    }

    /// The same on a backend that keeps lengths alone: inputs need not be given.
    pub(crate) fn rehearsing(self) -> Self {
        Self { rehearses: true, ..self }
    }

    /// The costs counted so far.
    pub fn cost(&self) -> Cost {
        *self.tally.borrow()
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Cost)) {
        count(&mut self.tally.borrow_mut());
    }

    /// Words that everybody knows, where this role computes.
    pub fn public(&self, words: Vec<u64>) -> Result<Words> {
        match self.role {
            Role::Estimate | Role::Scout(..) => Ok(Words::absent(words.len())),
            _ => self.host_words(Secret::new(words)),
        }
    }

    /// The same of an array that is asked for again and again.
    pub(crate) fn constants(&self, words: &Arc<[u64]>) -> Result<Words> {
        match self.role {
            Role::Estimate | Role::Scout(..) => Ok(Words::absent(words.len())),
            _ => Ok(Words::new(&self.backend, words.len(), self.backend.constants(words)?)),
        }
    }

    /// Words of the host's, where this role computes.
    pub(crate) fn host_words(&self, words: Secret<u64>) -> Result<Words> {
        Ok(Words::new(&self.backend, words.len(), self.backend.upload(words)?))
    }

    /// `len` words of a formula, in every role that has words.
    pub(crate) fn words(
        &self,
        len: usize,
        ring: Ring,
        word: impl for<'t> FnOnce(&'t Tape) -> Word<'t>,
    ) -> Result<Words> {
        compute(&self.backend, len, ring, word)
    }

    /// A tensor from what its words are in each role, recorded as formulas over the words of its operands.
    ///
    /// This is how a gate is written. Opened operands are x in clear, the mask r for the dealer, and x + r
    /// for a party; of shares, the two parties' words add up to the value under its mask.
    pub fn compute<State>(
        &self,
        gate: &'static str,
        (ring, len): (Ring, usize),
        bound: Bound,
        clear: impl for<'t> FnOnce(&'t Tape) -> Word<'t>,
        mask: impl for<'t> FnOnce(&'t Tape) -> Word<'t>,
        share: impl for<'t> FnOnce(&'t Tape, Party) -> Word<'t>,
    ) -> Result<Tensor<State>> {
        let bound = bound.in_ring(gate, ring)?;
        let words = match &self.role {
            Role::Clear => {
                let words = self.words(len, ring, clear)?;
                check(gate, ring, &bound, &words)?;
                words
            }
            Role::Dealer(_) => self.words(len, ring, mask)?,
            Role::Party(party, _) => self.words(len, ring, |w| share(w, *party))?,
            Role::Estimate | Role::Scout(..) => Words::absent(len),
        };
        Ok(Tensor::new(ring, words, bound))
    }

    /// The same where a word is the same expression of masked values, masks and values: everything linear
    /// without constants.
    pub fn compute_linear(
        &self,
        gate: &'static str,
        (ring, len): (Ring, usize),
        bound: Bound,
        word: impl for<'t> Fn(&'t Tape) -> Word<'t>,
    ) -> Result<Wire> {
        self.compute(gate, (ring, len), bound, &word, &word, |w, _| word(w))
    }

    /// Opens shares: both parties learn the value under its mask. One word of `ring` a party and element.
    pub async fn open(&self, share: Share) -> Result<Wire> {
        let (ring, bound) = (share.ring(), share.bound());
        let words = self.exchange(Request { ring, words: share.into_words(), from: None }).await;
        Ok(Tensor::new(ring, words, bound))
    }

    /// Sends a request with everything else that this phase opens.
    pub(crate) async fn exchange(&self, request: Request) -> Words {
        let (ring, len) = (request.ring, request.words.len());
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
        self.offset_within(x, constant, x.bound().plus(&Bound::exactly(constant)))
    }

    /// x + c in the ring, whatever the integers: the result may be any residue.
    pub fn offset_in_ring(&self, x: &Wire, constant: i128) -> Result<Wire> {
        self.offset_within(x, constant, Bound::unsigned(x.ring()))
    }

    fn offset_within(&self, x: &Wire, constant: i128, bound: Bound) -> Result<Wire> {
        let words = x.words();
        self.compute::<Opened>(
            "an offset",
            (x.ring(), x.len()),
            bound,
            |w| w.read(words) + constant as u64,
            |w| w.read(words),
            |w, _| w.read(words) + constant as u64,
        )
    }

    /// A public constant, which has no mask.
    pub fn constant(&self, ring: Ring, value: i64) -> Result<Wire> {
        let word = value as u64;
        self.compute(
            "a constant",
            (ring, 1),
            Bound::exactly(value.into()),
            |w| w.number(word),
            |w| w.number(0),
            |w, _| w.number(word),
        )
    }

    /// x + c for a public c, of shares.
    pub fn offset_share(&self, x: &Share, constant: i128) -> Result<Share> {
        let bound = x.bound().plus(&Bound::exactly(constant));
        let bound = if x.ring() == Ring::BIT { Bound::bit() } else { bound };
        let words = x.words();
        self.compute::<Unopened>(
            "an offset",
            (x.ring(), x.len()),
            bound,
            |w| w.read(words) + constant as u64,
            |w| w.read(words),
            |w, party| w.read(words) + w.number(constant as u64).once(party),
        )
    }

    /// The same values under a bound that is proved by other means than intervals: what a gate does, or range
    /// analysis.
    ///
    /// The only way to attach a bound to a value. In clear every value is checked against it, and one outside
    /// is an error.
    pub fn claim<State>(&self, gate: &'static str, x: Tensor<State>, bound: Bound) -> Result<Tensor<State>> {
        let bound = bound.in_ring(gate, x.ring())?;
        if matches!(self.role, Role::Clear) {
            check(gate, x.ring(), &bound, x.words())?;
        }
        Ok(x.with_bound(bound))
    }

    /// s + x of a share and an opened value.
    pub fn add_wire(&self, share: &Share, x: &Wire) -> Result<Share> {
        self.sum_with_wire(share, x, share.bound().plus(&x.bound()))
    }

    /// s + x in the ring, whatever the integers: the result may be any residue.
    pub fn add_wire_in_ring(&self, share: &Share, x: &Wire) -> Result<Share> {
        self.sum_with_wire(share, x, Bound::unsigned(x.ring()))
    }

    fn sum_with_wire(&self, share: &Share, x: &Wire, bound: Bound) -> Result<Share> {
        share.same_shape(x, "a sum")?;
        let (share, words) = (share.words(), x.words());
        self.compute(
            "a sum",
            (x.ring(), x.len()),
            bound,
            |w| w.read(share) + w.read(words),
            |w| w.read(share) + w.read(words),
            |w, party| w.read(share) + w.read(words).once(party),
        )
    }
}

/// The clear evaluator's check of a claimed bound.
fn check(gate: &'static str, ring: Ring, bound: &Bound, words: &Words) -> Result<()> {
    let words = words.download()?;
    match words.iter().position(|&word| bound.decode(ring, word).is_none()) {
        None => Ok(()),
        Some(index) => {
            let (value, lo, hi) = (words[index], bound.lo(), bound.hi());
            Err(Error::BoundViolated { gate, index, value, lo, hi })
        }
    }
}
