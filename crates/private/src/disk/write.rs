//! Writing a key file, section by section.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use gatework_fss::key::KeySink;
use gatework_fss::secret::Secret;
use rayon::prelude::*;
use zeroize::Zeroizing;

use crate::error::Result;

use super::{CHUNK, KeyHeader, Ledger, SEED, chunk_hash, failed, sync_folder_of, unusable};

/// Behind the name of a file that is not complete.
const PARTIAL_SUFFIX: &str = "partial";

/// Where a key file lies until it is complete: what a program that is interrupted while it deals must remove.
pub fn partial_path(path: &Path) -> PathBuf {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".");
    partial.push(PARTIAL_SUFFIX);
    partial.into()
}

/// A key file under construction, which has its name only when it is complete.
pub(crate) struct KeyFileWriter {
    path: PathBuf,
    partial: PathBuf,
    file: File,
    header: KeyHeader,
    chunk_key: Zeroizing<[u8; 32]>,
    /// The section that is being written, the chunk, and the chunk's bytes so far.
    section: u32,
    chunk: u32,
    pending: Secret<u8>,
    /// Bytes of material in this section so far.
    written: u64,
    finished: bool,
}

impl KeyFileWriter {
    /// A new file, which must not exist: keys are never overwritten.
    pub(crate) fn create(path: &Path, header: KeyHeader) -> Result<Self> {
        for taken in [path.to_owned(), Ledger::path_beside(path)] {
            if taken.exists() {
                return Err(unusable(&taken, "it exists already: choose another name, or remove it first"));
            }
        }
        let partial = partial_path(path);
        let mut options = OpenOptions::new();
        // Never through what somebody else put there.
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&partial).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                unusable(&partial, "another deal writes it, or was killed: remove it then")
            }
            _ => failed(&partial, "create")(error),
        })?;
        file.write_all(&header.encode()).map_err(failed(&partial, "write"))?;
        Ok(Self {
            path: path.to_owned(),
            partial,
            file,
            chunk_key: header.chunk_key(),
            header,
            section: 0,
            chunk: 0,
            pending: Secret::with_capacity(CHUNK),
            written: 0,
            finished: false,
        })
    }

    /// Begins the next section.
    pub(crate) fn begin(&mut self, seed: u128) -> Result<()> {
        debug_assert_eq!(SEED, size_of_val(&seed));
        self.append(&seed.to_le_bytes())
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        if !self.pending.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK - self.pending.len()));
            self.pending.extend_from_slice(now);
            bytes = later;
            if self.pending.len() < CHUNK {
                return Ok(());
            }
        }
        // What fills chunks need not be copied first.
        let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % CHUNK);
        self.store(whole)?;
        self.pending.extend_from_slice(rest);
        Ok(())
    }

    /// Writes what is pending as a chunk, if anything is, and the chunks that follow. All cores hash; a file
    /// has one writer at a time.
    fn store(&mut self, whole: &[u8]) -> Result<()> {
        let pending = Some(self.pending.as_slice()).filter(|pending| !pending.is_empty());
        let chunks: Vec<&[u8]> = pending.into_iter().chain(whole.chunks(CHUNK)).collect();
        if chunks.is_empty() {
            return Ok(());
        }
        let hash = |(index, bytes): (usize, &&[u8])| {
            chunk_hash(&self.chunk_key, self.section, self.chunk + index as u32, bytes)
        };
        let hashes: Vec<blake3::Hash> = chunks.par_iter().enumerate().map(hash).collect();
        for (bytes, hash) in chunks.iter().zip(&hashes) {
            let written = self.file.write_all(bytes).and_then(|()| self.file.write_all(hash.as_bytes()));
            written.map_err(failed(&self.partial, "write"))?;
        }
        self.pending.wipe();
        self.chunk += hashes.len() as u32;
        Ok(())
    }

    /// Ends the section, which must be as long as the header says.
    pub(crate) fn end(&mut self) -> Result<()> {
        let planned = self.header.sections.get(self.section as usize).map(|section| section.length);
        if planned != Some(self.written) {
            let what = format!("section {} became {} bytes long", self.section, self.written);
            return Err(unusable(&self.partial, what));
        }
        self.store(&[])?;
        (self.section, self.chunk, self.written) = (self.section + 1, 0, 0);
        Ok(())
    }

    /// Gives the file its name once it is safe, with its ledger beside it.
    pub(crate) fn finish(mut self) -> Result<()> {
        if self.section as usize != self.header.sections.len() {
            return Err(unusable(&self.partial, "sections are missing"));
        }
        self.file.sync_all().map_err(failed(&self.partial, "write"))?;
        Ledger::create(&self.path, &self.header)?;
        fs::rename(&self.partial, &self.path).map_err(failed(&self.path, "name"))?;
        self.finished = true;
        sync_folder_of(&self.path)
    }
}

impl KeySink for KeyFileWriter {
    fn write(&mut self, bytes: &[u8]) -> gatework_fss::Result<()> {
        self.written += bytes.len() as u64;
        Ok(self.append(bytes)?)
    }
}

impl Drop for KeyFileWriter {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        match fs::remove_file(&self.partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("'{}' is left behind: {error}", self.partial.display());
            }
            _ => {}
        }
    }
}
