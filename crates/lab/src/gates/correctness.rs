//! Equal to the reference within its budget, the same bits twice, and every negative control refused.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use gatework_gpu::{Device, Error, Notice, Observer};

use super::{Outcome, TestBed};
use crate::Workload;
use crate::budget::{Deviation, ErrorBudget};
use crate::case::{Case, runtime_error};
use crate::control::Control;
use crate::record::CaseRecord;
use crate::tensor::Outputs;

/// The outcome of one case with one seed.
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
    let cases = match guarded("listing the cases", || workload.cases(device.properties().kind)) {
        Ok(cases) => cases,
        Err(stop) => return (stop.into(), Vec::new()),
    };
    if cases.is_empty() {
        return (Outcome::failed("refused: the workload has no case for this device"), Vec::new());
    }
    let mut records = Vec::new();
    for case in &cases {
        match guarded("the budget", || unchecked(workload, case)) {
            Ok(record) => records.push(record),
            Err(stop) => return (stop.into(), records),
        }
    }
    let checks: Vec<(usize, u64)> =
        (0..cases.len()).flat_map(|case| seeds.clone().map(move |seed| (case, seed))).collect();
    let card = Mutex::new(());
    let turn = if device.is_emulated() { None } else { Some(&card) };
    let check = |&(case, seed): &(usize, u64)| check(workload, device, turn, &cases[case], seed);
    let checked = until_failure(&checks, check, |checked| checked.outcome.is_passed(), observer);

    let mut outcome = Outcome::Passed;
    let mut reached = 0;
    for (&(case, seed), checked) in checks.iter().zip(checked) {
        reached = case + 1;
        outcome = records[case].take(seed, checked);
    }
    records.truncate(reached);
    (outcome, records)
}

/// Does `items` in their order on all cores, up to the first that is not `good`. All that come before that
/// one are done, whichever core was faster, so that the answer does not depend on the machine.
///
/// Threads of its own: one that waits for the card must not be a thread that a reference needs for its own
/// work.
fn until_failure<I: Sync, T: Send>(
    items: &[I],
    work: impl Fn(&I) -> T + Sync,
    good: impl Fn(&T) -> bool + Sync,
    observer: &dyn Observer,
) -> Vec<T> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let (next, bad) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let (sender, receiver) = mpsc::channel();
    let count = |done| {
        observer.hear(Notice::Counted { what: "checks", done, of: Some(items.len() as u64) });
    };
    let mut done: Vec<Option<T>> = items.iter().map(|_| None).collect();
    thread::scope(|scope| {
        for _ in 0..cores.min(items.len()) {
            let (sender, next, bad, work, good) = (sender.clone(), &next, &bad, &work, &good);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= items.len() || index > bad.load(Ordering::Relaxed) {
                        return;
                    }
                    let result = work(&items[index]);
                    if !good(&result) {
                        bad.fetch_min(index, Ordering::Relaxed);
                    }
                    // Nobody listens only if the gate itself has panicked.
                    let _ = sender.send((index, result));
                }
            });
        }
        drop(sender);
        count(0);
        for (so_far, (index, result)) in (1..).zip(receiver) {
            done[index] = Some(result);
            count(so_far);
        }
    });
    let last = bad.into_inner();
    done.into_iter().take(last.saturating_add(1)).map_while(|result| result).collect()
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
    check(workload, device, None, case, seed)
}

/// References, inputs of controls and judgements are made beside each other; with a `turn`, runs take theirs
/// on the card, whose pools and memory a workload may then count on having for itself.
fn check(
    workload: &dyn Workload,
    device: &Device,
    turn: Option<&Mutex<()>>,
    case: &Case,
    seed: u64,
) -> Checked {
    let mut checked = Checked { outcome: Outcome::Passed, deviations: Vec::new(), controls: Vec::new() };
    if let Err(stop) = checked.fill(workload, device, turn, case, seed) {
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
    fn fill(
        &mut self,
        workload: &dyn Workload,
        device: &Device,
        turn: Option<&Mutex<()>>,
        case: &Case,
        seed: u64,
    ) -> Result<(), Stop> {
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

        let run = |schedule| {
            let _turn = turn.map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
            run_once(workload, device, case, seed, schedule)
        };
        let first = run(seed.wrapping_mul(2))?;
        let judgement = budget.judge(&first, &reference);
        self.deviations = judgement.deviations;
        if let Some(why) = judgement.refused {
            return Err(Stop::Failed(why));
        }
        let second = run(seed.wrapping_mul(2) | 1)?;
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
    // A control of NaNs, or of another shape, is refused by any budget: it shows nothing of how far this one
    // reaches.
    let plausible = |control: &Control| {
        control.outputs.is_finite() && ErrorBudget::same_shape(&control.outputs, reference)
    };
    if !controls.iter().any(plausible) {
        let why = "refused: no negative control is finite and of the reference's shape";
        return Err(Stop::Failed(why.to_owned()));
    }
    let own = controls.iter().map(Cow::Borrowed);
    for control in own.chain(Control::of_the_lab(reference, budget).map(Cow::Owned)) {
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

/// Turns a panic of the workload's own code into a failure, so that one workload does not take the others
/// down.
pub(super) fn guarded<T>(what: &str, code: impl FnOnce() -> T) -> Result<T, Stop> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        let text =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Stop::Failed(format!("{what} panicked: {}", text.unwrap_or("without a message")))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The later of two failures is found first, and what comes before the earlier one takes longest.
    #[test]
    fn the_first_failure_in_order_is_the_answer_on_any_number_of_cores() {
        let items: Vec<u64> = (0..40).collect();
        for _ in 0..5 {
            let work = |&item: &u64| {
                thread::sleep(Duration::from_millis(if item < 5 { 8 - item } else { 0 }));
                item
            };
            let done = until_failure(&items, work, |&item| item != 4 && item != 6, &());
            assert_eq!(done, [0, 1, 2, 3, 4]);
        }
        assert_eq!(until_failure(&items, |&item| item, |_| true, &()), items);
        assert!(until_failure(&[] as &[u64], |&item| item, |_| true, &()).is_empty());
    }
}
