//! Benchmarks that cheat, on the emulated device: whatever they do, what was timed must have done the work.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use gatework_gpu::{Buffer, Device, Stream};
use gatework_lab::measure::{BenchRecord, PerformanceOptions, Station};
use gatework_lab::{Bench, Case, ErrorBudget, Evidence, Outputs, RunError, Side, Timing, Work};

const N: usize = 100;

type Output = Rc<RefCell<Buffer<u32>>>;

/// Sets every element of the output to 7, as far as `honest` says of the n-th run.
fn bench(device: &Device, timing: Timing, honest: fn(u64) -> bool) -> Result<Bench, RunError> {
    let stream = device.stream()?;
    let output: Output = Rc::new(RefCell::new(stream.alloc_zeros(N)?));
    let mut other = stream.alloc_zeros::<u32>(N)?;
    stream.synchronize()?;
    let (written, runs) = (output.clone(), Cell::new(0));
    let candidate = Side::new("sevens", move |stream: &Stream| {
        runs.set(runs.get() + 1);
        if honest(runs.get()) { stream.fill(&mut *written.borrow_mut(), 7) } else { Ok(()) }
    });
    let baseline = Side::new("eights", move |stream: &Stream| stream.fill(&mut other, 8));
    let work = Work { operations: N as u64, bytes: 4 * N as u64 };
    let bench = Bench::new(work, candidate, baseline).timing(timing).shown_by(evidence(output));
    Ok(bench.expect_at_most(1000.0, "anything"))
}

fn evidence(output: Output) -> Evidence {
    let seen = output.clone();
    Evidence::new(
        ErrorBudget::Exact,
        move |stream| Ok(stream.fill(&mut *output.borrow_mut(), 0)?),
        move |stream| Ok(Outputs::new().with("out", stream.download(&*seen.borrow())?)),
        |_| Ok(Outputs::new().with("out", vec![7u32; N])),
    )
}

fn measured(timing: Timing, honest: fn(u64) -> bool) -> Result<BenchRecord, String> {
    let device = Device::emulated(0).unwrap();
    let options = PerformanceOptions { samples: 100, longest: Duration::ZERO, ..Default::default() };
    let cases = [Case::new("cheat")];
    let make = |_: &Case| bench(&device, timing, honest).map(Some);
    let record = Station::new(options).measure("test/cheat", &device, &cases, &make, &());
    record.map(|mut record| record.cases.remove(0)).map_err(|error| error.to_string())
}

const TIMINGS: [Timing; 3] = [Timing::Wall, Timing::Launches { count: 1 }, Timing::Graph { repeats: 2 }];

#[test]
fn an_honest_benchmark_is_looked_at_and_found_right() {
    for timing in TIMINGS {
        let record = measured(timing, |_| true).unwrap();
        assert!(record.rechecked, "{timing:?}");
        assert_eq!(record.candidate.samples_ns.len(), 100);
    }
}

#[test]
fn a_candidate_that_does_nothing_is_found_out() {
    for timing in TIMINGS {
        let why = measured(timing, |_| false).unwrap_err();
        assert!(why.contains("what was timed did not compute the result"), "{timing:?}: {why}");
    }
}

#[test]
fn a_candidate_that_works_in_the_warm_up_alone_is_found_out() {
    // A graph is captured with the second run, and is what it is from then on.
    for timing in [Timing::Wall, Timing::Launches { count: 1 }] {
        let why = measured(timing, |run| run < 5).unwrap_err();
        assert!(why.contains("what was timed did not compute the result"), "{timing:?}: {why}");
    }
}

#[test]
fn work_on_another_stream_is_waited_for_and_counted() {
    let device = Device::emulated(0).unwrap();
    let options = PerformanceOptions { samples: 100, longest: Duration::ZERO, ..Default::default() };
    let big = 4 << 20;
    let make = |_: &Case| -> Result<Option<Bench>, RunError> {
        let (own, hidden) = (device.stream()?, device.stream()?);
        let [mut here, mut there] = [own.alloc_zeros::<u32>(big)?, hidden.alloc_zeros::<u32>(big)?];
        device.synchronize()?;
        let candidate = Side::new("hidden", move |_: &Stream| hidden.fill(&mut there, 1));
        let baseline = Side::new("seen", move |stream: &Stream| stream.fill(&mut here, 1));
        let bench = Bench::new(Work { operations: 1, bytes: 1 }, candidate, baseline);
        Ok(Some(bench.timing(Timing::Wall)))
    };
    let record = Station::new(options).measure("test/cheat", &device, &[Case::new("hidden")], &make, &());
    let bench = record.unwrap().cases.remove(0);
    let ratio = bench.ratio.unwrap().estimate;
    assert!(ratio > 0.2, "the hidden work was not counted: {ratio}");
}

#[test]
fn a_baseline_that_contains_the_kernel_is_seen() {
    use gatework_lab::runtime;
    let workloads = runtime::workloads();
    let tile = workloads.iter().find(|workload| workload.name() == "gpu/fp8-tile").unwrap();
    let device = Device::emulated(0).unwrap();
    let options = PerformanceOptions { samples: 100, longest: Duration::ZERO, ..Default::default() };
    let cases = tile.bench_cases(gatework_gpu::Kind::Emulated);
    let make = |case: &Case| tile.bench(&device, case);
    let record = Station::new(options).measure(tile.name(), &device, &cases, &make, &()).unwrap();
    assert!(record.cases[0].contains_itself && record.cases[0].expectation.is_none());
    assert!(record.cases[0].recorded.is_some());
}
