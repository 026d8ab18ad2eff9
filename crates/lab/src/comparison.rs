//! Two sets of records, workload by workload and case by case: faster, the same, slower, or no telling.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::{BenchRecord, Record};
use crate::stats::{BETWEEN_RUNS, CONFIDENCE, Interval, Verdict, ratio_of_medians};

/// Whether times or ratios to a baseline are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Times: both ran on the same kind of device.
    Time,
    /// Ratios to the baseline that each run measured beside: the devices differ, and times of different
    /// devices say nothing about the code.
    RatioToBaseline,
}

/// All of a comparison.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Comparison {
    /// Cases that both sides measured.
    pub cases: Vec<CaseComparison>,
    /// Cases that only the second side has or that cannot be compared, each as a sentence.
    pub left_out: Vec<String>,
    /// Benchmarks of the first side that the second has not: what is no longer measured may have become
    /// anything.
    pub vanished: Vec<String>,
}

/// One case of one workload.
#[derive(Debug, Clone, Serialize)]
pub struct CaseComparison {
    /// The workload's name.
    pub workload: String,
    /// The case's name.
    pub case: String,
    /// The device of the second side, and of the first if that is another.
    pub devices: String,
    /// Whether times or ratios to a baseline are compared.
    pub basis: Basis,
    /// Second over first.
    pub ratio: Option<Interval>,
    /// Whether the second side is faster, the same or slower.
    pub verdict: Verdict,
}

impl Comparison {
    /// Whether anything became slower.
    pub fn has_slower(&self) -> bool {
        self.cases.iter().any(|case| case.verdict == Verdict::Slower)
    }

    /// Whether nothing became slower and nothing vanished.
    pub fn is_sound(&self) -> bool {
        !self.has_slower() && self.vanished.is_empty()
    }
}

/// Compares the newest benchmarks of `second` with the newest of `first`.
///
/// Differences up to 3 % do not count: two processes differ by as much without any change to the code.
pub fn compare(first: &[Record], second: &[Record]) -> Comparison {
    let (first, second) = (newest(first), newest(second));
    let mut comparison = Comparison::default();
    for (key, found) in &second {
        match counterpart(&first, key) {
            Some((other, earlier)) => comparison.add(key, found, other, earlier),
            None => comparison.left_out.push(format!("{key} is in the second only")),
        }
    }
    for key in first.keys().filter(|key| counterpart(&second, key).is_none()) {
        comparison.vanished.push(format!("{key} is in the first only"));
    }
    comparison
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    workload: String,
    case: String,
    device: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} on {}", self.workload, self.case, self.device)
    }
}

/// The last benchmark of each workload, case and device. Records are appended, so that the last is the
/// newest.
fn newest(records: &[Record]) -> BTreeMap<Key, &BenchRecord> {
    let mut found = BTreeMap::new();
    for record in records {
        let device = record.device.as_ref().map_or("no device", |device| &device.name);
        for bench in record.performance.iter().flat_map(|performance| &performance.cases) {
            let key =
                Key { workload: record.workload.clone(), case: bench.case.clone(), device: device.into() };
            found.insert(key, bench);
        }
    }
    found
}

/// The same case on the same device, else on another one.
fn counterpart<'a>(
    benches: &'a BTreeMap<Key, &'a BenchRecord>,
    key: &Key,
) -> Option<(&'a Key, &'a BenchRecord)> {
    let same_device = benches.get_key_value(key);
    let any_device =
        || benches.iter().find(|(other, _)| other.workload == key.workload && other.case == key.case);
    same_device.or_else(any_device).map(|(key, bench)| (key, *bench))
}

impl Comparison {
    fn add(&mut self, key: &Key, second: &BenchRecord, other: &Key, first: &BenchRecord) {
        if let Some(difference) = incomparable(first, second) {
            self.left_out.push(format!("{key} cannot be compared: {difference}"));
            return;
        }
        let same_device = key.device == other.device;
        let basis = if same_device { Basis::Time } else { Basis::RatioToBaseline };
        let ratio = match basis {
            Basis::Time => ratio_of_medians(times(first), times(second), CONFIDENCE),
            Basis::RatioToBaseline => {
                ratio_of_medians(&ratios_to_baseline(first), &ratios_to_baseline(second), CONFIDENCE)
            }
        };
        self.cases.push(CaseComparison {
            workload: key.workload.clone(),
            case: key.case.clone(),
            devices: if same_device {
                key.device.clone()
            } else {
                format!("{}, then {}", other.device, key.device)
            },
            basis,
            ratio,
            verdict: Verdict::of(ratio, BETWEEN_RUNS),
        });
    }
}

/// What makes two benchmarks of one name different things.
fn incomparable(first: &BenchRecord, second: &BenchRecord) -> Option<String> {
    if first.dimensions != second.dimensions {
        return Some(format!("its sizes were {:?} and are {:?}", first.dimensions, second.dimensions));
    }
    if first.timing != second.timing || first.cache != second.cache {
        return Some("it was timed in another way".to_owned());
    }
    (first.baseline.name != second.baseline.name)
        .then(|| format!("its baseline was '{}' and is '{}'", first.baseline.name, second.baseline.name))
}

fn times(bench: &BenchRecord) -> &[f64] {
    bench.candidate.samples_ns.values()
}

fn ratios_to_baseline(bench: &BenchRecord) -> Vec<f64> {
    let baseline = bench.baseline.samples_ns.values();
    times(bench).iter().zip(baseline).map(|(candidate, baseline)| candidate / baseline).collect()
}
