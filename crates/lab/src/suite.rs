//! The conformance suite: one call in a test without a harness of its own gives every workload of an engine
//! its tests.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     gatework_lab::suite(gatework_lab::runtime::workloads()).run()
//! }
//! ```
//!
//! For each workload there is a test of every case on the emulated device (`gpu/saxpy::n31`), one of what its
//! benchmarks' candidates compute (`gpu/saxpy::bench`), and one of what its kernels take of a GPU
//! (`gpu/saxpy::resources`): all that the gates look at, a test each. [`Suite::mutants`] adds the hunt for
//! mutants. What cannot run here is shown as ignored, with the reason, and never as passed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

use gatework_gpu::{Device, Kind, on_all_cores};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::case::Case;
use crate::gates::{Gates, TestBed, check_case};
use crate::mutation::{Fate, Mutant, hunt, mutants};
use crate::outcome::{Gate, Outcome};
use crate::record::GateRecord;
use crate::workload::Workload;

/// Schedules within which a mutant must fail.
const MUTANT_SEEDS: u64 = 20;
/// The seed of a case's test.
const SEED: u64 = 1;

/// A mutant that passes every schedule, and why that is no fault.
#[derive(Debug, Clone, Copy)]
pub struct Excused {
    /// The workload's name.
    pub workload: &'static str,
    /// A part of what a [`Mutant`] prints.
    pub mutant: &'static str,
    /// Why no schedule can find it out.
    pub why: &'static str,
}

/// The tests of an engine's workloads.
pub struct Suite {
    workloads: Vec<Arc<dyn Workload>>,
    least_controls: usize,
    hunted: Vec<Arc<dyn Workload>>,
    least_mutants: usize,
    excused: &'static [Excused],
}

/// The suite of `workloads`.
pub fn suite(workloads: Vec<Box<dyn Workload>>) -> Suite {
    let workloads = workloads.into_iter().map(Arc::from).collect();
    Suite { workloads, least_controls: 1, hunted: Vec::new(), least_mutants: 0, excused: &[] }
}

impl Suite {
    /// With at least so many negative controls in every case.
    pub fn controls(self, least: usize) -> Self {
        Self { least_controls: least, ..self }
    }

    /// With a test that every mutant of the workloads' own kernels is caught, of which there are at least
    /// `least`, but for those of one list.
    pub fn mutants(self, least: usize, excused: &'static [Excused]) -> Self {
        Self { hunted: self.workloads.clone(), least_mutants: least, excused, ..self }
    }

    /// The same, with mutants of the kernels of other workloads: a busier configuration, or one of many
    /// alike.
    pub fn mutants_of(
        self,
        workloads: Vec<Box<dyn Workload>>,
        least: usize,
        excused: &'static [Excused],
    ) -> Self {
        Self { hunted: workloads.into_iter().map(Arc::from).collect(), least_mutants: least, excused, ..self }
    }

    /// Runs the tests that the command line asks for, as every test of cargo's does.
    pub fn run(self) -> ExitCode {
        let arguments = Arguments::from_args();
        libtest_mimic::run(&arguments, self.trials()).exit_code()
    }

    fn trials(self) -> Vec<Trial> {
        let mut trials = Vec::new();
        for workload in &self.workloads {
            let name = workload.name().to_owned();
            let listed = catch_unwind(AssertUnwindSafe(|| workload.cases(Kind::Emulated)));
            match listed {
                Ok(cases) => trials.extend(cases.into_iter().map(|case| {
                    let (workload, least) = (workload.clone(), self.least_controls);
                    let title = format!("{name}::{}", case.name);
                    Trial::ignorable_test(title, move || check(workload.as_ref(), &case, least))
                })),
                Err(_) => trials.push(Trial::test(format!("{name}::cases"), || {
                    Err(Failed::from("listing the cases panicked"))
                })),
            }
            let timed = workload.clone();
            trials.push(Trial::ignorable_test(format!("{name}::bench"), move || try_out(timed.as_ref())));
            let built = workload.clone();
            trials
                .push(Trial::ignorable_test(format!("{name}::resources"), move || resources(built.as_ref())));
        }
        if !self.hunted.is_empty() {
            let Self { hunted, least_mutants, excused, .. } = self;
            trials.push(Trial::test("every_mutant_is_caught", move || {
                hunt_all(&hunted, least_mutants, excused)
            }));
        }
        trials
    }
}

/// Passed, or ignored with the reason, or failed with it.
fn completion(outcome: Outcome) -> Result<Completion, Failed> {
    match outcome {
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::NotRun { why } => Ok(Completion::ignored_with(why)),
        Outcome::Failed { why } => Err(why.into()),
    }
}

/// One case passes, every control is refused, and there is something to do.
fn check(workload: &dyn Workload, case: &Case, least_controls: usize) -> Result<Completion, Failed> {
    let device = match Device::open("emulated") {
        Ok(device) => device,
        Err(missing) => return Ok(Completion::ignored_with(missing)),
    };
    let checked = check_case(workload, &device, case, SEED);
    if checked.outcome.is_passed() && checked.controls.len() < least_controls {
        let found = checked.controls.len();
        return Err(format!("{found} negative controls where {least_controls} are asked for").into());
    }
    let work = workload.work(case);
    if work.operations + work.bytes == 0 {
        return Err("the case costs nothing: no operation and no byte".into());
    }
    completion(checked.outcome)
}

/// The candidate of every benchmark computes what its evidence says; how fast is asked of a card.
fn try_out(workload: &dyn Workload) -> Result<Completion, Failed> {
    let cases = workload.bench_cases(Kind::Emulated);
    if cases.is_empty() {
        return Ok(Completion::ignored_with("the workload has no benchmark for the emulated device"));
    }
    let device = match Device::open("emulated") {
        Ok(device) => device,
        Err(missing) => return Ok(Completion::ignored_with(missing)),
    };
    for case in &cases {
        let tried = workload.bench(&device, case).and_then(|bench| match bench {
            Some(bench) => bench.try_out(&device.stream()?),
            None => Ok(()),
        });
        tried.map_err(|error| format!("case '{}': {error}", case.name))?;
    }
    Ok(Completion::Completed)
}

/// What the kernels take of a GPU, which needs its compiler and no GPU.
fn resources(workload: &dyn Workload) -> Result<Completion, Failed> {
    let why = "the resource gate needs no device".to_owned();
    let record = Gates::new(TestBed::CompilersOnly { why }).gate(workload, &());
    // Where nothing was compiled, it is the compile gate that says why.
    let said = |wanted: Gate| {
        let found = |gate: &&GateRecord| gate.gate == wanted && gate.target != "emulated";
        record.gates.iter().find(found).map(|gate| gate.outcome.clone())
    };
    match (said(Gate::Compile), said(Gate::Resources)) {
        (Some(compiled), _) if !compiled.is_passed() => completion(compiled),
        (_, Some(outcome)) => completion(outcome),
        (_, None) => Ok(Completion::ignored_with("the workload has no kernels")),
    }
}

/// A kernel's text with one call changed, and whose it is.
struct Quarry {
    workload: Arc<dyn Workload>,
    original: String,
    mutant: Mutant,
    excuse: Option<Excused>,
}

impl Quarry {
    /// What is wrong about how it fared, if anything is.
    fn fault(&self) -> Result<Option<String>, Failed> {
        let Self { workload, original, mutant, excuse } = self;
        // That an excuse is still needed shows with the first schedule, or not at all.
        let seeds = if excuse.is_some() { 1 } else { MUTANT_SEEDS };
        let fate =
            hunt(workload.as_ref(), original, &mutant.text, seeds).map_err(|error| error.to_string())?;
        let name = workload.name();
        Ok(match (fate, excuse) {
            (Fate::Caught { .. }, None) | (Fate::Survived, Some(_)) => None,
            (Fate::Survived, None) => Some(format!("no schedule finds it out: {name} {mutant}")),
            (Fate::Caught { .. }, Some(Excused { why, .. })) => {
                Some(format!("it is caught, and was excused ({why}): {name} {mutant}"))
            }
        })
    }
}

/// The mutants of a workload's kernels, each text once, as far as the workload launches what they are in.
fn quarry_of(workload: &Arc<dyn Workload>, excused: &[Excused]) -> Result<Vec<Quarry>, Failed> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for spec in workload.kernels() {
        for path in &spec.headers {
            let text = spec.source.included(path).ok_or_else(|| format!("'{path}' is not included"))?;
            texts.entry(text.to_owned()).or_default();
        }
        texts.entry(spec.source.text().to_owned()).or_default().extend(spec.entries);
    }
    let mut found = Vec::new();
    for (text, entries) in texts {
        // A file of kernels may have some that this workload does not launch; another does.
        let launched = mutants(&text).into_iter().filter(|mutant| {
            enclosing(&text, mutant.line).is_none_or(|kernel| entries.iter().any(|entry| entry == kernel))
        });
        found.extend(launched.map(|mutant| {
            let told = mutant.to_string();
            let excuse =
                |excuse: &&Excused| excuse.workload == workload.name() && told.contains(excuse.mutant);
            Quarry {
                workload: workload.clone(),
                original: text.clone(),
                excuse: excused.iter().find(excuse).copied(),
                mutant,
            }
        }));
    }
    Ok(found)
}

/// The kernel that a line of a text is in; none before the first.
fn enclosing(text: &str, line: usize) -> Option<&str> {
    let header = text.lines().take(line).filter(|line| line.starts_with("GW_KERNEL")).last()?;
    let name = &header[header.find('(')? + 1..];
    Some(name[..name.find([',', ')'])?].trim())
}

/// Hunts all mutants on all cores.
fn hunt_all(workloads: &[Arc<dyn Workload>], least: usize, excused: &[Excused]) -> Result<(), Failed> {
    let mut quarry = Vec::new();
    for workload in workloads {
        quarry.extend(quarry_of(workload, excused)?);
    }
    let caught = quarry.iter().filter(|mutant| mutant.excuse.is_none()).count();
    if caught < least {
        return Err(format!("{caught} mutants where there were {least}: are the calls still found?").into());
    }
    let hunted = on_all_cores(quarry.len(), |index| quarry[index].fault());
    let faults: Vec<String> =
        hunted.into_iter().filter_map(Result::transpose).collect::<Result<_, Failed>>()?;
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n").into()) }
}
