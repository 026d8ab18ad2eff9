//! Folders that compilers write to. They go with the last binary that lies in them, or when the process is
//! told to end.

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
    remove_files_of_nvrtc();
    // A folder that is made from now on would be left behind.
    std::mem::forget(known);
}

/// NVRTC keeps files of its own while it compiles, which are named after the process and lie where all
/// temporary files do.
fn remove_files_of_nvrtc() {
    let prefix = format!("tmpxft_{:08x}_", std::process::id());
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let path = entry.path();
            // It may be gone by now: NVRTC removes it, too.
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
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

    #[test]
    fn files_of_nvrtc_go_and_those_of_other_processes_stay() {
        let id = std::process::id();
        let folder = std::env::temp_dir();
        let own = folder.join(format!("tmpxft_{id:08x}_test"));
        let others = folder.join(format!("tmpxft_{:08x}_test", u32::MAX - id));
        fs::create_dir(&own).unwrap();
        fs::write(own.join("inside"), "").unwrap();
        fs::write(&others, "").unwrap();
        remove_files_of_nvrtc();
        let stayed = others.exists();
        fs::remove_file(&others).unwrap();
        assert!(stayed && !own.exists());
    }
}
