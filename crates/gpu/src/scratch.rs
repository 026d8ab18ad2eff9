//! Folders that compilers and disassemblers write to. They go with the last binary that lies in them, or when
//! the process is told to end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// Attempts to empty a folder to which a compiler writes.
const ATTEMPTS: usize = 100;

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new folder in the temporary one.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> io::Result<Self> {
        // Whoever removes them all waits until this one is noted.
        let mut known = folders();
        let folder = tempfile::Builder::new().prefix("gatework-").tempdir()?;
        known.push(folder.path().to_owned());
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        folders().retain(|known| known != self.0.path());
    }
}

/// Removes the folders that compilers write to at this moment. For a process that is about to end without
/// unwinding, as on Ctrl-C: no destructor would do it. Whoever wants to compile from now on waits for that
/// end.
pub fn remove_scratch_folders() {
    let mut known = folders();
    for folder in known.drain(..) {
        // A compiler that writes to it meanwhile can keep it from going.
        let gone = (0..ATTEMPTS).any(|_| fs::remove_dir_all(&folder).is_ok() || !folder.exists());
        if !gone {
            tracing::warn!("'{}' is left: remove it", folder.display());
        }
    }
    // A folder that is made from now on would be left behind.
    std::mem::forget(known);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        assert!(path.is_dir() && folders().contains(&path));
        drop(scratch);
        assert!(!path.exists() && !folders().contains(&path));
    }
}
