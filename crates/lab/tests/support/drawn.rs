//! A report of made-up records.

use gatework_lab::measure::{Bound, RateRecord};
use gatework_lab::report::{self, TrainingRuns};
use gatework_lab::{Freshness, Gate, GateRecord, MeasuredRecord, Outcome, Record, Timing};
use serde_json::json;

use super::{benched, device, profiled, record, searched};

/// Records of every kind, as a run on a GPU leaves them.
pub fn records() -> Vec<Record> {
    let h200 = "NVIDIA H200";
    let mut saxpy = benched("gpu/saxpy", h200, 373e3, 402e3, 1);
    saxpy.gates = [Gate::Compile, Gate::Resources, Gate::Correctness, Gate::Performance]
        .map(|gate| GateRecord { gate, target: "cuda:0".into(), outcome: Outcome::Passed })
        .to_vec();
    let mut fp8 = benched("gpu/fp8-tile", h200, 201e3, 200e3, 2);
    let bench = &mut fp8.performance.as_mut().unwrap().cases[0];
    bench.case = "4096x4096x4096".into();
    bench.work.operations = 2 << 36;
    bench.operations_per_second = 1e9 * bench.work.operations as f64 / bench.candidate.summary.median_ns;
    let roofline = bench.roofline.as_mut().unwrap();
    roofline.bound = Bound::Compute;
    roofline.ratio_to_floor = 3.1;
    roofline.peak_operations_per_second = Some(2141e12);
    let mut slow = benched("gpu/reduce", h200, 262e3, 460e3, 3);
    let why = "case 'n134217728': SLOWER than promised: 1.755 (1.751 to 1.760) of 'device-to-device copy'";
    slow.verdict = Outcome::Failed { why: why.into() };
    slow.gates.push(GateRecord {
        gate: Gate::Performance,
        target: "cuda:0".into(),
        outcome: slow.verdict.clone(),
    });
    slow.performance.as_mut().unwrap().throttled = Some("the SM clock was 1200 MHz under load".into());
    let mut pinned = benched("gpu/pinned-copy", h200, 14.2e6, 2.6e6, 4);
    let bench = &mut pinned.performance.as_mut().unwrap().cases[0];
    bench.timing = Timing::Wall;
    bench.roofline = None;
    bench.peers.clear();
    bench.rates.push(RateRecord { name: "pool hits".into(), share: Some(1.0), at_least: 0.8 });
    vec![
        saxpy,
        fp8,
        slow,
        pinned,
        searched("gpu/transpose"),
        profiled("gpu/fp8-tile"),
        record("gpu/<odd>&name"),
        request(),
    ]
}

/// A private request of two parts.
fn request() -> Record {
    let part = |name: &str, ms: f64| {
        json!({
            "kind": "part", "part": name, "ms": ms, "gates_ms": 0.3 * ms, "opening_ms": 0.1 * ms, "ahead_ms": 0.1 * ms,
            "messages_ms": 0.2 * ms, "hand_over_ms": 0.05 * ms, "wait_ms": 0.25 * ms,
        })
    };
    let whole = json!({
        "kind": "request", "model": "bert-<odd>", "tokens": 128, "keys": "memory", "client_device": "cuda:0",
        "server_device": "cuda:0", "median_ms": 600.0,
    });
    let rows = [whole, part("embedding", 100.0), part("layer <1>", 400.0)];
    let rows = rows.map(|row| row.as_object().unwrap().clone()).to_vec();
    Record::of_figures(
        "private/bench",
        Some(device("NVIDIA H200")),
        MeasuredRecord { origin: "a test".into(), rows },
    )
}

/// Two runs that learn.
pub fn training() -> Vec<TrainingRuns> {
    vec![TrainingRuns { name: "digits <odd>".into(), runs: vec![vec![0.8, 0.1, -1.0], vec![0.9, 0.4, -2.0]] }]
}

/// The report of all of them.
pub fn drawn() -> String {
    report::html(&records(), &training(), &|record| match record.workload.as_str() {
        "gpu/reduce" => Freshness::Stale { why: "the source of kernel 'reduce' has changed".into() },
        _ => Freshness::Current,
    })
}
