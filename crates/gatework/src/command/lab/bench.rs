//! `gatework lab bench`: how fast workloads are, against their baselines and the machine.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use gatework_gpu::Kind;
use gatework_lab::measure::{BenchRecord, PeerRecord, PerformanceOptions, RecordedPromise};
use gatework_lab::stats::Fulfilment;
use gatework_lab::{Gate, Gates, Outcome, Record, Registry, Workload, peers};
use serde::Serialize;

use super::gate::named;
use crate::command::ending::{Ending, Failure};
use crate::command::output::{Reasons, table, word};
use crate::command::recorder::Recorder;
use crate::command::samples::at_least_100;
use crate::command::schema;
use crate::command::shell::Shell;
use gatework_lab::quantity::{rate, ratio, time};

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework lab bench                             # every workload that has a benchmark
  gatework lab bench gpu/saxpy --samples 1000
  gatework lab bench --no-peers --results my/results

The exit code is 1 if a workload is slower than it promises.";

/// What to time, and where the records go.
#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// Names of workloads [default: all that have a benchmark]
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// Maximum number of sample pairs per benchmark, at least 100; sampling stops early once the verdict is
    /// certain
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = at_least_100)]
    pub(super) samples: usize,
    /// Do not time PyTorch, JAX and cuDNN for comparison
    #[arg(long)]
    pub(super) no_peers: bool,
    /// The folder to append records to
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(super) results: PathBuf,
    /// Do not write records
    #[arg(long)]
    pub(super) no_record: bool,
}

#[derive(Serialize)]
struct Benched {
    records: Vec<Record>,
    /// The file the records were appended to.
    recorded_in: Option<PathBuf>,
}

impl schema::Document for Benched {
    const SCHEMA: schema::Schema = schema::LAB_BENCH;
}

pub(super) fn run(options: &BenchOptions, shell: &Shell) -> Result<Ending, Failure> {
    let workloads = chosen(&shell.registry, options)?;
    let gates = Gates::new(shell.test_bed()?).seeds(0..1).performance(PerformanceOptions {
        samples: options.samples,
        peers: if options.no_peers { Vec::new() } else { peers::installed() },
        recorded: shell.recorded_times(&options.results)?,
        ..PerformanceOptions::default()
    });
    let mut recorder = Recorder::open((!options.no_record).then_some(options.results.as_path()))?;

    let records = recorder.gate_each(&gates, workloads, &shell.progress);
    let benched = Benched { records, recorded_in: recorder.file };
    shell.output.show(&benched, || benched.text())?;
    recorder.failure.map_or_else(|| Ok(benched.ending()), |error| Err(error.into()))
}

/// The workloads by name, or all that have a benchmark.
fn chosen<'a>(registry: &'a Registry, options: &BenchOptions) -> Result<Vec<&'a dyn Workload>, Failure> {
    if options.names.is_empty() {
        return Ok(registry.iter().filter(|workload| !workload.bench_cases(Kind::Cuda).is_empty()).collect());
    }
    named(registry, &options.names)
}

fn performance(record: &Record) -> Option<&Outcome> {
    record.gates.iter().find(|gate| gate.gate == Gate::Performance).map(|gate| &gate.outcome)
}

impl Benched {
    fn ending(&self) -> Ending {
        let not_passed = |record: &Record| !performance(record).is_some_and(Outcome::is_passed);
        if self.records.iter().any(|record| record.verdict.is_failed()) {
            Ending::GateFailed
        } else if self.records.iter().any(not_passed) {
            Ending::DeviceFailed
        } else {
            Ending::Done
        }
    }

    fn text(&self) -> String {
        let mut rows = table([
            "workload",
            "case",
            "candidate",
            "baseline",
            "ratio",
            "verdict",
            "promise",
            "to floor",
            "reached",
        ]);
        for record in &self.records {
            match &record.performance {
                Some(performance) => {
                    for bench in &performance.cases {
                        rows.add_row(row(&record.workload, bench));
                    }
                }
                None => {
                    let said = performance(record).map_or("not run", word);
                    rows.add_row([record.workload.as_str(), "", "", "", "", said]);
                }
            }
        }
        let mut text = format!("{rows}\n\n{}{}", self.peers(), self.reasons());
        if let Some(file) = &self.recorded_in {
            let _ = writeln!(text, "recorded in {}", file.display());
        }
        text
    }

    /// A line for each peer of each benchmark, said once where they share it.
    fn peers(&self) -> Reasons {
        let mut lines = Reasons::default();
        for record in &self.records {
            let benches = record.performance.iter().flat_map(|performance| &performance.cases);
            for peer in benches.flat_map(|bench| &bench.peers) {
                let said = match peer {
                    PeerRecord::NotMeasured { peer, why } => format!("{peer} not measured: {why}"),
                    PeerRecord::Measured { peer, operation, summary, ratio: found, verdict, .. } => format!(
                        "{peer} {operation} takes {}; the candidate takes {} of that: {verdict}",
                        time(summary.median_ns),
                        ratio(*found)
                    ),
                };
                lines.add(said, &record.workload);
            }
        }
        lines
    }

    fn reasons(&self) -> Reasons {
        let mut reasons = Reasons::default();
        for record in &self.records {
            for gate in record.gates.iter().filter(|gate| !gate.outcome.is_passed()) {
                reasons.add(format!("{} ({}) {}", gate.gate, gate.target, gate.outcome), &record.workload);
            }
            if let Some(why) =
                record.performance.as_ref().and_then(|performance| performance.throttled.as_ref())
            {
                reasons.add(format!("throttled: {why}"), &record.workload);
            }
        }
        reasons
    }
}

/// What became of a promise against a recorded time.
fn recorded_promise(promise: &RecordedPromise) -> String {
    let at_most = promise.expectation.at_most;
    match (&promise.record, promise.fulfilment) {
        (None, _) => "the first on this device".to_owned(),
        (Some(id), Fulfilment::Met) => format!("met (at most {at_most:.3} of {id})"),
        (Some(id), Fulfilment::Missed) => format!("missed (at most {at_most:.3} of {id})"),
        (Some(id), Fulfilment::Undecided) => format!("undecided (at most {at_most:.3} of {id})"),
    }
}

fn row(workload: &str, bench: &BenchRecord) -> [String; 9] {
    let promise = match (&bench.expectation, bench.fulfilment) {
        (Some(promise), Some(kept)) => {
            let word = match kept {
                Fulfilment::Met => "met",
                Fulfilment::Missed => "missed",
                Fulfilment::Undecided => "undecided",
            };
            format!("{word} (at most {:.3})", promise.at_most)
        }
        _ => bench.recorded.as_ref().map_or_else(|| "none".to_owned(), recorded_promise),
    };
    let floor =
        bench.roofline.map_or_else(|| "none".to_owned(), |floor| format!("{:.2}", floor.ratio_to_floor));
    [
        workload.to_owned(),
        bench.case.clone(),
        time(bench.candidate.summary.median_ns),
        format!("{} ({})", time(bench.baseline.summary.median_ns), bench.baseline.name),
        ratio(bench.ratio),
        bench.verdict.to_string(),
        promise,
        floor,
        reached(bench),
    ]
}

/// What the candidate reached, in the unit that bounds it.
fn reached(bench: &BenchRecord) -> String {
    let compute = bench.roofline.is_some_and(|floor| floor.bound == gatework_lab::measure::Bound::Compute);
    if compute { rate(bench.operations_per_second, "FLOP") } else { rate(bench.bytes_per_second, "B") }
}
