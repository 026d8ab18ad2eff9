//! As fast as promised: every benchmark of a workload, and what they say together.

use gatework_gpu::{Error, Observer};

use super::correctness::guarded;
use super::{Outcome, TestBed};
use crate::Workload;
use crate::case::{RunError, runtime_error};
use crate::measure::Station;
use crate::record::{BenchRecord, PerformanceRecord, RecordedPromise};
use crate::stats::{Fulfilment, Interval};

pub(super) fn run(
    workload: &dyn Workload,
    bed: &TestBed,
    station: &Station,
    observer: &dyn Observer,
) -> (Outcome, Option<PerformanceRecord>) {
    let device = match bed {
        TestBed::CompilersOnly { why } => return (Outcome::not_run(why), None),
        TestBed::Device(device) if device.is_emulated() => {
            return (Outcome::not_run("time means nothing on the emulated device; use a CUDA device"), None);
        }
        TestBed::Device(device) => device,
    };
    let cases = match guarded("listing the benchmarks", || workload.bench_cases(device.properties().kind)) {
        Ok(cases) => cases,
        Err(stop) => return (stop.into(), None),
    };
    if cases.is_empty() {
        return (Outcome::not_run("the workload has no benchmark for this device"), None);
    }
    let measured = guarded("the benchmark", || {
        station.measure(workload.name(), device, &cases, &|case| workload.bench(device, case), observer)
    });
    match measured {
        Ok(Ok(record)) => (judge(&record), Some(record)),
        Ok(Err(error)) => (refusal(&error), None),
        Err(stop) => (stop.into(), None),
    }
}

/// What an error means: a device without the room is no fault of the workload's.
fn refusal(error: &RunError) -> Outcome {
    match runtime_error(error) {
        Some(Error::OutOfMemory { .. } | Error::OutOfPinnedMemory { .. }) => Outcome::not_run(error),
        _ => Outcome::failed(error),
    }
}

/// Failed if a promise was broken, not run if one could not be decided, else passed.
pub(super) fn judge(record: &PerformanceRecord) -> Outcome {
    if record.cases.is_empty() {
        return Outcome::not_run("the workload has no benchmark for this device");
    }
    let hollow = record.cases.iter().filter_map(hollow);
    let broken: Vec<String> = hollow.chain(record.cases.iter().flat_map(broken_promises)).collect();
    if !broken.is_empty() {
        let throttled =
            record.throttled.as_ref().map_or_else(String::new, |why| format!(" (throttled: {why})"));
        return Outcome::failed(format!("{}{throttled}", broken.join("; ")));
    }
    let undecided: Vec<String> = record.cases.iter().filter_map(undecided_promise).collect();
    if undecided.is_empty() { Outcome::Passed } else { Outcome::not_run(undecided.join("; ")) }
}

fn broken_promises(bench: &BenchRecord) -> Vec<String> {
    let mut broken = Vec::new();
    if let (Some(Fulfilment::Missed), Some(promise)) = (bench.fulfilment, &bench.expectation) {
        broken.push(format!(
            "case '{}': SLOWER than promised: {} of '{}', at most {:.3} was ({})",
            bench.case,
            share(bench.ratio),
            bench.baseline.name,
            promise.at_most,
            promise.why
        ));
    }
    if let Some(RecordedPromise { record: Some(id), expectation, ratio, fulfilment: Fulfilment::Missed }) =
        &bench.recorded
    {
        broken.push(format!(
            "case '{}': SLOWER than recorded: {} of record {id}, at most {:.3} was promised ({})",
            bench.case,
            share(*ratio),
            expectation.at_most,
            expectation.why
        ));
    }
    for rate in bench.rates.iter().filter(|rate| !rate.is_met()) {
        let share =
            rate.share.map_or_else(|| "none counted".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        let least = 100.0 * rate.at_least;
        broken.push(format!("case '{}': {}: {share}, at least {least:.1} % promised", bench.case, rate.name));
    }
    broken
}

/// Why a benchmark proves nothing, however fast it is.
fn hollow(bench: &BenchRecord) -> Option<String> {
    let case = &bench.case;
    if bench.recorded.is_none() {
        if bench.expectation.is_none() {
            return Some(format!("case '{case}': refused: the benchmark promises nothing"));
        }
        if bench.contains_itself {
            let why = "its baseline contains the kernel itself, so that its promise cannot be broken";
            return Some(format!("case '{case}': refused: {why}"));
        }
    }
    let why = "nothing shows that what was timed computed the result";
    (!bench.rechecked).then(|| format!("case '{case}': refused: {why}"))
}

fn undecided_promise(bench: &BenchRecord) -> Option<String> {
    match &bench.recorded {
        Some(RecordedPromise { record: None, .. }) => {
            return Some(format!(
                "case '{}': no time is recorded for this device yet: this run is the first",
                bench.case
            ));
        }
        Some(RecordedPromise { record: Some(id), fulfilment: Fulfilment::Undecided, ratio, .. }) => {
            return Some(format!(
                "case '{}': AMBIGUOUS: {} of record {id}; take more samples",
                bench.case,
                share(*ratio)
            ));
        }
        _ => (),
    }
    let promise = bench.expectation.as_ref().filter(|_| bench.fulfilment == Some(Fulfilment::Undecided))?;
    Some(format!(
        "case '{}': AMBIGUOUS: {} of '{}', at most {:.3} was promised; take more samples",
        bench.case,
        share(bench.ratio),
        bench.baseline.name,
        promise.at_most
    ))
}

fn share(ratio: Option<Interval>) -> String {
    match ratio {
        Some(Interval { estimate, low, high, .. }) => format!("{estimate:.3} ({low:.3} to {high:.3})"),
        None => "an unknown part".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::{Cache, Timing};
    use crate::case::Work;
    use crate::measure::{CopyBandwidth, RateRecord, SideRecord};
    use crate::stats::{CONFIDENCE, Expectation, Stop, Verdict, WITHIN_RUN, paired_ratio};

    /// Samples within 0.3 %, in an order of their own for each `period`.
    fn side(nanoseconds: f64, period: i32) -> SideRecord {
        let samples: Vec<f64> =
            (0..100).map(|i| nanoseconds * (1.0 + f64::from(i % period - period / 2) / 1000.0)).collect();
        let samples_ns = crate::stats::Samples::from(samples);
        SideRecord { name: "side".into(), summary: samples_ns.summary().unwrap(), samples_ns }
    }

    fn record(slowdown: f64, at_most: f64) -> PerformanceRecord {
        let (baseline, candidate) = (side(1000.0, 7), side(1000.0 * slowdown, 5));
        let ratio = paired_ratio(baseline.samples_ns.values(), candidate.samples_ns.values(), CONFIDENCE);
        let expectation = Expectation { at_most, why: "a promise".into() };
        let bench = BenchRecord {
            case: "n1".into(),
            dimensions: BTreeMap::new(),
            work: Work { operations: 1, bytes: 1 },
            timing: Timing::Wall,
            cache: Cache::Warm,
            seed: 0,
            stopped: Stop::Decided,
            verdict: Verdict::of(ratio, WITHIN_RUN),
            fulfilment: Some(expectation.judge(ratio)),
            expectation: Some(expectation),
            recorded: None,
            contains_itself: false,
            rechecked: true,
            candidate,
            baseline,
            ratio,
            roofline: None,
            bytes_per_second: 1.0,
            operations_per_second: 1.0,
            rates: Vec::new(),
            peers: Vec::new(),
        };
        PerformanceRecord {
            copy_bandwidth: CopyBandwidth { bytes: 1, median_ns: 1.0, bytes_per_second: 1e9 },
            clocks_before: None,
            clocks_after: None,
            throttled: None,
            cases: vec![bench],
        }
    }

    #[test]
    fn a_kernel_slowed_on_purpose_fails() {
        assert_eq!(judge(&record(1.0, 1.05)), Outcome::Passed);
        let slowed = record(1.2, 1.05);
        assert_eq!(slowed.cases[0].verdict, Verdict::Slower);
        let Outcome::Failed { why } = judge(&slowed) else { panic!("{}", judge(&slowed)) };
        assert!(why.contains("case 'n1': SLOWER than promised: 1.200") && why.contains("1.050"), "{why}");
    }

    #[test]
    fn what_the_samples_do_not_tell_has_not_passed() {
        let Outcome::NotRun { why } = judge(&record(1.0, 1.0)) else {
            panic!("{}", judge(&record(1.0, 1.0)))
        };
        assert!(why.contains("AMBIGUOUS") && why.contains("take more samples"), "{why}");
    }

    #[test]
    fn a_benchmark_that_proves_nothing_is_refused() {
        let refused = |change: fn(&mut BenchRecord)| {
            let mut record = record(1.0, 1.05);
            change(&mut record.cases[0]);
            match judge(&record) {
                Outcome::Failed { why } => why,
                other => panic!("{other}"),
            }
        };
        assert!(refused(|bench| bench.expectation = None).contains("promises nothing"));
        assert!(refused(|bench| bench.contains_itself = true).contains("contains the kernel itself"));
        assert!(refused(|bench| bench.rechecked = false).contains("nothing shows"));
    }

    #[test]
    fn a_time_that_was_recorded_is_a_promise() {
        let recorded = |fulfilment, id: Option<&str>| {
            let mut record = record(1.0, 1.05);
            record.cases[0].contains_itself = true;
            record.cases[0].recorded = Some(RecordedPromise {
                record: id.map(str::to_owned),
                expectation: Expectation { at_most: 1.1, why: "the same card".into() },
                ratio: record.cases[0].ratio,
                fulfilment,
            });
            judge(&record)
        };
        assert_eq!(recorded(Fulfilment::Met, Some("0123456789ab")), Outcome::Passed);
        let missed = recorded(Fulfilment::Missed, Some("0123456789ab"));
        assert!(missed.is_failed() && missed.to_string().contains("of record 0123456789ab"), "{missed}");
        let first = recorded(Fulfilment::Undecided, None);
        assert!(
            matches!(&first, Outcome::NotRun { why } if why.contains("this run is the first")),
            "{first}"
        );
    }

    #[test]
    fn a_broken_rate_fails_and_a_throttled_run_says_so() {
        let mut record = record(1.0, 1.05);
        record.throttled = Some("the SM clock was 900 MHz".into());
        record.cases[0].rates.push(RateRecord { name: "pool hits".into(), share: Some(0.5), at_least: 0.8 });
        let Outcome::Failed { why } = judge(&record) else { panic!("{}", judge(&record)) };
        assert!(
            why.contains("pool hits: 50.0 %, at least 80.0 % promised (throttled: the SM clock"),
            "{why}"
        );
    }
}
