//! Key files, and the ledgers that remember what of them was used.
//!
//! ```text
//! offset  bytes
//!      0      8   magic "GWFSSKEY"
//!      8      2   version
//!     10      2   generator id
//!     12      1   party
//!     13      1   n: bits of the ring
//!     14      1   f: fractional bits
//!     15      1   zero
//!     16     32   session id, the same in both parties' files and in no others
//!     48     32   hash of the model's public description
//!     80     32   hash of its weights
//!    112     16   public AES key of the deal, from which those of all trees are derived
//!    128     32   pairing secret, the same in both parties' files
//!    160      4   s, the number of sections
//!    164    12 s  for each section: tokens (4), bytes of key material (8)
//!   then     32   BLAKE3 of all that
//! ```
//!
//! The sections follow. A section is a seed of 16 bytes and its key material, in chunks of 2^20 bytes of
//! which only the last is shorter. Behind each chunk stands its BLAKE3 hash, under a key that is derived from
//! the header, of section, place and bytes: a chunk that was altered, moved or taken from another file is not
//! read. All numbers are little-endian.
//!
//! Section 0 masks the weights and may be read again. Every other one is one inference: once it has been read
//! its bytes are punched out of the file, seed included.

mod erase;
mod header;
mod hold;
mod kept;
mod ledger;
mod read;
mod section;
mod space;
#[cfg(test)]
mod tests;
mod write;

pub use header::{KeyHeader, SectionEntry};
pub(crate) use hold::{HeldBytes, Wiping};
pub(crate) use kept::Keeping;
#[cfg(feature = "fuzzing")]
pub(crate) use kept::{kept_bytes, messages};
pub use ledger::Ledger;
pub use read::KeyFile;
pub(crate) use space::require_space;
pub(crate) use write::KeyFileWriter;
pub use write::partial_path;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bytes of a chunk, and of the hash behind it.
const CHUNK: usize = 1 << 20;
const HASH: usize = blake3::OUT_LEN;
/// Bytes of a section's seed.
const SEED: usize = 16;

/// Bytes that a section of `length` bytes of key material takes in a file.
fn stored_bytes(length: u64) -> u64 {
    let bytes = length + SEED as u64;
    bytes + bytes.div_ceil(CHUNK as u64) * HASH as u64
}

/// Bytes of a key file beside its key material: the header, the seeds and the hashes.
pub fn overhead_bytes(sections: impl ExactSizeIterator<Item = u64>) -> u64 {
    let header = header::bytes_of(sections.len()) as u64;
    header + sections.map(|length| stored_bytes(length) - length).sum::<u64>()
}

/// The hash behind a chunk.
fn chunk_hash(key: &[u8; 32], section: u32, chunk: u32, bytes: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&section.to_le_bytes()).update(&chunk.to_le_bytes()).update(bytes);
    hasher.finalize()
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, doing, source }
}

fn unusable(path: &Path, what: impl Into<String>) -> Error {
    Error::KeyFile { path: path.to_owned(), what: what.into() }
}

/// A file that only its owner may use, in the place of whatever was there: never through a link, and never
/// with an older file's mode.
fn create_anew(path: &Path) -> Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(path, "replace")(error)),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map_err(failed(path, "write"))
}

/// A chunk whose hash is not the one behind it.
fn altered(path: &Path, section: u32, chunk: u32) -> Error {
    unusable(path, format!("section {section} was altered or used up in chunk {chunk}"))
}

/// The name of a file with more behind it.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// The folder that a file lies in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes a new, renamed or removed name last.
fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = folder_of(path);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder, "sync"))
}
