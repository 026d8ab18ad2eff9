//! Using a key file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatework_fss::key::{KeySection, KeyStream, Material};
use gatework_fss::secret::scrubbed;
use gatework_fss::{Party, section_key};
use zeroize::Zeroizing;

use crate::error::{Error, Result};

use super::erase::punch;
use super::section::{Effort, FileSection, Place, Use};
use super::{KeyHeader, Ledger, SEED, failed, stored_bytes, unusable};

/// A key file and its ledger, locked: no other process uses them.
pub struct KeyFile {
    path: Arc<Path>,
    file: Arc<File>,
    header: KeyHeader,
    chunk_key: Arc<Zeroizing<[u8; 32]>>,
    pub(crate) ledger: Ledger,
}

impl KeyFile {
    /// Opens a party's keys. Everything outside is checked: who may read the file, its header, its length and
    /// its ledger.
    pub fn open(path: &Path, party: Party) -> Result<Self> {
        scrubbed(|| Self::open_as(path, party))
    }

    fn open_as(path: &Path, party: Party) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed(path, "open"))?;
        let metadata = file.metadata().map_err(failed(path, "read"))?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(unusable(path, format!("others may read it (mode {mode:o}): make it 600")));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(unusable(path, "another process uses it")),
            Err(TryLockError::Error(error)) => return Err(failed(path, "lock")(error)),
        }
        let header = Self::read_header(&file, path)?;
        if header.party != party {
            return Err(gatework_fss::Error::WrongParty { found: header.party, expected: party }.into());
        }
        if metadata.len() != header.file_bytes() {
            let (found, expected) = (metadata.len(), header.file_bytes());
            return Err(unusable(path, format!("it has {found} bytes, its header says {expected}")));
        }
        let ledger = Ledger::open(path, &header)?;
        let chunk_key = Arc::new(header.chunk_key());
        let keys = Self { path: PathBuf::from(path).into(), file: Arc::new(file), header, chunk_key, ledger };
        keys.erase_used()?;
        Ok(keys)
    }

    /// Reads the header of a key file, without opening the file for use.
    pub fn peek(path: &Path) -> Result<KeyHeader> {
        let file = File::open(path).map_err(failed(path, "open"))?;
        scrubbed(|| Self::read_header(&file, path))
    }

    fn read_header(file: &File, path: &Path) -> Result<KeyHeader> {
        Self::parse_header(file).map_err(|error| match error {
            Error::Key { what } => unusable(path, what),
            other => other,
        })
    }

    fn parse_header(file: &File) -> Result<KeyHeader> {
        let short = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::Key { what: "it is too short for its header".into() },
            _ => Error::Key { what: format!("its header cannot be read: {error}") },
        };
        let mut start = Zeroizing::new(vec![0; KeyHeader::PREFIX]);
        file.read_exact_at(&mut start, 0).map_err(short)?;
        let mut bytes = Zeroizing::new(vec![0; KeyHeader::length(&start)?]);
        file.read_exact_at(&mut bytes, 0).map_err(short)?;
        KeyHeader::parse(&bytes)
    }

    /// The header of the file.
    pub fn header(&self) -> &KeyHeader {
        &self.header
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The ledger: which keys were used.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Inferences of that many tokens that are left, by their sections.
    pub fn unused(&self, tokens: u32) -> impl Iterator<Item = usize> {
        let sections = self.header.sections.iter().enumerate().skip(1);
        let fitting =
            sections.filter(move |(index, section)| section.tokens == tokens && !self.ledger.is_used(*index));
        fitting.map(|(index, _)| index)
    }

    /// Takes over what the peer's ledger has as used.
    pub(crate) fn catch_up(&mut self, peer: &[u8]) -> Result<()> {
        self.ledger.catch_up(peer)?;
        self.erase_used()
    }

    /// Bytes of used sections that are still in the file.
    #[cfg(test)]
    pub(crate) fn used_bytes_left(&self) -> io::Result<usize> {
        let mut left = 0;
        for (index, section) in self.header.sections.iter().enumerate().skip(1) {
            if self.ledger.is_used(index) {
                let mut bytes = vec![0; stored_bytes(section.length) as usize];
                self.file.read_exact_at(&mut bytes, self.header.offset_of(index))?;
                left += bytes.iter().filter(|&&byte| byte != 0).count();
            }
        }
        Ok(left)
    }

    /// Fails if what is used next could not be marked as used.
    pub(crate) fn prove_writable(&self) -> Result<()> {
        self.ledger.prove_writable()
    }

    /// Whether no inference is left: then the masks of the weights are of no use either.
    fn is_exhausted(&self) -> bool {
        let sections = self.header.sections.len();
        sections > 1 && (1..sections).all(|section| self.ledger.is_used(section))
    }

    /// Erases what is used and still there: a process that was killed could not.
    pub(super) fn erase_used(&self) -> Result<()> {
        let exhausted = self.is_exhausted();
        for (index, section) in self.header.sections.iter().enumerate() {
            let of_no_use = if index == 0 { exhausted } else { self.ledger.is_used(index) };
            if of_no_use {
                let (start, length) = (self.header.offset_of(index), stored_bytes(section.length));
                punch(&self.file, start, length).map_err(failed(&self.path, "erase"))?;
            }
        }
        Ok(())
    }

    /// The section that masks the weights, which may be read again.
    pub(crate) fn set_up(&self) -> Result<KeyStream> {
        self.stream(&[0])
    }

    /// Sections for one evaluation. From here on they are used, whatever happens: the ledger says so before
    /// this returns.
    pub(crate) fn spend(&mut self, sections: &[usize]) -> Result<KeyStream> {
        self.ledger.burn(sections)?;
        let stream = self.stream(sections);
        if stream.is_err() {
            self.erase_used()?;
        }
        stream
    }

    fn stream(&self, sections: &[usize]) -> Result<KeyStream> {
        let effort = Effort::of_one_in(sections.len());
        let sections =
            sections.iter().map(|&section| self.section(section, effort)).collect::<Result<_>>()?;
        Ok(KeyStream::new(self.header.party, self.header.format, self.header.public_key, sections))
    }

    fn section(&self, section: usize, effort: Effort) -> Result<KeySection> {
        let length = self.header.sections[section].length;
        let usage = if section > 0 { Use::Once } else { Use::Again };
        let mut material = FileSection::new(self.place(section), usage, effort);
        let seed = material.take(SEED)?;
        let mut bytes = Zeroizing::new([0; SEED]);
        bytes.copy_from_slice(seed.as_slice());
        let public_key = section_key(self.header.public_key, section as u64);
        let seed = u128::from_le_bytes(*bytes);
        Ok(KeySection::new(seed, public_key, length, Box::new(material)))
    }

    pub(super) fn place(&self, section: usize) -> Place {
        Place {
            path: self.path.clone(),
            file: self.file.clone(),
            chunk_key: self.chunk_key.clone(),
            section: section as u32,
            start: self.header.offset_of(section),
            length: self.header.sections[section].length,
        }
    }
}

/// A lock lasts until every descriptor of the file is closed, and a process that is just being started may
/// hold one.
impl Drop for KeyFile {
    fn drop(&mut self) {
        if self.is_exhausted() {
            self.forget_weights();
            if let Err(error) = self.erase_used() {
                tracing::warn!("used keys are left: {error}");
            }
        }
        if let Err(error) = self.file.unlock() {
            tracing::warn!("'{}' stays locked: {error}", self.path.display());
        }
    }
}
