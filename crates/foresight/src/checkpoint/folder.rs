//! The folder of a run: a lock, and checkpoints by step.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::file::{RUNS, read, write};
use crate::error::{Error, Result};

/// The folder of a run, which this process alone trains in for as long as it holds this.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// The system lets go of it when the process ends, however it ends.
    _lock: File,
}

/// Which checkpoints stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept<'a> {
    /// So many of the newest.
    pub newest: usize,
    /// Those of these steps.
    pub best: &'a [u64],
}

const EXTENSION: &str = "checkpoint";

impl RunFolder {
    /// Opens the folder, or makes it.
    pub fn open(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(Error::writing(path))?;
        let name = path.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&name);
        let lock = lock.map_err(Error::writing(&name))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Error::Locked { folder: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(Error::writing(&name)(source)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The checkpoint of a step.
    pub fn checkpoint(&self, step: u64) -> PathBuf {
        self.path.join(format!("step-{step:010}.{EXTENSION}"))
    }

    /// The steps of all checkpoints, the newest first.
    pub fn steps(&self) -> Result<Vec<u64>> {
        let mut steps = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(Error::reading(&self.path))? {
            let path = entry.map_err(Error::reading(&self.path))?.path();
            let step = path.file_name().and_then(|name| name.to_str()).and_then(|name| {
                name.strip_prefix("step-")?.strip_suffix(".checkpoint")?.parse::<u64>().ok()
            });
            steps.extend(step);
        }
        steps.sort_unstable_by(|a: &u64, b| b.cmp(a));
        Ok(steps)
    }

    /// Writes the checkpoint of a step, and then removes those that need not stay: among them those of later
    /// steps, which were undone, or could not be read.
    pub fn save(&self, step: u64, fingerprint: &str, payload: &impl Serialize, kept: Kept<'_>) -> Result<()> {
        write(&self.checkpoint(step), &RUNS, fingerprint, payload)?;
        let (later, earlier): (Vec<u64>, Vec<u64>) = self.steps()?.into_iter().partition(|&old| old > step);
        for old in earlier.into_iter().skip(kept.newest.max(1)).chain(later) {
            if !kept.best.contains(&old) {
                let path = self.checkpoint(old);
                fs::remove_file(&path).map_err(Error::writing(&path))?;
            }
        }
        Ok(())
    }

    /// The newest checkpoint that is whole, with its step; what is wrong with newer ones goes to `refused`.
    pub fn newest<P: DeserializeOwned>(
        &self,
        fingerprint: &str,
        mut refused: impl FnMut(&Error),
    ) -> Result<Option<(u64, P)>> {
        for step in self.steps()? {
            match read(&self.checkpoint(step), &RUNS, fingerprint) {
                Ok(payload) => return Ok(Some((step, payload))),
                Err(error) => refused(&error),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkpoint_that_was_just_written_stays_after_a_rollback_too() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(folder.path()).unwrap();
        for step in [10u64, 20, 30] {
            run.save(step, "net", &step, Kept { newest: 2, best: &[10] }).unwrap();
        }
        run.save(15, "net", &15u64, Kept { newest: 2, best: &[10] }).unwrap();
        assert_eq!(run.steps().unwrap(), [15, 10]);
        assert_eq!(run.newest::<u64>("net", |_| ()).unwrap(), Some((15, 15)));
    }

    #[test]
    fn a_broken_checkpoint_is_refused_and_the_one_before_it_used() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(folder.path()).unwrap();
        let kept = Kept { newest: 3, best: &[] };
        for step in [10, 20, 30] {
            run.save(step, "net", &step, kept).unwrap();
        }
        let bytes = fs::read(run.checkpoint(30)).unwrap();
        fs::write(run.checkpoint(30), &bytes[..bytes.len() - 1]).unwrap();
        let mut refused = Vec::new();
        let (step, payload): (u64, u64) =
            run.newest("net", |error| refused.push(error.to_string())).unwrap().unwrap();
        assert_eq!((step, payload), (20, 20));
        assert!(refused.len() == 1 && refused[0].contains("cut short"), "{refused:?}");
    }

    #[test]
    fn the_newest_and_the_best_stay() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(folder.path()).unwrap();
        for step in 1..=6 {
            run.save(step, "net", &step, Kept { newest: 2, best: &[1, 3] }).unwrap();
        }
        assert_eq!(run.steps().unwrap(), [6, 5, 3, 1]);
    }

    #[test]
    fn a_folder_in_use_is_refused_until_it_is_let_go_of() {
        let folder = tempfile::tempdir().unwrap();
        let first = RunFolder::open(folder.path()).unwrap();
        let said = RunFolder::open(folder.path()).unwrap_err().to_string();
        assert!(said.contains("another process trains in this folder"), "{said}");
        drop(first);
        RunFolder::open(folder.path()).unwrap();
    }
}
