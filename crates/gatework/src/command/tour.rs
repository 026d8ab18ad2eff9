//! One small checked job of everything there is, on what this machine has.

use std::time::Instant;

use gatework_gpu::{Device, Kind, Target};
use gatework_lab::{Outcome, Registry, Workload, check_case};
use serde::Serialize;

use crate::command::attention::stop as attention;
use crate::command::device::{DeviceChoice, open_emulated};
use crate::command::ending::{Ending, Failure};
use crate::command::output::{Output, Reasons, table, word};
use crate::command::private::{model_stop as private_model, stop as private};
use crate::command::progress::Progress;
use crate::command::stark::stop as stark;

const SEED: u64 = 1;

/// Where the stops run, or why they do not.
enum Vehicle {
    Device(Device),
    None { why: String },
}

#[derive(Serialize)]
struct Tour {
    device: Option<String>,
    stops: Vec<Stop>,
}

#[derive(Serialize)]
struct Stop {
    name: String,
    summary: String,
    case: String,
    #[serde(flatten)]
    outcome: Outcome,
    seconds: f64,
}

pub(crate) fn run(
    registry: &Registry,
    choice: &DeviceChoice,
    output: &Output,
    progress: &Progress,
) -> Result<Ending, Failure> {
    let vehicle = Vehicle::choose(choice, progress)?;
    // The command of a crate that has kernels of its own and no more does not tour what it is not made of.
    let has = |engine: &str| registry.iter().any(|workload| workload.name().starts_with(engine));
    let (has_attention, has_private, has_stark) = (has("attention/"), has("fss/"), has("stark/"));
    let engines = usize::from(has_attention) + 2 * usize::from(has_private) + usize::from(has_stark);
    let jobs = progress.start(registry.iter().len() + engines);
    let mut stops = Vec::new();
    for workload in registry.iter() {
        jobs.doing(workload.name().to_owned());
        stops.extend(vehicle.visit(workload));
        jobs.done();
    }
    if has_attention {
        jobs.doing("attention".to_owned());
        let target = vehicle.target(choice);
        stops.push(visit_engine("attention", attention::SUMMARY, || attention::visit(&target)));
        jobs.done();
    }
    if has_private {
        jobs.doing("private".to_owned());
        stops.push(visit_engine("private", private::SUMMARY, private::visit));
        jobs.done();
        jobs.doing("private/model".to_owned());
        stops.push(visit_engine("private/model", private_model::SUMMARY, private_model::visit));
        jobs.done();
    }
    if has_stark {
        jobs.doing("stark".to_owned());
        let target = vehicle.target(choice);
        stops.push(visit_engine("stark", stark::SUMMARY, || stark::visit(&target)));
        jobs.done();
    }
    drop(jobs);
    let tour = Tour { device: vehicle.name(), stops };
    output.show(&tour, || tour.text())?;
    Ok(tour.ending())
}

/// An engine as a program uses it, which runs on the CPU too.
fn visit_engine(name: &str, summary: &str, visit: impl FnOnce() -> (String, Outcome)) -> Stop {
    let started = Instant::now();
    let (case, outcome) = visit();
    Stop {
        name: name.to_owned(),
        summary: summary.to_owned(),
        case,
        outcome,
        seconds: started.elapsed().as_secs_f64(),
    }
}

impl Tour {
    /// A tour that could go nowhere is not done.
    fn ending(&self) -> Ending {
        if self.stops.iter().any(|stop| stop.outcome.is_failed()) {
            Ending::GateFailed
        } else if self.stops.iter().any(|stop| stop.outcome.is_passed()) {
            Ending::Done
        } else {
            Ending::DeviceFailed
        }
    }
}

impl Vehicle {
    fn choose(choice: &DeviceChoice, progress: &Progress) -> Result<Self, Failure> {
        match choice {
            DeviceChoice::Auto => Ok(Self::best(progress)),
            DeviceChoice::Cpu => {
                Ok(Self::None { why: "kernels do not run on the CPU; use --device emulated".to_owned() })
            }
            DeviceChoice::Cuda(ordinal) => Ok(Self::Device(Device::open(&format!("cuda:{ordinal}"))?)),
            DeviceChoice::Emulated => Ok(Self::Device(open_emulated()?)),
        }
    }

    /// CUDA; else the emulated device, because most stops are kernels and nothing else.
    fn best(progress: &Progress) -> Self {
        let absent = match Device::open("auto") {
            Ok(device) => return Self::Device(device),
            Err(absent) => absent,
        };
        match open_emulated() {
            Ok(device) => {
                progress.say(&format!("{absent}; engines run on the CPU, kernels on the emulated device"));
                Self::Device(device)
            }
            Err(failure) => Self::None { why: format!("{absent}; {failure}") },
        }
    }

    /// Where engines run: the emulated device is for kernels, unless it was asked for by name.
    fn target(&self, choice: &DeviceChoice) -> Target {
        match self {
            Self::Device(device) if !device.is_emulated() || *choice == DeviceChoice::Emulated => {
                device.clone().into()
            }
            _ => Target::Cpu,
        }
    }

    fn name(&self) -> Option<String> {
        match self {
            Self::Device(device) => {
                Some(format!("{} ({})", device.properties().id, device.properties().name))
            }
            Self::None { .. } => None,
        }
    }

    /// The largest of the cases that are small enough for any device. A workload without one has no stop.
    fn visit(&self, workload: &dyn Workload) -> Option<Stop> {
        let case = workload.cases(Kind::Emulated).pop()?;
        let started = Instant::now();
        let outcome = match self {
            Self::Device(device) => check_case(workload, device, &case, SEED).outcome,
            Self::None { why } => Outcome::NotRun { why: why.clone() },
        };
        Some(Stop {
            name: workload.name().to_owned(),
            summary: workload.summary().to_owned(),
            case: case.name,
            outcome,
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

impl Tour {
    fn text(&self) -> String {
        let mut rows = table(["stop", "what it computes", "case", "result", "seconds"]);
        let mut reasons = Reasons::default();
        for stop in &self.stops {
            let seconds = format!("{:.2}", stop.seconds);
            rows.add_row([&stop.name, &stop.summary, &stop.case, word(&stop.outcome), &seconds]);
        }
        for stop in self.stops.iter().filter(|stop| !stop.outcome.is_passed()) {
            reasons.add(stop.outcome.to_string(), &stop.name);
        }
        let passed = self.stops.iter().filter(|stop| stop.outcome.is_passed()).count();
        let on = self.device.as_ref().map_or_else(String::new, |device| format!(" on {device}"));
        format!("{rows}\n\n{reasons}{passed} of {} stops passed{on}", self.stops.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tour_that_could_go_nowhere_is_not_done() {
        let stop = |outcome| Stop {
            name: "a".into(),
            summary: String::new(),
            case: String::new(),
            outcome,
            seconds: 0.0,
        };
        let ending = |outcomes: &[Outcome]| {
            Tour { device: None, stops: outcomes.iter().cloned().map(stop).collect() }.ending()
        };
        let not_run = Outcome::NotRun { why: "no device".into() };
        let failed = Outcome::Failed { why: "wrong".into() };
        assert_eq!(ending(std::slice::from_ref(&not_run)), Ending::DeviceFailed);
        assert_eq!(ending(&[not_run.clone(), Outcome::Passed]), Ending::Done);
        assert_eq!(ending(&[not_run, Outcome::Passed, failed]), Ending::GateFailed);
    }
}
