//! Masked weights that a client keeps beside its key file, for the next session of the same deal.
//!
//! ```text
//! bytes
//!     8   magic "GWFSSWTS"
//!     8   m, the number of messages
//!         for each message: its length (8), its bytes
//!    32   BLAKE3 of all that, under a key that follows from the header of the key file
//! ```

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use crate::error::Result;

use super::{HASH, KeyFile, beside, create_anew, failed, unusable};

const MAGIC: [u8; 8] = *b"GWFSSWTS";
const SUFFIX: &str = "weights";
const NEXT_SUFFIX: &str = "weights.next";

impl KeyFile {
    fn weights_path(&self) -> PathBuf {
        beside(self.path(), SUFFIX)
    }

    fn weights_hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.header().weights_key())
    }

    /// The messages with the masked weights of this deal, if they were kept. What is damaged, or others may
    /// write to, is not used.
    pub(crate) fn kept_weights(&self) -> Option<Vec<Vec<u8>>> {
        let path = self.weights_path();
        match self.read_weights(&path) {
            Ok(messages) => messages,
            Err(error) => {
                tracing::warn!("{error}: the weights are fetched again");
                None
            }
        }
    }

    fn read_weights(&self, path: &Path) -> Result<Option<Vec<Vec<u8>>>> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(path, "read")(error)),
        };
        let mode = file.metadata().map_err(failed(path, "read"))?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(unusable(path, format!("others may use it (mode {mode:o})")));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed(path, "read"))?;
        let damaged = || unusable(path, "it is damaged, or of another deal");
        let (content, hash) = bytes.split_last_chunk::<HASH>().ok_or_else(damaged)?;
        // In constant time, as `blake3::Hash` compares.
        if self.weights_hasher().update(content).finalize() != *hash {
            return Err(damaged());
        }
        messages(content).map(Some).ok_or_else(damaged)
    }

    /// Keeps the messages with the masked weights, beside whatever comes next: gigabytes take a while to
    /// write. A disk that has no room for them is no reason to stop.
    pub(crate) fn keep_weights(&self, messages: Vec<Vec<u8>>) -> Keeping {
        let (path, hasher) = (self.path().to_owned(), self.weights_hasher());
        let write = move || {
            if let Err(error) = write_weights(&path, hasher, &messages) {
                tracing::warn!("{error}: the weights are fetched again next time");
                forget_weights_of(&path);
            }
        };
        // Without a thread they are not kept, and fetched again next time.
        Keeping { thread: thread::Builder::new().name("weights".into()).spawn(write).ok() }
    }

    /// Removes what was kept, if anything was.
    pub(crate) fn forget_weights(&self) {
        forget_weights_of(self.path());
    }
}

/// Weights that are being written, until this is dropped.
pub(crate) struct Keeping {
    thread: Option<JoinHandle<()>>,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic there was printed, and who drops this cannot do anything about it.
            let _ = thread.join();
        }
    }
}

fn write_weights(key_file: &Path, mut hasher: blake3::Hasher, messages: &[Vec<u8>]) -> Result<()> {
    let next = beside(key_file, NEXT_SUFFIX);
    let mut file = create_anew(&next)?;
    let mut write = |bytes: &[u8]| {
        hasher.update(bytes);
        file.write_all(bytes).map_err(failed(&next, "write"))
    };
    write(&MAGIC)?;
    write(&(messages.len() as u64).to_le_bytes())?;
    for message in messages {
        write(&(message.len() as u64).to_le_bytes())?;
        write(message)?;
    }
    let hash = hasher.finalize();
    file.write_all(hash.as_bytes()).map_err(failed(&next, "write"))?;
    let path = beside(key_file, SUFFIX);
    fs::rename(&next, &path).map_err(failed(&path, "replace"))
}

fn forget_weights_of(key_file: &Path) {
    for suffix in [SUFFIX, NEXT_SUFFIX] {
        let path = beside(key_file, suffix);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("masked weights are left in '{}': {error}", path.display());
            }
            _ => {}
        }
    }
}

/// What [`write_weights`] writes before the hash.
#[cfg(feature = "fuzzing")]
pub(crate) fn kept_bytes(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [MAGIC, (messages.len() as u64).to_le_bytes()].concat();
    for message in messages {
        bytes.extend_from_slice(&(message.len() as u64).to_le_bytes());
        bytes.extend_from_slice(message);
    }
    bytes
}

/// The messages of a file whose hash is right.
pub(crate) fn messages(content: &[u8]) -> Option<Vec<Vec<u8>>> {
    let rest = content.strip_prefix(&MAGIC)?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let mut messages = Vec::new();
    for _ in 0..u64::from_le_bytes(*count) {
        let (length, behind) = rest.split_first_chunk()?;
        let (message, behind) = behind.split_at_checked(u64::from_le_bytes(*length).try_into().ok()?)?;
        messages.push(message.to_vec());
        rest = behind;
    }
    rest.is_empty().then_some(messages)
}
