//! Gates workloads, and appends each record as soon as it is there.

use std::path::{Path, PathBuf};

use gatework_lab::{Error, Gates, Record, Store, Workload};

use crate::command::ending::Failure;
use crate::command::interrupt::uninterrupted;
use crate::command::progress::Progress;

/// Where records go, or nowhere.
pub(crate) struct Recorder {
    store: Option<Store>,
    /// The file that the last one went to.
    pub(crate) file: Option<PathBuf>,
    /// The first write that failed. The work goes on: its results are printed all the same.
    pub(crate) failure: Option<Error>,
}

impl Recorder {
    /// Opens the folder now, so that one that cannot be written is found before the work.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self, Failure> {
        let store = folder.map(Store::open).transpose()?;
        Ok(Self { store, file: None, failure: None })
    }

    /// Appends a record.
    pub(crate) fn take(&mut self, record: &Record) {
        let Some(store) = &self.store else { return };
        match uninterrupted(|| store.append(record)) {
            Ok(file) => self.file = Some(file),
            Err(error) => self.failure = self.failure.take().or(Some(error)),
        }
    }

    /// Sends workloads through the gates one by one, and records each as soon as it is through.
    pub(crate) fn gate_each(
        &mut self,
        gates: &Gates,
        workloads: Vec<&dyn Workload>,
        progress: &Progress,
    ) -> Vec<Record> {
        let jobs = progress.start(workloads.len());
        jobs.doing("compiling the kernels of all workloads".to_owned());
        gates.prepare(&workloads);
        let mut records = Vec::new();
        for workload in workloads {
            let record = gates.gate(workload, progress);
            self.take(&record);
            records.push(record);
            jobs.done();
        }
        records
    }
}
