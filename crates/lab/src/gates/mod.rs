//! The gates, in order. The first that fails stops the rest.

mod bed;
mod compile;
mod correctness;
mod listings;
mod performance;
mod prepare;
mod resources;

use std::ops::Range;
use std::sync::Arc;

use gatework_gpu::Observer;
use serde_json::Map;

pub use bed::TestBed;
pub use correctness::{Checked, check_case};

use correctness::guarded;
use listings::Listings;

use crate::Workload;
use crate::measure::{PerformanceOptions, Station};
use crate::outcome::{Gate, Outcome};
use crate::record::{
    CaseRecord, DeviceRecord, GateRecord, KernelRecord, PerformanceRecord, RECORD_VERSION, Record, Revision,
    timestamp,
};

/// All gates, for one test bed and one set of seeds.
#[derive(Debug, Clone)]
pub struct Gates {
    bed: TestBed,
    seeds: Range<u64>,
    /// Where performance is measured, if it is asked for.
    station: Option<Arc<Station>>,
    listings: Arc<Listings>,
}

/// Seeds unless told otherwise.
const DEFAULT_SEEDS: Range<u64> = 0..3;

impl Gates {
    /// The gates on `bed`, with three seeds.
    pub fn new(bed: impl Into<TestBed>) -> Self {
        Self { bed: bed.into(), seeds: DEFAULT_SEEDS, station: None, listings: Arc::default() }
    }

    /// With other seeds. At least one runs.
    pub fn seeds(self, seeds: Range<u64>) -> Self {
        let end = seeds.end.max(seeds.start.saturating_add(1));
        Self { seeds: seeds.start..end, ..self }
    }

    /// With the performance gate, after the others and only for what passed them.
    pub fn performance(self, options: PerformanceOptions) -> Self {
        Self { station: Some(Arc::new(Station::new(options))), ..self }
    }

    /// Compiles the kernels of many workloads and lists their instructions on all cores, so that no gate
    /// waits for either. What does not compile fails its own gate, later.
    pub fn prepare(&self, workloads: &[&dyn Workload]) {
        prepare::compile_all(&prepare::sources(workloads, &self.bed.architectures()), &self.listings);
    }

    /// Sends a workload through the gates. `observer` hears of the workload, of every gate, and in a gate of
    /// every case.
    pub fn gate(&self, workload: &dyn Workload, observer: &dyn Observer) -> Record {
        let _span = tracing::info_span!("gate", workload = workload.name()).entered();
        let _workload = observer.stage(workload.name());
        let mut findings =
            Findings { device: self.bed.device().map(DeviceRecord::of), ..Findings::default() };

        let stage = observer.stage(Gate::Compile.name());
        let (specs, unlisted) = match guarded("listing the kernels", || workload.kernels()) {
            Ok(specs) => (specs, None),
            Err(stop) => (Vec::new(), Some(Outcome::from(stop))),
        };
        let compilation = match unlisted {
            None => compile::run(&specs, &self.bed.architectures()),
            Some(outcome) => compile::Compilation::refused(&self.bed.architectures(), &outcome),
        };
        findings.gates.extend(compilation.gates);
        findings.kernels = compilation.kernels;

        drop(stage);
        let stage = observer.stage(Gate::Resources.name());
        for architecture in
            self.bed.architectures().iter().filter(|architecture| resources::has_figures(architecture))
        {
            let outcome = findings.unless_stopped(|findings| {
                resources::run(
                    &specs,
                    architecture,
                    &compilation.binaries,
                    &self.listings,
                    &mut findings.kernels,
                )
            });
            findings.push(Gate::Resources, architecture, outcome);
        }

        drop(stage);
        let stage = observer.stage(Gate::Correctness.name());
        let outcome = findings.unless_stopped(|findings| {
            let (outcome, cases) = correctness::run(workload, &self.bed, &self.seeds, observer);
            findings.cases = cases;
            outcome
        });
        findings.push(Gate::Correctness, self.bed.name(), outcome);

        if let Some(station) = &self.station {
            drop(stage);
            let _stage = observer.stage(Gate::Performance.name());
            let outcome = findings.unless_incorrect(|findings| {
                let (outcome, record) = performance::run(workload, &self.bed, station, observer);
                findings.performance = record;
                outcome
            });
            findings.push(Gate::Performance, self.bed.name(), outcome);
        }
        findings.into_record(workload.name())
    }
}

/// What the gates have found so far.
#[derive(Default)]
struct Findings {
    device: Option<DeviceRecord>,
    gates: Vec<GateRecord>,
    kernels: Vec<KernelRecord>,
    cases: Vec<CaseRecord>,
    performance: Option<PerformanceRecord>,
}

impl Findings {
    fn push(&mut self, gate: Gate, target: impl std::fmt::Display, outcome: Outcome) {
        self.gates.push(GateRecord { gate, target: target.to_string(), outcome });
    }

    /// Runs a gate, unless an earlier one failed.
    fn unless_stopped(&mut self, gate: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        match self.failure() {
            Some(failed) => Outcome::not_run(format!("the {} gate failed", failed.gate)),
            None => gate(self),
        }
    }

    /// Times something, unless it was not shown to be right: how fast a wrong answer comes does not matter.
    fn unless_incorrect(&mut self, gate: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        let correctness = self.gates.iter().find(|gate| gate.gate == Gate::Correctness);
        match correctness.map(|correctness| &correctness.outcome) {
            Some(Outcome::NotRun { why }) if self.failure().is_none() => {
                Outcome::not_run(format!("the correctness gate was not run: {why}"))
            }
            _ => self.unless_stopped(gate),
        }
    }

    fn failure(&self) -> Option<&GateRecord> {
        self.gates.iter().find(|gate| gate.outcome.is_failed())
    }

    /// Passed only if no gate failed and the correctness gate ran.
    fn verdict(&self) -> Outcome {
        let correctness = self.gates.iter().find(|gate| gate.gate == Gate::Correctness);
        match (self.failure(), correctness) {
            (Some(GateRecord { gate, target, outcome: Outcome::Failed { why } }), _) => {
                Outcome::failed(format!("{gate} ({target}): {why}"))
            }
            (_, Some(correctness)) => correctness.outcome.clone(),
            (_, None) => Outcome::not_run("the correctness gate was not reached"),
        }
    }

    fn into_record(self, workload: &str) -> Record {
        Record {
            version: RECORD_VERSION,
            workload: workload.to_owned(),
            verdict: self.verdict(),
            time: timestamp(),
            gatework: env!("CARGO_PKG_VERSION").to_owned(),
            revision: Revision::current(),
            device: self.device,
            gates: self.gates,
            kernels: self.kernels,
            cases: self.cases,
            performance: self.performance,
            measured: None,
            profile: None,
            tuning: None,
            other: Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(outcomes: [(Gate, Outcome); 3]) -> Outcome {
        let mut findings = Findings::default();
        for (gate, outcome) in outcomes {
            findings.push(gate, "emulated", outcome);
        }
        findings.verdict()
    }

    #[test]
    fn a_verdict_is_passed_only_if_correctness_ran() {
        let absent = || Outcome::not_run("no NVRTC");
        let with = |correctness| {
            verdict([
                (Gate::Compile, Outcome::Passed),
                (Gate::Resources, absent()),
                (Gate::Correctness, correctness),
            ])
        };
        assert_eq!(with(Outcome::Passed), Outcome::Passed);
        assert_eq!(with(absent()), absent());
    }

    #[test]
    fn a_failure_anywhere_is_the_verdict() {
        let why = verdict([
            (Gate::Compile, Outcome::Passed),
            (Gate::Resources, Outcome::failed("8 bytes spilled")),
            (Gate::Correctness, Outcome::Passed),
        ]);
        assert_eq!(why, Outcome::failed("resources (emulated): 8 bytes spilled"));
    }

    #[test]
    fn what_is_wrong_or_was_not_checked_is_never_timed() {
        for correctness in [Outcome::failed("off by one"), Outcome::not_run("no device")] {
            let mut findings = Findings::default();
            findings.push(Gate::Correctness, "cuda:0", correctness);
            let outcome = findings.unless_incorrect(|_| unreachable!("it was timed"));
            assert!(matches!(outcome, Outcome::NotRun { .. }), "{outcome}");
        }
    }

    #[test]
    fn an_outcome_reads_as_one_line_of_a_record() {
        let record = GateRecord {
            gate: Gate::Resources,
            target: "sm_90a".into(),
            outcome: Outcome::not_run("no NVRTC"),
        };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(text, r#"{"gate":"resources","target":"sm_90a","outcome":"not-run","why":"no NVRTC"}"#);
        assert_eq!(serde_json::from_str::<GateRecord>(&text).unwrap(), record);
    }
}
