//! Whether a record still speaks of the code that is here.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::record::Record;
use crate::registry::Registry;
use crate::workload::Workload;

/// Whether a record still speaks of the code that is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "freshness", rename_all = "kebab-case")]
pub enum Freshness {
    /// Its kernels are the ones that this program was built with.
    Current,
    /// They are not.
    Stale {
        /// What changed.
        why: String,
    },
    /// This program has no workload of that name.
    Unknown,
}

/// Compares the sources of a record's kernels with those of the registry's workload of that name, or for
/// figures of a whole job with those of all workloads.
///
/// Host code leaves no hash in a record: what has no kernels is always current.
pub fn freshness(record: &Record, registry: &Registry) -> Freshness {
    let Ok(workload) = registry.get(&record.workload) else {
        return if record.measured.is_some() { of_job(record, registry) } else { Freshness::Unknown };
    };
    let stale = match (&record.tuning, workload.tunable()) {
        (None, _) => difference(record, workload),
        (Some(tuning), Some(tunable)) if tunable.space().contains(tuning.best()) => {
            difference(record, tunable.configured(tuning.best()).as_ref())
        }
        (Some(_), _) => Some("what was tuned is no longer a configuration of it".to_owned()),
    };
    stale.map_or(Freshness::Current, |why| Freshness::Stale { why })
}

/// The records that still speak for a workload on a device: the newest, and the newest with a benchmark, a
/// search or a profile. What they replaced is history.
pub fn standing(records: &[Record]) -> Vec<&Record> {
    let mut seen = BTreeSet::new();
    let mut standing = Vec::new();
    for record in records.iter().rev() {
        let parts = [true, record.performance.is_some(), record.tuning.is_some(), record.profile.is_some()];
        let mut stands = false;
        for (part, _) in parts.into_iter().enumerate().filter(|(_, has)| *has) {
            stands |= seen.insert((record.workload.as_str(), record.slug(), part));
        }
        if stands {
            standing.push(record);
        }
    }
    standing.reverse();
    standing
}

/// Figures of a whole job, which no workload is called after, are of kernels that some workloads gate.
fn of_job(record: &Record, registry: &Registry) -> Freshness {
    let specs = registry.iter().flat_map(Workload::kernels);
    let known: BTreeSet<String> = specs.filter_map(|spec| spec.source.hash().ok()).collect();
    match record.kernels.iter().find(|kernel| !known.contains(&kernel.source_hash)) {
        Some(kernel) => {
            Freshness::Stale { why: format!("the source of kernel '{}' has changed", kernel.source) }
        }
        None => Freshness::Current,
    }
}

fn difference(record: &Record, workload: &dyn Workload) -> Option<String> {
    let specs = workload.kernels();
    if specs.len() != record.kernels.len() {
        return Some(format!("it had {} kernels and has {}", record.kernels.len(), specs.len()));
    }
    for (spec, recorded) in specs.iter().zip(&record.kernels) {
        if spec.source.hash().ok().as_ref() != Some(&recorded.source_hash) {
            return Some(format!("the source of kernel '{}' has changed", recorded.source));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use gatework_gpu::Device;

    use super::*;
    use crate::record::MeasuredRecord;
    use crate::{Gates, runtime};

    #[test]
    fn figures_of_a_job_are_current_until_one_of_its_kernels_changes() {
        let mut registry = Registry::new();
        registry.add_all(runtime::workloads()).unwrap();
        let measured = MeasuredRecord { origin: "a test".into(), rows: Vec::new() };
        let record = Record::of_figures("gpu/job", None, measured);
        assert_eq!(freshness(&record, &registry), Freshness::Current);
        let sources =
            ["gpu/saxpy", "gpu/reduce"].map(|name| registry.get(name).unwrap().kernels().remove(0).source);
        let mut record = record.of_kernels(&sources).unwrap();
        assert_eq!(freshness(&record, &registry), Freshness::Current);
        record.kernels[1].source_hash = "00".repeat(32);
        assert!(matches!(freshness(&record, &registry), Freshness::Stale { why } if why.contains("'reduce")));
    }

    #[test]
    fn a_record_is_current_until_its_source_changes() {
        let mut registry = Registry::new();
        registry.add_all(runtime::workloads()).unwrap();
        let workload = registry.get("gpu/saxpy").unwrap();
        let mut record = Gates::new(Device::emulated(0).unwrap()).seeds(0..1).gate(workload, &());
        assert_eq!(freshness(&record, &registry), Freshness::Current);
        record.kernels[0].source_hash = "00".repeat(32);
        assert!(matches!(freshness(&record, &registry), Freshness::Stale { why } if why.contains("'saxpy'")));
        record.workload = "gpu/gone".into();
        assert_eq!(freshness(&record, &registry), Freshness::Unknown);
    }
}
