//! Key material, asked for by a gate in every role.

use crate::backend::ResidentKeys;
use crate::dpf;
use crate::error::Result;
use crate::key::{point_cost, share_cost};
use crate::lut::Table;
use crate::party::Party;
use crate::prg::Stream;
use crate::ring::Ring;
use crate::tensor::Words;

use super::{Engine, Role};

/// Keys of point functions: where they are evaluated, or the dealer's signs.
pub(crate) struct Points {
    domain: u32,
    count: usize,
    resident: Option<Box<dyn ResidentKeys>>,
    /// The dealer's: party 0's bit at each secret place.
    pub(crate) signs: Words,
}

impl Engine {
    /// Key bytes and derived blocks, as the formulas have them; the streams themselves are compared with these.
    fn count_keys(&self, cost_of: impl Fn(Party) -> (u64, u64)) {
        self.count(|cost| {
            for party in Party::BOTH {
                let (bytes, blocks) = cost_of(party);
                cost.key_bytes[party.index()] += bytes;
                cost.prg_blocks[party.index()] += blocks;
            }
        });
    }

    /// A fresh uniform sharing. The dealer gets its sums, a party its share. No key bytes.
    pub(crate) fn free(&self, len: usize, ring: Ring) -> Words {
        self.count_keys(|_| (0, Stream::blocks_for(len, ring.bits())));
        let words = match &self.role {
            Role::Dealer(section) => section.borrow_mut().free(len, ring.bits()),
            Role::Party(party) => party.keys.borrow_mut().free(len, ring.bits()),
            Role::Clear | Role::Estimate => Words::default(),
        };
        #[cfg(test)]
        let words = crate::testing::weakened(words, ring);
        words
    }

    /// Words that `owner` derives and the other party never learns. No key bytes.
    pub(crate) fn free_for(&self, owner: Party, len: usize, ring: Ring) -> Words {
        self.count_keys(|party| (0, if party == owner { Stream::blocks_for(len, ring.bits()) } else { 0 }));
        match &self.role {
            Role::Dealer(section) => section.borrow_mut().free_for(owner, len, ring.bits()),
            Role::Party(party) if party.party == owner => party.keys.borrow_mut().free(len, ring.bits()),
            _ => Words::default(),
        }
    }

    /// Shares of what the dealer computes. The dealer gets `values` back, a party its share.
    pub(crate) fn deal(&self, len: usize, ring: Ring, values: impl Fn(usize) -> u64) -> Result<Words> {
        self.count_keys(|party| share_cost(party, len, ring.bits()));
        match &self.role {
            Role::Dealer(section) => {
                let values: Words = Words::new((0..len).map(|index| ring.reduce(values(index))).collect());
                section.borrow_mut().share(&values, ring.bits());
                Ok(values)
            }
            Role::Party(party) => party.keys.borrow_mut().share(len, ring.bits()),
            Role::Clear | Role::Estimate => Ok(Words::default()),
        }
    }

    /// Words that the dealer gives to one party alone.
    pub(crate) fn give(
        &self,
        owner: Party,
        len: usize,
        ring: Ring,
        values: impl Fn(usize) -> u64,
    ) -> Result<Words> {
        let bytes = crate::ring::packed_bytes(len, ring.bits()) as u64;
        self.count_keys(|party| (if party == owner { bytes } else { 0 }, 0));
        match &self.role {
            Role::Dealer(section) => {
                let values: Words = Words::new((0..len).map(|index| ring.reduce(values(index))).collect());
                section.borrow_mut().give(owner, &values, ring.bits());
                Ok(values)
            }
            Role::Party(party) if party.party == owner => party.keys.borrow_mut().given(len, ring.bits()),
            _ => Ok(Words::default()),
        }
    }

    /// Keys of point functions at secret places.
    pub(crate) fn points(&self, domain: u32, len: usize, place: impl Fn(usize) -> u64) -> Result<Points> {
        self.count_keys(|party| point_cost(party, domain, len));
        let mut points = Points { domain, count: len, resident: None, signs: Words::default() };
        match &self.role {
            Role::Dealer(section) => {
                let mask = u64::MAX >> (64 - domain);
                let places: Words = Words::new((0..len).map(|index| place(index) & mask).collect());
                points.signs = section.borrow_mut().points(domain, &places);
            }
            Role::Party(party) => {
                let keys = party.keys.borrow_mut().points(domain, len)?;
                points.resident = Some(party.backend.upload(keys)?);
            }
            Role::Clear | Role::Estimate => {}
        }
        Ok(points)
    }

    /// Shares of 1[x < α] for `rows` public points of every key; empty but for a party.
    pub(crate) fn less_than(
        &self,
        keys: &Points,
        rows: usize,
        point: impl Fn(usize, usize) -> u64,
    ) -> Result<Words> {
        let walks = (rows * keys.count) as u64;
        self.count_keys(|_| (0, walks * dpf::walk_blocks(keys.domain)));
        let (Role::Party(party), Some(resident)) = (&self.role, &keys.resident) else {
            return Ok(Words::default());
        };
        let mask = u64::MAX >> (64 - keys.domain);
        let mut points = Vec::with_capacity(rows * keys.count);
        for row in 0..rows {
            points.extend((0..keys.count).map(|key| point(row, key) & mask));
        }
        party.backend.less_than(resident.as_ref(), &points).map(Words::new)
    }

    /// A party's sums Σ_j e_b(j) T(x − j); empty but for a party.
    pub(crate) fn sums(&self, keys: &Points, table: &Table, point: impl Fn(usize) -> u64) -> Result<Words> {
        self.count_keys(|_| (0, keys.count as u64 * dpf::expand_blocks(keys.domain)));
        let (Role::Party(party), Some(resident)) = (&self.role, &keys.resident) else {
            return Ok(Words::default());
        };
        let points: Vec<u64> = (0..keys.count).map(point).collect();
        party.backend.lookup(resident.as_ref(), &points, table).map(Words::new)
    }
}
