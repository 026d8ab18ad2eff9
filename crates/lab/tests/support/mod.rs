//! Records made up for tests.

// Every test file compiles this module for itself and uses a part of it.
#![allow(dead_code)]

pub mod drawn;

use std::collections::BTreeMap;

use gatework_gpu::{Architecture, Clocks, Resources};
use gatework_lab::measure::{
    BenchRecord, Bound, CopyBandwidth, PeerRecord, PerformanceRecord, Roofline, SideRecord,
};
use gatework_lab::profile::{LaunchProfile, ProfileRecord, Utilisation};
use gatework_lab::stats::{
    CONFIDENCE, Expectation, Interval, Samples, Stop, Verdict, WITHIN_RUN, paired_ratio,
};
use gatework_lab::tune::{
    Conclusion, Configuration, EliteMember, HeldOut, Rejection, Score, Space, Strategy, Trial, TrialOutcome,
    TuneStop, TuningRecord,
};
use gatework_lab::{
    BinaryRecord, Cache, CaseRecord, DeviceRecord, EntryRecord, ErrorBudget, Gate, GateRecord, Inputs,
    KernelRecord, Outcome, RECORD_VERSION, Record, Timing, Work,
};
use serde_json::Map;

pub fn device(name: &str) -> DeviceRecord {
    DeviceRecord {
        id: "cuda:0".into(),
        name: name.into(),
        architecture: Architecture::Sm("sm_90a".into()),
        multiprocessors: 132,
        memory_bytes: 150_000_000_000,
        driver: "13.0".into(),
        clocks: Some(Clocks { sm_mhz: 1980, memory_mhz: 3201, celsius: 41 }),
    }
}

/// A record with one kernel and one checked case.
pub fn record(workload: &str) -> Record {
    let entry = EntryRecord {
        name: "saxpy".into(),
        occupancy: None,
        resources: Resources { registers: 12, ..Resources::default() },
        sass: Some(BTreeMap::from([("FFMA".to_owned(), 1)])),
    };
    Record {
        version: RECORD_VERSION,
        workload: workload.into(),
        verdict: Outcome::Passed,
        time: "2026-01-02T03:04:05Z".into(),
        gatework: "0.1.0".into(),
        revision: None,
        device: Some(device("NVIDIA H200")),
        gates: vec![GateRecord {
            gate: Gate::Resources,
            target: "sm_90a".into(),
            outcome: Outcome::NotRun { why: "no NVRTC".into() },
        }],
        kernels: vec![KernelRecord {
            source: "saxpy".into(),
            source_hash: "ab".repeat(32),
            binaries: vec![BinaryRecord {
                architecture: Architecture::Sm("sm_90a".into()),
                key: "cd".repeat(32),
                hash: "ef".repeat(32),
                options: Vec::new(),
                entries: vec![entry],
            }],
        }],
        cases: vec![CaseRecord {
            name: "n31".into(),
            dimensions: BTreeMap::from([("n".to_owned(), 31)]),
            seeds: vec![0, u64::MAX],
            work: Work { operations: 62, bytes: 372 },
            budget: ErrorBudget::Exact,
            errors: BTreeMap::new(),
            controls: vec!["zeros".into()],
        }],
        performance: None,
        measured: None,
        profile: None,
        tuning: None,
        other: Map::new(),
    }
}

/// 120 samples around `nanoseconds` with one percent of noise and a few outliers.
pub fn samples(nanoseconds: f64, seed: u64) -> Samples {
    let mut samples: Vec<f64> =
        Inputs::new(seed).normal(120).iter().map(|&z| nanoseconds * (1.0 + 0.01 * f64::from(z))).collect();
    samples.iter_mut().step_by(37).for_each(|outlier| *outlier *= 1.2);
    samples.into()
}

pub fn side(name: &str, samples_ns: Samples) -> SideRecord {
    SideRecord { name: name.into(), summary: samples_ns.summary().unwrap(), samples_ns }
}

/// A benchmark whose candidate takes `candidate` and whose baseline takes `baseline` nanoseconds.
pub fn bench(case: &str, baseline: f64, candidate: f64, seed: u64) -> BenchRecord {
    let work = Work { operations: 1 << 28, bytes: 3 << 29 };
    let (baseline, candidate) = (samples(baseline, 2 * seed), samples(candidate, 2 * seed + 1));
    let ratio = paired_ratio(baseline.values(), candidate.values(), CONFIDENCE);
    let expectation = Expectation { at_most: 1.0 / 0.85, why: "85 % of the copy's bandwidth".into() };
    let (baseline, candidate) = (side("device-to-device copy", baseline), side("saxpy", candidate));
    let median_ns = candidate.summary.median_ns;
    let torch = samples(1.1 * median_ns, seed + 1000);
    BenchRecord {
        case: case.into(),
        dimensions: BTreeMap::from([("n".to_owned(), 1 << 27)]),
        work,
        timing: Timing::Launches { count: 1 },
        cache: Cache::Cold,
        seed: 0,
        stopped: Stop::Decided,
        ratio,
        verdict: Verdict::of(ratio, WITHIN_RUN),
        recorded: None,
        contains_itself: false,
        rechecked: true,
        fulfilment: Some(expectation.judge(ratio)),
        expectation: Some(expectation),
        roofline: Some(Roofline {
            floor_ns: 0.9 * median_ns,
            bound: Bound::Memory,
            ratio_to_floor: 1.0 / 0.9,
            peak_operations_per_second: Some(66.9e12),
            copy_bytes_per_second: 4.2e12,
            link_bytes_per_second: None,
        }),
        bytes_per_second: 1e9 * work.bytes as f64 / median_ns,
        operations_per_second: 1e9 * work.operations as f64 / median_ns,
        rates: Vec::new(),
        peers: vec![
            PeerRecord::Measured {
                peer: "PyTorch".into(),
                versions: BTreeMap::from([("torch".to_owned(), "2.9.0".to_owned())]),
                operation: "saxpy".into(),
                summary: torch.summary().unwrap(),
                ratio: paired_ratio(torch.values(), candidate.samples_ns.values(), CONFIDENCE),
                verdict: Verdict::Faster,
                samples_ns: torch,
            },
            PeerRecord::NotMeasured { peer: "JAX".into(), why: "no module named 'jax'".into() },
        ],
        candidate,
        baseline,
    }
}

pub fn performance(cases: Vec<BenchRecord>) -> PerformanceRecord {
    PerformanceRecord {
        copy_bandwidth: CopyBandwidth { bytes: 2 << 30, median_ns: 511_000.0, bytes_per_second: 4.2e12 },
        clocks_before: Some(Clocks { sm_mhz: 1980, memory_mhz: 3201, celsius: 44 }),
        clocks_after: Some(Clocks { sm_mhz: 1965, memory_mhz: 3201, celsius: 52 }),
        throttled: None,
        cases,
    }
}

/// A record of a benchmark on a device.
pub fn benched(workload: &str, on: &str, baseline: f64, candidate: f64, seed: u64) -> Record {
    Record {
        device: Some(device(on)),
        performance: Some(performance(vec![bench("n134217728", baseline, candidate, seed)])),
        ..record(workload)
    }
}

/// A search of twelve trials, with one program twice and two refusals.
pub fn searched(workload: &str) -> Record {
    let space = Space::new().micro("TILE", [16, 32, 64]).micro("BLOCK_ROWS", [4, 8, 16, 32]);
    let default = Configuration::default().with("TILE", 32).with("BLOCK_ROWS", 8);
    let score = |ratio: f64| Score { ratio, cases: vec![("8192x8192".into(), around(ratio))] };
    let trial = |(index, configuration): (usize, Configuration)| {
        let outcome = match index {
            3 | 7 => {
                let why = "case '31x33', seed 0: output 'out' is wrong".to_owned();
                TrialOutcome::Rejected { rejection: Rejection { gate: "correctness".into(), why } }
            }
            5 => TrialOutcome::SameAs { trial: 4 },
            _ => TrialOutcome::Timed { score: score(1.25 - 0.02 * index as f64 + 0.03 * (index % 3) as f64) },
        };
        Trial { configuration, identity: Some(format!("{index:064}")), outcome }
    };
    let trials: Vec<Trial> = space.configurations().enumerate().map(trial).collect();
    let elite = [9, 11].map(|index: usize| EliteMember {
        configuration: trials[index].configuration.clone(),
        identity: trials[index].identity.clone(),
        also: Vec::new(),
        ratio: trials[index].score().unwrap().ratio,
    });
    let held_out =
        vec![HeldOut { case: "10240x7168".into(), ratio: Some(around(0.93)), verdict: Verdict::Faster }];
    let tuning = TuningRecord {
        knobs: space.knobs().to_vec(),
        constraints: vec!["at most 1024 threads".into()],
        strategy: Strategy::Evolution,
        seed: 0,
        default,
        trials,
        elite: elite.to_vec(),
        stopped: TuneStop::Exhausted,
        conclusion: Conclusion::WinnerBeatsDefault { held_out },
    };
    Record { tuning: Some(tuning), ..record(workload) }
}

fn around(estimate: f64) -> Interval {
    Interval { estimate, low: estimate - 0.004, high: estimate + 0.004, confidence: CONFIDENCE }
}

/// A profile of a kernel on the tensor cores.
pub fn profiled(workload: &str) -> Record {
    let utilisation = Utilisation { tensor: Some(61.07), multiprocessors: Some(63.9), memory: Some(21.5) };
    let launch = LaunchProfile {
        kernel: "fp8_tile".into(),
        bound_by: utilisation.bound_by(),
        advice: utilisation.advice().into(),
        utilisation,
        metrics: BTreeMap::new(),
    };
    let profile = ProfileRecord {
        tool: "ncu Version 2025.3.1.0".into(),
        case: "4096x4096x4096".into(),
        launches: vec![launch],
        missing: Vec::new(),
    };
    Record { profile: Some(profile), ..record(workload) }
}
