//! Equal to the reference within its budget, the same bits twice, and every negative control refused.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gatework_gpu::{Device, Error, Observer};

use super::{Outcome, TestBed};
use crate::Workload;
use crate::budget::{Deviation, ErrorBudget};
use crate::case::{Case, runtime_error};
use crate::control::Control;
use crate::record::CaseRecord;
use crate::tensor::Outputs;

/// What checking one case with one seed showed.
#[derive(Debug, Clone)]
pub struct Checked {
    /// Whether the outputs are right.
    pub outcome: Outcome,
    /// How far each output was from the reference.
    pub deviations: Vec<(String, Deviation)>,
    /// The negative controls that were refused, as they must be.
    pub controls: Vec<String>,
}

pub(super) fn run(
    workload: &dyn Workload,
    bed: &TestBed,
    seeds: &Range<u64>,
    observer: &dyn Observer,
) -> (Outcome, Vec<CaseRecord>) {
    let device = match bed {
        TestBed::Device(device) => device,
        TestBed::CompilersOnly { why } => return (Outcome::not_run(why), Vec::new()),
    };
    let mut records = Vec::new();
    let cases = match guarded("listing the cases", || workload.cases(device.properties().kind)) {
        Ok(cases) => cases,
        Err(stop) => return (stop.into(), records),
    };
    if cases.is_empty() {
        return (Outcome::failed("refused: the workload has no case for this device"), records);
    }
    for case in &cases {
        let mut record = match guarded("the budget", || unchecked(workload, case)) {
            Ok(record) => record,
            Err(stop) => return (stop.into(), records),
        };
        let mut outcome = Outcome::Passed;
        let stage = observer.stage(&case.name);
        for (done, seed) in (0..).zip(seeds.clone()) {
            stage.counted("seeds", done, Some(seeds.end - seeds.start));
            let name = format!("seed {seed}");
            let _stage = observer.stage(&name);
            outcome = record.take(seed, check_case(workload, device, case, seed));
            if !outcome.is_passed() {
                break;
            }
        }
        records.push(record);
        if !outcome.is_passed() {
            return (outcome, records);
        }
    }
    (Outcome::Passed, records)
}

fn unchecked(workload: &dyn Workload, case: &Case) -> CaseRecord {
    CaseRecord {
        name: case.name.clone(),
        dimensions: case.dimensions.clone(),
        seeds: Vec::new(),
        work: workload.work(case),
        budget: workload.budget(case),
        errors: BTreeMap::new(),
        controls: Vec::new(),
    }
}

impl CaseRecord {
    /// Adds what one seed showed.
    fn take(&mut self, seed: u64, checked: Checked) -> Outcome {
        self.seeds.push(seed);
        for (output, deviation) in checked.deviations {
            self.errors
                .entry(output)
                .and_modify(|worst| *worst = worst.worse(deviation))
                .or_insert(deviation);
        }
        self.controls.extend(checked.controls);
        self.controls.sort();
        self.controls.dedup();
        checked.outcome
    }
}

/// Checks one case of a workload with one seed, as the correctness gate does.
pub fn check_case(workload: &dyn Workload, device: &Device, case: &Case, seed: u64) -> Checked {
    let mut checked = Checked { outcome: Outcome::Passed, deviations: Vec::new(), controls: Vec::new() };
    if let Err(stop) = checked.fill(workload, device, case, seed) {
        checked.outcome = stop.at(case, seed).into();
    }
    checked
}

/// Why a check ended early.
pub(super) enum Stop {
    Failed(String),
    NotRun(String),
}

impl Stop {
    fn at(self, case: &Case, seed: u64) -> Self {
        match self {
            Self::Failed(why) => Self::Failed(format!("case '{}', seed {seed}: {why}", case.name)),
            not_run => not_run,
        }
    }
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed(why) => Self::Failed { why },
            Stop::NotRun(why) => Self::NotRun { why },
        }
    }
}

impl Checked {
    fn fill(&mut self, workload: &dyn Workload, device: &Device, case: &Case, seed: u64) -> Result<(), Stop> {
        let budget = guarded("the budget", || workload.budget(case))?;
        let reference = guarded("the reference", || workload.reference(case, seed))?;
        if let Some(why) = reference.emptiness() {
            return Err(Stop::Failed(format!("the reference says nothing: {why}")));
        }
        if let Some(why) = budget.judge(&reference, &reference).refused {
            return Err(Stop::Failed(format!("the reference does not pass its own budget: {why}")));
        }
        let controls = guarded("making the controls", || workload.controls(case, seed, &reference))?;
        // Before the device runs: the verdict of a gate that cannot see is worth nothing.
        self.controls = refused_controls(&budget, &reference, controls)?;

        let first = run_once(workload, device, case, seed, seed.wrapping_mul(2))?;
        let judgement = budget.judge(&first, &reference);
        self.deviations = judgement.deviations;
        if let Some(why) = judgement.refused {
            return Err(Stop::Failed(why));
        }
        let second = run_once(workload, device, case, seed, seed.wrapping_mul(2) | 1)?;
        match first.first_difference(&second) {
            Some(difference) => Err(Stop::Failed(format!("two runs differ: {difference}"))),
            None => Ok(()),
        }
    }
}

fn refused_controls(
    budget: &ErrorBudget,
    reference: &Outputs,
    controls: Vec<Control>,
) -> Result<Vec<String>, Stop> {
    if controls.is_empty() {
        let why = "refused: the workload has no negative control, so nothing shows that this gate can fail";
        return Err(Stop::Failed(why.to_owned()));
    }
    // A control of NaNs, or of another shape, is refused by any budget: it shows nothing of how far this one reaches.
    let plausible = |control: &Control| {
        control.outputs.is_finite() && ErrorBudget::same_shape(&control.outputs, reference)
    };
    if !controls.iter().any(plausible) {
        let why = "refused: no negative control is finite and of the reference's shape";
        return Err(Stop::Failed(why.to_owned()));
    }
    for control in controls.iter().chain(&Control::of_the_lab(reference, budget)) {
        let name = &control.name;
        if control.outputs == *reference {
            return Err(Stop::Failed(format!(
                "the control '{name}' is the reference itself: it must be wrong"
            )));
        }
        if budget.judge(&control.outputs, reference).refused.is_none() {
            let why = format!("the gate is blind: its budget accepts the control '{name}', which is wrong");
            return Err(Stop::Failed(why));
        }
    }
    Ok(controls.into_iter().map(|control| control.name).collect())
}

fn run_once(
    workload: &dyn Workload,
    device: &Device,
    case: &Case,
    seed: u64,
    schedule: u64,
) -> Result<Outputs, Stop> {
    let device = TestBed::ready(device, schedule).map_err(|error| Stop::NotRun(error.to_string()))?;
    guarded("the run", || workload.run(&device, case, seed))?.map_err(|error| {
        if let Some(missing @ (Error::NoNvrtc { .. } | Error::NoCompiler { .. })) = runtime_error(&error) {
            return Stop::NotRun(missing.to_string());
        }
        let on = if device.is_emulated() { format!(" (emulator seed {schedule})") } else { String::new() };
        Stop::Failed(format!("the run failed{on}: {error}"))
    })
}

/// Turns a panic of the workload's own code into a failure, so that one workload does not take the others down.
pub(super) fn guarded<T>(what: &str, code: impl FnOnce() -> T) -> Result<T, Stop> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        let text =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Stop::Failed(format!("{what} panicked: {}", text.unwrap_or("without a message")))
    })
}
