//! One party's keys.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::party::Party;
use crate::prg::TreeHash;
use crate::ring::Ring;
use crate::secret::Secret;

use super::{Material, ReadSection};

/// The number format of a model: n-bit words with f fractional bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedPoint {
    /// Z_2^n.
    pub ring: Ring,
    /// f.
    pub fraction: u32,
}

impl FixedPoint {
    /// `bits`-bit words of which `fraction` are behind the point.
    pub fn new(bits: u32, fraction: u32) -> Result<Self> {
        let ring = Ring::new(bits)?;
        if fraction >= bits {
            let what = format!("{fraction} fractional bits in a ring of {bits}");
            return Err(Error::Unsupported { gate: "number format", what });
        }
        Ok(Self { ring, fraction })
    }
}

/// A part of some key material, which stays where it is: gates read their correction words from it.
#[derive(Clone)]
pub(crate) struct SharedBytes {
    bytes: Arc<Secret<u8>>,
    range: Range<usize>,
}

impl SharedBytes {
    pub(crate) fn new(bytes: Secret<u8>) -> Self {
        Self { range: 0..bytes.len(), bytes: Arc::new(bytes) }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }

    /// `count` bytes from `start` on, all of which exist.
    pub(crate) fn part(&self, start: usize, count: usize) -> Self {
        let start = self.range.start + start;
        debug_assert!(start + count <= self.range.end);
        Self { bytes: self.bytes.clone(), range: start..start + count }
    }
}

/// Material that is all in memory: what is taken is what is left of it.
impl Material for SharedBytes {
    fn take(&mut self, count: usize) -> Result<SharedBytes> {
        let taken = self.part(0, count);
        self.range.start += count;
        Ok(taken)
    }
}

/// The keys of one job.
pub(crate) struct KeySection {
    pub(crate) seed: u128,
    /// Bytes of material.
    pub(crate) length: u64,
    pub(crate) material: Box<dyn Material>,
}

impl KeySection {
    /// For the party that evaluates it, once.
    pub(crate) fn read(mut self, party: Party) -> ReadSection {
        let nothing = Box::new(SharedBytes::new(Secret::default()));
        let material = std::mem::replace(&mut self.material, nothing);
        ReadSection::new(party, self.seed, self.length, material)
    }
}

impl Drop for KeySection {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.seed);
    }
}

/// One party's keys for some jobs: secret, wiped when they go, and good for one evaluation, which takes them.
pub struct KeyStream {
    party: Party,
    format: FixedPoint,
    public_key: u128,
    sections: Vec<KeySection>,
    /// The same material, where all of it is in memory.
    resident: Vec<SharedBytes>,
}

impl KeyStream {
    /// Keys that are read while they are used.
    pub(crate) fn new(party: Party, format: FixedPoint, public_key: u128, sections: Vec<KeySection>) -> Self {
        Self { party, format, public_key, sections, resident: Vec::new() }
    }

    /// Keys that are all in memory.
    pub(crate) fn in_memory(
        party: Party,
        format: FixedPoint,
        public_key: u128,
        sections: Vec<(u128, SharedBytes)>,
    ) -> Self {
        let resident = sections.iter().map(|(_, bytes)| bytes.clone()).collect();
        let section = |(seed, bytes): (u128, SharedBytes)| {
            let length = bytes.as_slice().len() as u64;
            KeySection { seed, length, material: Box::new(bytes) }
        };
        let sections = sections.into_iter().map(section).collect();
        Self { party, format, public_key, sections, resident }
    }

    /// Whose they are.
    pub fn party(&self) -> Party {
        self.party
    }

    /// The number format that they were dealt for.
    pub fn format(&self) -> FixedPoint {
        self.format
    }

    /// Jobs.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    /// Bytes of key material, without the seeds.
    pub fn key_bytes(&self) -> u64 {
        self.sections.iter().map(|section| section.length).sum()
    }

    /// The hash of its trees, for a backend.
    pub fn tree_hash(&self) -> TreeHash {
        TreeHash::new(self.public_key)
    }

    /// The same keys once more. Whoever evaluates with both reveals the differences of what went in: for tests and measurements
    /// only, of keys that are in memory.
    pub fn insecure_copy_for_measurements(&self) -> Result<Self> {
        if self.resident.len() != self.sections.len() {
            return Err(Error::Key { what: "it is read from a file, which has it once".into() });
        }
        let seeds = self.sections.iter().map(|section| section.seed);
        let sections = seeds.zip(self.resident.iter().cloned()).collect();
        Ok(Self::in_memory(self.party, self.format, self.public_key, sections))
    }

    pub(crate) fn into_sections(self) -> Vec<KeySection> {
        self.sections
    }

    /// All that the party holds: the public key, and each section's seed and material.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.public_key.to_le_bytes().to_vec();
        for (section, material) in self.sections.iter().zip(&self.resident) {
            bytes.extend_from_slice(&section.seed.to_le_bytes());
            bytes.extend_from_slice(material.as_slice());
        }
        bytes
    }
}
