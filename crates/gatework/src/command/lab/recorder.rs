//! Appends each record as soon as it is there.

use std::path::{Path, PathBuf};

use gatework_lab::{Error, Record, Store};

use crate::command::ending::Failure;
use crate::command::interrupt::uninterrupted;

/// Where records go, or nowhere.
pub(in crate::command) struct Recorder {
    store: Option<Store>,
    /// The file that the last one went to.
    pub(in crate::command) file: Option<PathBuf>,
    /// The first write that failed. The work goes on: its results are printed all the same.
    pub(in crate::command) failure: Option<Error>,
}

impl Recorder {
    /// Opens the folder now, so that one that cannot be written is found before the work.
    pub(in crate::command) fn open(folder: Option<&Path>) -> Result<Self, Failure> {
        let store = folder.map(Store::open).transpose()?;
        Ok(Self { store, file: None, failure: None })
    }

    pub(in crate::command) fn take(&mut self, record: &Record) {
        let Some(store) = &self.store else { return };
        match uninterrupted(|| store.append(record)) {
            Ok(file) => self.file = Some(file),
            Err(error) => self.failure = self.failure.take().or(Some(error)),
        }
    }
}
