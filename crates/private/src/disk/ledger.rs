//! Which keys of a file were used.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::error::{Error, Result};

use super::{HASH, KeyHeader, beside, create_anew, failed, sync_folder_of, unusable};

const MAGIC: [u8; 8] = *b"GWFSSLDG";
/// Version of the file.
const VERSION: u8 = 1;
/// Bytes before the bits: magic, party, version, two zeros, sections, session id.
const FIXED: usize = 48;
/// Names of a ledger, and of one that is being written, behind the key file's.
const SUFFIX: &str = "ledger";
const NEXT_SUFFIX: &str = "ledger.next";

/// A bit for every section of a key file, set before its first byte leaves.
///
/// A ledger only ever moves forwards: what was in use when a process died is used.
#[derive(Clone)]
pub struct Ledger {
    path: PathBuf,
    key: Zeroizing<[u8; 32]>,
    start: [u8; FIXED],
    used: Vec<bool>,
}

impl Ledger {
    pub(crate) fn empty(key_file: &Path, header: &KeyHeader) -> Self {
        let mut start = [0; FIXED];
        start[..8].copy_from_slice(&MAGIC);
        start[8] = header.party.index() as u8;
        start[9] = VERSION;
        start[12..16].copy_from_slice(&(header.sections.len() as u32).to_le_bytes());
        start[16..].copy_from_slice(&header.session);
        let (path, used) = (beside(key_file, SUFFIX), vec![false; header.sections.len()]);
        Self { path, key: header.ledger_key(), start, used }
    }

    /// Writes the ledger of a key file that is new.
    pub(super) fn create(key_file: &Path, header: &KeyHeader) -> Result<()> {
        Self::empty(key_file, header).store()
    }

    /// Where the ledger of a key file lies.
    pub(super) fn path_beside(key_file: &Path) -> PathBuf {
        beside(key_file, SUFFIX)
    }

    /// Reads the ledger of a key file. Without one nobody knows what was used: then the keys are not.
    pub(super) fn open(key_file: &Path, header: &KeyHeader) -> Result<Self> {
        let mut ledger = Self::empty(key_file, header);
        let mut file = File::open(&ledger.path).map_err(failed(&ledger.path, "read"))?;
        let metadata = file.metadata().map_err(failed(&ledger.path, "read"))?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o022 != 0 {
            let what = format!("others may write to it (mode {mode:o}): make it 600");
            return Err(unusable(&ledger.path, what));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed(&ledger.path, "read"))?;
        ledger.used = ledger.parse(&bytes)?;
        Ok(ledger)
    }

    pub(crate) fn parse(&self, bytes: &[u8]) -> Result<Vec<bool>> {
        let sections = self.used.len();
        if bytes.len() != FIXED + sections.div_ceil(8) + HASH {
            return Err(unusable(&self.path, format!("it has {} bytes", bytes.len())));
        }
        let (content, hash) = bytes.split_at(bytes.len() - HASH);
        if content[..8] == MAGIC && content[9] != VERSION {
            let version = content[9];
            let what = format!("it has version {version}, this program reads {VERSION}: have new keys dealt");
            return Err(unusable(&self.path, what));
        }
        if content[..FIXED] != self.start {
            return Err(unusable(&self.path, "it belongs to another key file"));
        }
        if self.hash(content).as_bytes() != hash {
            return Err(unusable(&self.path, "it was altered"));
        }
        unpack(&content[FIXED..], sections)
            .ok_or_else(|| unusable(&self.path, "it marks sections that do not exist"))
    }

    pub(crate) fn hash(&self, content: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.key, content)
    }

    /// The bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.start.to_vec();
        bytes.extend_from_slice(&self.bits());
        let hash = self.hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }

    /// Replaces the file as a whole: first the new one is safe, then its name.
    fn store(&self) -> Result<()> {
        let bytes = self.encode();
        let next = self.path.with_extension(NEXT_SUFFIX);
        let mut file = create_anew(&next)?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed(&next, "write"))?;
        fs::rename(&next, &self.path).map_err(failed(&self.path, "replace"))?;
        sync_folder_of(&self.path)
    }

    /// A bit a section, as the peer is shown them.
    pub(crate) fn bits(&self) -> Vec<u8> {
        let mut bits = vec![0; self.used.len().div_ceil(8)];
        for (index, _) in self.used.iter().enumerate().filter(|(_, used)| **used) {
            bits[index / 8] |= 1 << (index % 8);
        }
        bits
    }

    /// Whether a section was used.
    pub fn is_used(&self, section: usize) -> bool {
        self.used.get(section).copied().unwrap_or(true)
    }

    /// Takes over what the peer's ledger has and this one has not: one of both may be an old copy.
    pub(crate) fn catch_up(&mut self, peer: &[u8]) -> Result<()> {
        let what = || "its ledger is not of the same keys".to_owned();
        let peer = unpack(peer, self.used.len()).ok_or_else(|| Error::Peer { what: what() })?;
        let mut next = self.clone();
        next.used.iter_mut().zip(peer).for_each(|(own, peer)| *own |= peer);
        self.replace(next)
    }

    /// Marks sections as used, all or none. A section that was used before is an error, and so is the set-up,
    /// which has no bit.
    pub(crate) fn burn(&mut self, sections: &[usize]) -> Result<()> {
        let mut next = self.clone();
        for &section in sections {
            let fresh = next.used.get_mut(section).filter(|used| section > 0 && !**used);
            *fresh.ok_or(Error::Reused { section })? = true;
        }
        self.replace(next)
    }

    /// Writes the file anew as it is: what would fail when a section is marked fails now, with nothing used.
    pub(super) fn prove_writable(&self) -> Result<()> {
        self.store()
    }

    fn replace(&mut self, next: Self) -> Result<()> {
        if next.used != self.used {
            next.store()?;
            *self = next;
        }
        Ok(())
    }
}

fn unpack(bits: &[u8], count: usize) -> Option<Vec<bool>> {
    let bit = |index: usize| bits[index / 8] >> (index % 8) & 1 == 1;
    if bits.len() != count.div_ceil(8) || (count..8 * bits.len()).any(bit) {
        return None;
    }
    Some((0..count).map(bit).collect())
}
