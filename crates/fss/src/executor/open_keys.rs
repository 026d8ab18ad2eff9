//! Keys that a backend has begun to read.

use std::sync::Arc;

use crate::backend::{Backend, PartyKeys};
use crate::error::Result;
use crate::key::KeyStream;
use crate::party::Party;
use crate::prg::Cipher;
use crate::ring::FixedPoint;

/// A party's keys on the backend that is going to evaluate with them.
pub struct OpenKeys {
    pub(super) party: Party,
    pub(super) format: FixedPoint,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) sections: Vec<Box<dyn PartyKeys>>,
    pub(super) tag: u64,
    key_bytes: u64,
}

impl OpenKeys {
    /// Gives keys to a backend, which may read ahead from now on.
    pub fn new(keys: KeyStream, backend: &Arc<dyn Backend>) -> Result<Self> {
        let (party, format, tag, key_bytes) =
            (keys.party(), keys.format(), deal_tag(&keys), keys.key_bytes());
        let sections = keys.into_sections().into_iter().map(|section| backend.party_keys(party, section));
        let sections = sections.collect::<Result<Vec<_>>>()?;
        Ok(Self { party, format, backend: backend.clone(), sections, tag, key_bytes })
    }

    /// Waits until the keys are in memory from where the backend takes them, as far as there is room, and
    /// none is read from a file later.
    pub fn settle(&mut self) -> Result<()> {
        self.sections.iter_mut().try_for_each(|section| section.settle())
    }

    /// Whose they are.
    pub fn party(&self) -> Party {
        self.party
    }

    /// Bytes of key material, without the seeds.
    pub fn key_bytes(&self) -> u64 {
        self.key_bytes
    }
}

/// What both streams of a deal have in common and no other deal has: a constant under its public key, which
/// is fresh for each.
fn deal_tag(keys: &KeyStream) -> u64 {
    let mut block = [0];
    Cipher::new(keys.public_key()).encrypt(&mut block);
    block[0] as u64
}
