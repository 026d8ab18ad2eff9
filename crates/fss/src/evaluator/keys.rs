//! Key material, asked for by a gate in every role.

use crate::backend::{Handle, Words};
use crate::dpf;
use crate::error::Result;
use crate::formula::{Tape, Word};
use crate::key::{point_cost, share_cost};
use crate::party::Party;
use crate::prg::Stream;
use crate::ring::{Ring, packed_bytes};
use crate::table::Table;
use crate::tensor::Wire;

use super::{Ask, Evaluator, Role};

/// Keys of point functions at the masks of a wire: where they are evaluated, or the dealer's signs.
pub(crate) struct Points {
    domain: u32,
    count: usize,
    resident: Option<Handle>,
    /// The dealer's: party 0's bit at each secret place.
    pub(crate) signs: Words,
}

impl Evaluator {
    /// Key bytes and derived blocks, as the formulas have them; the streams themselves are compared with
    /// these.
    fn count_keys(&self, cost_of: impl Fn(Party) -> (u64, u64)) {
        self.count(|cost| {
            for party in Party::BOTH {
                let (bytes, blocks) = cost_of(party);
                cost.key_bytes[party.index()] += bytes;
                cost.prg_blocks[party.index()] += blocks;
            }
        });
    }

    /// What both parties ask of their keys, or `owner` alone; only its length for all others.
    fn ask(&self, owner: Option<Party>, len: usize, ask: Ask) -> Result<Words> {
        match &self.role {
            Role::Party(party, keys) if owner.is_none_or(|owner| owner == *party) => {
                return Ok(self.kept(len, keys.borrow_mut().get(ask)?));
            }
            Role::Scout(asks) => asks.borrow_mut().push((owner, ask)),
            _ => {}
        }
        Ok(Words::absent(len))
    }

    pub(crate) fn kept(&self, len: usize, handle: Handle) -> Words {
        Words::new(&self.backend, len, handle)
    }

    /// A fresh uniform sharing. The dealer gets its sums, a party its share. No key bytes.
    pub(crate) fn fresh(&self, len: usize, ring: Ring) -> Result<Words> {
        self.count_keys(|_| (0, Stream::blocks_for(len, ring.bits())));
        match &self.role {
            Role::Dealer(keys) => Ok(self.kept(len, keys.borrow_mut().derived(len, ring)?)),
            _ => self.ask(None, len, Ask::Derived { len, ring }),
        }
    }

    /// Words that `owner` derives and the other party never learns. No key bytes.
    pub(crate) fn fresh_for(&self, owner: Party, len: usize, ring: Ring) -> Result<Words> {
        self.count_keys(|party| (0, if party == owner { Stream::blocks_for(len, ring.bits()) } else { 0 }));
        match &self.role {
            Role::Dealer(keys) => Ok(self.kept(len, keys.borrow_mut().derived_by(owner, len, ring)?)),
            _ => self.ask(Some(owner), len, Ask::DerivedAlone { len, ring }),
        }
    }

    /// Shares of what the dealer computes. The dealer gets the values back, a party its share.
    pub(crate) fn deal(
        &self,
        len: usize,
        ring: Ring,
        value: impl for<'t> FnOnce(&'t Tape) -> Word<'t>,
    ) -> Result<Words> {
        self.count_keys(|party| share_cost(party, len, ring.bits()));
        match &self.role {
            Role::Dealer(keys) => {
                let values = self.words(len, ring, value)?;
                keys.borrow_mut().share(values.present()?, len, ring)?;
                Ok(values)
            }
            _ => self.ask(None, len, Ask::Shares { len, ring }),
        }
    }

    /// The dealer's words, given to one party alone.
    pub(crate) fn give(&self, owner: Party, words: &Words, ring: Ring) -> Result<Words> {
        let len = words.len();
        let bytes = packed_bytes(len, ring.bits()) as u64;
        self.count_keys(|party| (if party == owner { bytes } else { 0 }, 0));
        match &self.role {
            Role::Dealer(keys) => {
                keys.borrow_mut().give(owner, words.present()?, len, ring)?;
                Ok(words.clone())
            }
            _ => self.ask(Some(owner), len, Ask::Given { len, ring }),
        }
    }

    /// Keys of point functions at the masks of a wire, modulo 2^domain.
    pub(crate) fn points(&self, domain: u32, x: &Wire) -> Result<Points> {
        let len = x.len();
        self.count_keys(|party| point_cost(party, domain, len));
        let mut points = Points { domain, count: len, resident: None, signs: Words::absent(len) };
        match &self.role {
            Role::Dealer(keys) => {
                points.signs = self.kept(len, keys.borrow_mut().points(domain, x.words().present()?, len)?);
            }
            _ => points.resident = self.ask(None, len, Ask::Points { domain, len })?.into_handle(),
        }
        Ok(points)
    }

    /// Shares of 1[x̂ + shift < r] modulo the keys' domain, for every public shift in turn; absent but for a
    /// party.
    pub(crate) fn less_than(&self, keys: &Points, x: &Wire, shifts: &[u64]) -> Result<Words> {
        let len = shifts.len() * keys.count;
        self.count_keys(|_| (0, len as u64 * dpf::walk_blocks(keys.domain)));
        match &keys.resident {
            Some(resident) => {
                Ok(self.kept(len, self.backend.less_than(resident, x.words().present()?, shifts)?))
            }
            None => Ok(Words::absent(len)),
        }
    }

    /// A party's sums Σ_j e_b(j) T(x̂ − j); absent but for a party.
    pub(crate) fn unit_sums(&self, keys: &Points, x: &Wire, table: &Table) -> Result<Words> {
        self.count_keys(|_| (0, keys.count as u64 * dpf::expand_blocks(keys.domain)));
        match &keys.resident {
            Some(resident) => {
                Ok(self.kept(keys.count, self.backend.lookup(resident, x.words().present()?, table)?))
            }
            None => Ok(Words::absent(keys.count)),
        }
    }

    /// Σ a b over pairs of matrices, added to `start`, in a ring; only the number of words where there are
    /// none.
    pub(crate) fn matrix_products(
        &self,
        shape: crate::backend::MatmulShape,
        layout: crate::backend::Layout,
        ring: Ring,
        pairs: &[[&Words; 2]],
        start: Option<Words>,
    ) -> Result<Words> {
        let handle = |words: &'_ Words| words.present().cloned();
        let pairs = pairs.iter().map(|[a, b]| Ok([handle(a)?, handle(b)?])).collect::<Result<Vec<_>>>()?;
        let pairs: Vec<[&Handle; 2]> = pairs.iter().map(|[a, b]| [a, b]).collect();
        let start = start.map(|start| start.into_handle().ok_or(crate::error::Error::Absent)).transpose()?;
        Ok(self.kept(shape.product(), self.backend.products(shape, layout, ring, &pairs, start)?))
    }
}
