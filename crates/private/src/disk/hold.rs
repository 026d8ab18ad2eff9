//! Sections that are held in memory before they are used.

use std::thread::{self, JoinHandle};

use gatework_fss::key::{KeySection, KeyStream};
use gatework_fss::secret::{Secret, SharedBytes};
use gatework_fss::section_key;
use rayon::prelude::*;
use zeroize::Zeroizing;

use crate::error::{Error, Result};

use super::{CHUNK, KeyFile, SEED};

/// Bytes of keys that an evaluation was given. They are wiped when this goes, on a thread of their own:
/// gigabytes take a while, and whoever has just got a result should not wait for it.
pub(crate) struct HeldBytes {
    sections: Vec<SharedBytes>,
}

/// Bytes that are being wiped, until this is dropped.
pub(crate) struct Wiping {
    thread: Option<JoinHandle<()>>,
}

impl HeldBytes {
    /// Wipes them, beside whatever comes next.
    pub(crate) fn wipe(self) -> Wiping {
        let sections = self.sections;
        // Without a thread they are wiped here, when the closure goes.
        let thread = thread::Builder::new().name("wipe".into()).spawn(move || drop(sections));
        Wiping { thread: thread.ok() }
    }
}

impl Drop for Wiping {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic there was printed, and who drops this cannot do anything about it.
            let _ = thread.join();
        }
    }
}

impl KeyFile {
    /// Fails if sections are too large for the memory that is available: before any of them is used. `taken`
    /// is what so many bytes of keys take of it.
    pub(crate) fn require_room(&self, sections: &[usize], taken: impl FnOnce(u64) -> u64) -> Result<()> {
        let entries = sections.iter().filter_map(|&section| self.header().sections.get(section));
        let held: u64 = entries.map(|entry| entry.length + SEED as u64).sum();
        let needed = taken(held);
        match available_memory() {
            Some(available) if available < needed => {
                Err(Error::NoRoom { what: "keys that are held", needed, available })
            }
            _ => Ok(()),
        }
    }

    /// Sections for one evaluation, read and verified as a whole. From here on they are used, whatever
    /// happens.
    pub(crate) fn hold(&mut self, sections: &[usize]) -> Result<(KeyStream, HeldBytes)> {
        self.ledger.burn(sections)?;
        let held = self.hold_burnt(sections);
        if held.is_err() {
            // What comes behind the one that failed is used, too.
            self.erase_used()?;
        }
        held
    }

    fn hold_burnt(&self, sections: &[usize]) -> Result<(KeyStream, HeldBytes)> {
        let (mut keys, mut held) = (Vec::with_capacity(sections.len()), Vec::with_capacity(sections.len()));
        for &section in sections {
            let mut bytes = self.load(section)?;
            held.push(bytes.clone());
            let mut seed = Zeroizing::new([0; SEED]);
            seed.copy_from_slice(bytes.take_front(SEED).as_slice());
            let (seed, length) = (u128::from_le_bytes(*seed), self.header().sections[section].length);
            let public_key = section_key(self.header().public_key, section as u64);
            keys.push(KeySection::new(seed, public_key, length, Box::new(bytes)));
        }
        let header = self.header();
        let keys = KeyStream::new(header.party, header.format, header.public_key, keys);
        Ok((keys, HeldBytes { sections: held }))
    }

    /// The seed and the material of a section, which is erased in the file.
    fn load(&self, section: usize) -> Result<SharedBytes> {
        let place = self.place(section);
        let mut bytes = Secret::new(vec![0; place.length as usize + SEED]);
        let chunks = bytes.par_chunks_mut(CHUNK).enumerate();
        let read = chunks.map(|(chunk, bytes)| place.read(chunk as u32, bytes)).collect::<Result<()>>();
        // Used up, whether or not it could be read.
        place.erase()?;
        read?;
        Ok(SharedBytes::new(bytes))
    }
}

/// Bytes that processes can still have, where the system tells.
pub(crate) fn available_memory() -> Option<u64> {
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
