//! One party's keys.

use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::party::Party;
use crate::prg::section_key;
use crate::ring::FixedPoint;
use crate::secret::SharedBytes;

use super::Material;

/// The keys of one job, which a backend reads once.
pub struct KeySection {
    /// In one place, however often the section moves.
    seed: Box<Zeroizing<u128>>,
    public_key: u128,
    length: u64,
    material: Box<dyn Material>,
    /// Sections that are used together with it, and itself.
    beside: usize,
}

impl KeySection {
    /// `length` bytes of material, and what follows from the seed and the section's public key, which is
    /// [`section_key`](crate::section_key) of the deal's.
    pub fn new(seed: u128, public_key: u128, length: u64, material: Box<dyn Material>) -> Self {
        Self { seed: Box::new(Zeroizing::new(seed)), public_key, length, material, beside: 1 }
    }

    /// The seed of the party's own words and of the roots of its trees.
    pub fn seed(&self) -> u128 {
        **self.seed
    }

    /// The seed of the public keys of the section's trees.
    pub fn public_key(&self) -> u128 {
        self.public_key
    }

    /// Bytes of material.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The same as one of so many sections that are used together, and share what may be done ahead.
    pub fn used_beside(self, sections: usize) -> Self {
        Self { beside: sections, ..self }
    }

    /// Sections that are used together, this one among them.
    pub fn beside(&self) -> usize {
        self.beside
    }

    /// Reads all of the material into memory, before any of it is taken.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let all = self.material.take(self.length as usize)?;
        self.material = Box::new(all);
        Ok(())
    }

    /// The next `count` bytes of material, all of which exist.
    pub fn take(&mut self, count: usize) -> Result<SharedBytes> {
        self.material.take(count)
    }

    /// The next bytes of material, as many as there is room for, all of which exist.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.material.read(bytes)
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
    pub fn new(party: Party, format: FixedPoint, public_key: u128, sections: Vec<KeySection>) -> Self {
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
        let section = |(number, (seed, bytes)): (usize, (u128, SharedBytes))| {
            let length = bytes.as_slice().len() as u64;
            KeySection::new(seed, section_key(public_key, number as u64), length, Box::new(bytes))
        };
        let sections = sections.into_iter().enumerate().map(section).collect();
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

    /// The public key of the deal.
    pub fn public_key(&self) -> u128 {
        self.public_key
    }

    /// The same keys once more. Whoever evaluates with both reveals the differences of what went in: for
    /// tests and measurements only, of keys that are in memory.
    pub fn insecure_copy_for_measurements(&self) -> Result<Self> {
        if self.resident.len() != self.sections.len() {
            return Err(Error::Key { what: "it is read from a file, which has it once".into() });
        }
        let seeds = self.sections.iter().map(KeySection::seed);
        let sections = seeds.zip(self.resident.iter().cloned()).collect();
        Ok(Self::in_memory(self.party, self.format, self.public_key, sections))
    }

    /// The keys of each job, for a backend.
    pub fn into_sections(self) -> Vec<KeySection> {
        let count = self.sections.len();
        self.sections.into_iter().map(|section| section.used_beside(count)).collect()
    }
}
