//! `gatework lab gate`: workloads through the gates, a record of each.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;

use clap::Args;
use gatework_lab::measure::PerformanceOptions;
use gatework_lab::{Gate, Gates, Outcome, Record, Registry, Workload, peers};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::output::{Reasons, table, word};
use crate::command::recorder::Recorder;
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework lab gate --all                                  # on the first CUDA device
  gatework lab gate --all --device emulated                # on a machine without one
  gatework lab gate gpu/saxpy gpu/reduce --seeds 10
  gatework lab gate gpu/reduce --first-seed 7 --seeds 1    # one seed again
  gatework lab gate --all --device cpu --no-record         # compile only";

/// What to gate, and where the records go.
#[derive(Debug, Args)]
pub(crate) struct GateOptions {
    /// Names of workloads, or patterns such as 'gpu/*'; 'gatework lab list' shows them all
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    pub(super) names: Vec<String>,
    /// Gate every workload
    #[arg(long)]
    pub(super) all: bool,
    /// Number of seeds to check each case with, at most 1000000
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(super) first_seed: u64,
    /// The folder to append records to
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(super) results: PathBuf,
    /// Also run the performance gate: time what passed
    #[arg(long)]
    pub(super) performance: bool,
    /// Do not write records
    #[arg(long)]
    pub(super) no_record: bool,
}

#[derive(Serialize)]
struct Gated {
    records: Vec<Record>,
    summary: Summary,
    /// The file the records were appended to.
    recorded_in: Option<PathBuf>,
}

impl schema::Document for Gated {
    const SCHEMA: schema::Schema = schema::LAB_GATE;
}

#[derive(Serialize)]
struct Summary {
    passed: usize,
    failed: usize,
    not_run: usize,
}

pub(super) fn run(options: &GateOptions, shell: &Shell) -> Result<Ending, Failure> {
    let workloads = chosen(&shell.registry, options)?;
    let mut gates = Gates::new(shell.test_bed()?).seeds(seeds(options)?);
    if options.performance {
        gates = gates.performance(PerformanceOptions {
            peers: peers::installed(),
            recorded: shell.recorded_times(&options.results)?,
            ..Default::default()
        });
    }
    let mut recorder = Recorder::open((!options.no_record).then_some(options.results.as_path()))?;

    let records = recorder.gate_each(&gates, workloads, &shell.progress);
    let gated = Gated { summary: Summary::of(&records), records, recorded_in: recorder.file };
    shell.output.show(&gated, || gated.text())?;
    recorder.failure.map_or_else(|| Ok(gated.summary.ending()), |error| Err(error.into()))
}

/// A range that ends beyond the last seed would be short of some, or empty: a gate that nothing can fail.
fn seeds(options: &GateOptions) -> Result<Range<u64>, Failure> {
    let (first, count) = (options.first_seed, options.seeds);
    let end = first.checked_add(count).ok_or_else(|| {
        Failure::input(format!("--first-seed {first}: there are no {count} seeds from there on: begin lower"))
    })?;
    Ok(first..end)
}

fn chosen<'a>(registry: &'a Registry, options: &GateOptions) -> Result<Vec<&'a dyn Workload>, Failure> {
    if options.all {
        return Ok(registry.iter().collect());
    }
    named(registry, &options.names)
}

/// The workloads of those names and patterns, each once.
pub(super) fn named<'a>(registry: &'a Registry, names: &[String]) -> Result<Vec<&'a dyn Workload>, Failure> {
    let mut chosen: Vec<&dyn Workload> = Vec::new();
    for name in names {
        for workload in registry.select(name)? {
            if chosen.iter().all(|earlier| earlier.name() != workload.name()) {
                chosen.push(workload);
            }
        }
    }
    Ok(chosen)
}

impl Summary {
    fn of(records: &[Record]) -> Self {
        let count =
            |which: fn(&Outcome) -> bool| records.iter().filter(|record| which(&record.verdict)).count();
        Self {
            passed: count(Outcome::is_passed),
            failed: count(Outcome::is_failed),
            not_run: count(|verdict| matches!(verdict, Outcome::NotRun { .. })),
        }
    }

    fn ending(&self) -> Ending {
        match self {
            Self { failed: 1.., .. } => Ending::GateFailed,
            Self { not_run: 1.., .. } => Ending::DeviceFailed,
            _ => Ending::Done,
        }
    }
}

impl Gated {
    fn text(&self) -> String {
        let mut rows = table(["workload", "compile", "resources", "correctness", "performance", "verdict"]);
        for record in &self.records {
            let gates = [Gate::Compile, Gate::Resources, Gate::Correctness, Gate::Performance]
                .map(|gate| cell(record, gate));
            let verdict = word(&record.verdict).to_owned();
            rows.add_row([vec![record.workload.clone()], gates.to_vec(), vec![verdict]].concat());
        }
        let Summary { passed, failed, not_run } = self.summary;
        let mut text =
            format!("{rows}\n\n{}{passed} passed, {failed} failed, {not_run} not run", self.reasons());
        if let Some(file) = &self.recorded_in {
            let _ = write!(text, "; recorded in {}", file.display());
        }
        text
    }

    fn reasons(&self) -> Reasons {
        let mut reasons = Reasons::default();
        for record in &self.records {
            for gate in record.gates.iter().filter(|gate| !gate.outcome.is_passed()) {
                reasons.add(format!("{} ({}) {}", gate.gate, gate.target, gate.outcome), &record.workload);
            }
        }
        reasons
    }
}

/// What a gate said, a line for each of its targets.
fn cell(record: &Record, gate: Gate) -> String {
    let lines = record.gates.iter().filter(|found| found.gate == gate);
    let cell = lines.map(|found| format!("{}: {}", found.target, word(&found.outcome)));
    let cell = cell.collect::<Vec<_>>().join("\n");
    if cell.is_empty() { "not asked for".to_owned() } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_outweighs_what_was_not_run() {
        let ending = |passed, failed, not_run| Summary { passed, failed, not_run }.ending();
        assert_eq!(ending(3, 0, 0), Ending::Done);
        assert_eq!(ending(3, 0, 1), Ending::DeviceFailed);
        assert_eq!(ending(3, 1, 1), Ending::GateFailed);
    }
}
