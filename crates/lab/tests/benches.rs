//! The benchmarks of the runtime's workloads, mechanically: on the emulated device their times mean nothing,
//! but their kernels, copies, captures and counts are the real ones.

use std::time::Duration;

use gatework_gpu::{Device, Kind};
use gatework_lab::measure::{BenchRecord, PerformanceOptions, Station};
use gatework_lab::{Gate, Gates, Outcome, Workload, runtime};

fn workload(name: &str) -> Box<dyn Workload> {
    runtime::workloads()
        .into_iter()
        .find(|workload| workload.name() == name)
        .expect("the workload is registered")
}

fn measure(name: &str) -> BenchRecord {
    let device = Device::emulated(0).unwrap();
    let workload = workload(name);
    let cases = workload.bench_cases(Kind::Emulated);
    let options =
        PerformanceOptions { samples: 100, longest: Duration::ZERO, ..PerformanceOptions::default() };
    let measured =
        Station::new(options).measure(name, &device, &cases, &|case| workload.bench(&device, case), &());
    let mut record = measured.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(record.cases.len(), cases.len());
    record.cases.pop().unwrap()
}

fn assert_runs(name: &str) -> BenchRecord {
    let record = measure(name);
    assert_eq!((record.candidate.samples_ns.len(), record.baseline.samples_ns.len()), (100, 100), "{name}");
    assert!(record.expectation.is_some() || record.recorded.is_some(), "{name}");
    assert!(record.rechecked, "{name}");
    record
}

#[test]
fn saxpy_runs_as_single_launches() {
    assert_runs("gpu/saxpy");
}

#[test]
fn reduce_and_transpose_run_as_graphs() {
    assert_runs("gpu/reduce");
    assert_runs("gpu/transpose");
}

#[test]
fn the_chain_runs_as_a_graph_and_as_launches() {
    assert!(assert_runs("gpu/graph-chain").roofline.is_none(), "host time has no roofline");
}

#[test]
fn every_pinned_block_is_a_hit_after_the_warm_up() {
    let record = assert_runs("gpu/pinned-copy");
    let [rate] = record.rates.as_slice() else { panic!("{:?}", record.rates) };
    assert_eq!((rate.share, rate.is_met()), (Some(1.0), true));
}

#[test]
fn every_cuda_benchmark_moves_enough_memory_and_states_a_promise() {
    for workload in runtime::workloads() {
        for case in workload.bench_cases(Kind::Cuda) {
            if ["gpu/saxpy", "gpu/transpose", "gpu/reduce"].contains(&workload.name()) {
                assert!(workload.work(&case).bytes >= 1 << 30, "{} {}", workload.name(), case.name);
            }
        }
    }
    for name in ["saxpy", "reduce", "transpose", "fp8-tile", "graph-chain", "pinned-copy"] {
        assert!(!workload(&format!("gpu/{name}")).bench_cases(Kind::Cuda).is_empty(), "{name}");
    }
}

#[test]
fn performance_is_never_run_on_the_emulated_device() {
    let gates =
        Gates::new(Device::emulated(0).unwrap()).seeds(0..1).performance(PerformanceOptions::default());
    let record = gates.gate(workload("gpu/saxpy").as_ref(), &());
    let performance = record.gates.iter().find(|gate| gate.gate == Gate::Performance).unwrap();
    assert!(
        matches!(&performance.outcome, Outcome::NotRun { why } if why.contains("time means nothing")),
        "{}",
        performance.outcome
    );
    assert!(record.performance.is_none() && record.verdict.is_passed());
}
