//! What the report speaks of: a workload on a device, and the newest record of each of its parts.

use crate::outcome::{Gate, Outcome};
use crate::profile::ProfileRecord;
use crate::record::{BenchRecord, GateRecord, PerformanceRecord, Record, TuningRecord};

/// The gates in their order.
pub(super) const GATES: [Gate; 5] =
    [Gate::Compile, Gate::Resources, Gate::Correctness, Gate::Performance, Gate::Profile];

/// A part of a record, with the record.
pub(super) type Part<'a, T> = Option<(&'a Record, &'a T)>;

/// A workload on a device.
pub(super) struct Subject<'a> {
    pub(super) workload: &'a str,
    pub(super) device: String,
    /// Oldest first.
    records: Vec<&'a Record>,
    pub(super) performance: Part<'a, PerformanceRecord>,
    pub(super) tuning: Part<'a, TuningRecord>,
    pub(super) profile: Part<'a, ProfileRecord>,
}

/// All of them, by workload and then by device.
pub(super) fn subjects(records: &[Record]) -> Vec<Subject<'_>> {
    let mut subjects: Vec<Subject<'_>> = Vec::new();
    for record in records {
        let device = device_of(record);
        let known =
            subjects.iter().position(|found| found.workload == record.workload && found.device == device);
        let place = known.unwrap_or_else(|| {
            subjects.push(Subject {
                workload: &record.workload,
                device,
                records: Vec::new(),
                performance: None,
                tuning: None,
                profile: None,
            });
            subjects.len() - 1
        });
        subjects[place].take(record);
    }
    subjects.sort_by(|left, right| (left.workload, &left.device).cmp(&(right.workload, &right.device)));
    subjects
}

pub(super) fn device_of(record: &Record) -> String {
    record.device.as_ref().map_or_else(|| "no device".to_owned(), |device| device.name.clone())
}

impl<'a> Subject<'a> {
    fn take(&mut self, record: &'a Record) {
        self.records.push(record);
        self.performance = record.performance.as_ref().map(|part| (record, part)).or(self.performance);
        self.tuning = record.tuning.as_ref().map(|part| (record, part)).or(self.tuning);
        self.profile = record.profile.as_ref().map(|part| (record, part)).or(self.profile);
    }

    /// The newest record.
    pub(super) fn latest(&self) -> Option<&'a Record> {
        self.records.last().copied()
    }

    /// What a gate said when it was last asked, a line for each of its targets. A record of a profile alone
    /// says nothing of the performance before it.
    pub(super) fn said_by(&self, gate: Gate) -> Vec<&'a GateRecord> {
        let lines = |record: &&'a Record| -> Vec<&'a GateRecord> {
            record.gates.iter().filter(|found| found.gate == gate).collect()
        };
        self.records.iter().rev().map(lines).find(|lines| !lines.is_empty()).unwrap_or_default()
    }

    /// Failed if a gate did when it was last asked, else what the newest record says.
    pub(super) fn verdict(&self) -> Option<Outcome> {
        let failed =
            GATES.iter().flat_map(|&gate| self.said_by(gate)).find(|found| found.outcome.is_failed());
        failed
            .map(|found| found.outcome.clone())
            .or_else(|| self.latest().map(|record| record.verdict.clone()))
    }

    pub(super) fn benches(&self) -> impl Iterator<Item = &'a BenchRecord> {
        self.performance.into_iter().flat_map(|(_, performance)| &performance.cases)
    }
}
