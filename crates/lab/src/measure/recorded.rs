//! Times of earlier records, which a promise may be made against.

use std::collections::BTreeMap;

use crate::record::{Record, RecordedPromise};
use crate::stats::{CONFIDENCE, Expectation, Fulfilment, ratio_of_medians};

/// The fastest recorded benchmark of each workload, case and device.
#[derive(Debug, Clone, Default)]
pub struct RecordedTimes {
    fastest: BTreeMap<(String, String, String), Recorded>,
}

#[derive(Debug, Clone)]
struct Recorded {
    record: String,
    median_ns: f64,
    samples_ns: Vec<f64>,
}

impl RecordedTimes {
    /// Those of `records`; runs that were throttled do not count.
    pub fn of(records: &[Record]) -> Self {
        let mut times = Self::default();
        for record in records {
            let Some(performance) = record.performance.as_ref().filter(|found| found.throttled.is_none())
            else {
                continue;
            };
            let device = record.device.as_ref().map_or("no device", |device| &device.name);
            for bench in &performance.cases {
                let key = (record.workload.clone(), bench.case.clone(), device.to_owned());
                let median_ns = bench.candidate.summary.median_ns;
                if times.fastest.get(&key).is_none_or(|known| median_ns < known.median_ns) {
                    let samples_ns = bench.candidate.samples_ns.values().to_vec();
                    times.fastest.insert(key, Recorded { record: record.id(), median_ns, samples_ns });
                }
            }
        }
        times
    }

    /// What becomes of a promise for a workload, a case and a device. Where there is no record yet, it is not
    /// decided: this run is the first, and the next is held against it.
    pub(super) fn judge(
        &self,
        (workload, case, device): (&str, &str, &str),
        expectation: Expectation,
        samples: &[f64],
    ) -> RecordedPromise {
        let key = (workload.to_owned(), case.to_owned(), device.to_owned());
        match self.fastest.get(&key) {
            None => {
                RecordedPromise { record: None, expectation, ratio: None, fulfilment: Fulfilment::Undecided }
            }
            Some(known) => {
                let ratio = ratio_of_medians(&known.samples_ns, samples, CONFIDENCE);
                let fulfilment = expectation.judge(ratio);
                RecordedPromise { record: Some(known.record.clone()), expectation, ratio, fulfilment }
            }
        }
    }
}
