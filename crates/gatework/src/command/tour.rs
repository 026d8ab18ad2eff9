//! One small checked job of everything there is, on what this machine has.

use std::time::Instant;

use gatework_gpu::{Device, DeviceChoice, Kind, Target};
use gatework_lab::{Outcome, Registry, Workload, check_case};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::noun::{Entry, Stop};
use crate::command::output::{Reasons, table, word};
use crate::command::schema;
use crate::command::shell::Shell;

const SEED: u64 = 1;

/// Where the stops run.
struct Places {
    /// Engines: as any command of theirs would.
    engines: Target,
    /// Kernels, which have no form for the CPU; or why they are not run.
    kernels: Result<Device, String>,
}

/// The stops of one engine.
struct Group<'a> {
    engine: String,
    stops: Vec<Stop<'a>>,
}

#[derive(Serialize)]
struct Tour {
    device: Option<String>,
    /// One engine's after the other's.
    stops: Vec<Visited>,
}

impl schema::Document for Tour {
    const SCHEMA: schema::Schema = schema::TOUR;
}

/// A stop where the tour has been.
#[derive(Serialize)]
struct Visited {
    engine: String,
    name: String,
    summary: String,
    case: String,
    #[serde(flatten)]
    outcome: Outcome,
    seconds: f64,
}

pub(crate) fn run(shell: &Shell, nouns: &[Entry]) -> Result<Ending, Failure> {
    let places = Places::choose(shell)?;
    let groups = groups(&shell.registry, nouns, &places);
    let jobs = shell.progress.start(groups.iter().map(|group| group.stops.len()).sum());
    let mut stops = Vec::new();
    for Group { engine, stops: of_engine } in groups {
        for stop in of_engine {
            jobs.doing(stop.name.clone());
            stops.push(Visited::go(&engine, stop));
            jobs.done();
        }
    }
    drop(jobs);
    let tour = Tour { device: places.device(), stops };
    shell.output.show(&tour, || tour.text())?;
    Ok(tour.ending())
}

/// The stops by engine, in the order of the nouns: the workloads of its area, then what the noun itself
/// shows. The command of a crate that has kernels of its own does not tour the engines that it is not made
/// of, and its own workloads are a group by the name of their area.
fn groups<'a>(registry: &'a Registry, nouns: &[Entry], places: &'a Places) -> Vec<Group<'a>> {
    let mut groups: Vec<(&str, Group<'a>)> =
        nouns.iter().map(|noun| (noun.area, Group { engine: noun.name(), stops: Vec::new() })).collect();
    for workload in registry.iter() {
        let area = workload.name().split('/').next().unwrap_or_default();
        let stop = places.stop(workload);
        match groups.iter_mut().find(|(known, group)| *known == area || group.engine == area) {
            Some((_, group)) => group.stops.extend(stop),
            None => {
                let stops = stop.into_iter().collect();
                groups.push((area, Group { engine: area.to_owned(), stops }));
            }
        }
    }
    let present = |noun: &Entry, groups: &[(&str, Group<'a>)]| {
        groups.iter().any(|(area, group)| *area == noun.area && !group.stops.is_empty())
    };
    // An engine without kernels has no workload to be known by: it is toured where all the others are.
    let whole = nouns.iter().all(|noun| (noun.workloads)().is_empty() || present(noun, &groups));
    for noun in nouns {
        let toured = if (noun.workloads)().is_empty() { whole } else { present(noun, &groups) };
        if let Some((_, group)) = groups.iter_mut().find(|(area, _)| toured && *area == noun.area) {
            group.stops.extend((noun.stops)(&places.engines));
        }
    }
    groups.into_iter().map(|(_, group)| group).filter(|group| !group.stops.is_empty()).collect()
}

impl Places {
    /// Engines run where they would; kernels there too, if that is a device, else on the emulated one.
    fn choose(shell: &Shell) -> Result<Self, Failure> {
        let engines = shell.target()?;
        let kernels = match (&engines, shell.device.choice) {
            (Target::Gpu(device), _) => Ok(device.clone()),
            (Target::Cpu, DeviceChoice::Cpu) => {
                Err("kernels do not run on the CPU; use --device emulated".to_owned())
            }
            (Target::Cpu, _) => Device::open("emulated").map_err(|error| error.to_string()),
        };
        if engines.device().is_none() && kernels.is_ok() {
            shell.progress.say("kernels run on the emulated device");
        }
        Ok(Self { engines, kernels })
    }

    /// The device of the kernels.
    fn device(&self) -> Option<String> {
        let properties = self.kernels.as_ref().ok()?.properties();
        Some(format!("{} ({})", properties.id, properties.name))
    }

    /// The largest of the cases that are small enough for any device. A workload without one has no stop.
    fn stop<'a>(&'a self, workload: &'a dyn Workload) -> Option<Stop<'a>> {
        let case = workload.cases(Kind::Emulated).pop()?;
        Some(Stop::new(workload.name(), workload.summary(), move || {
            let outcome = match &self.kernels {
                Ok(device) => check_case(workload, device, &case, SEED).outcome,
                Err(why) => Outcome::NotRun { why: why.clone() },
            };
            (case.name, outcome)
        }))
    }
}

impl Visited {
    fn go(engine: &str, stop: Stop<'_>) -> Self {
        let started = Instant::now();
        let (case, outcome) = (stop.visit)();
        let (name, summary, seconds) = (stop.name, stop.summary, started.elapsed().as_secs_f64());
        Self { engine: engine.to_owned(), name, summary, case, outcome, seconds }
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

    fn text(&self) -> String {
        let mut rows = table(["engine", "stop", "what it computes", "case", "result", "seconds"]);
        let mut totals = Vec::new();
        for of_engine in self.stops.chunk_by(|left, right| left.engine == right.engine) {
            let engine = &of_engine[0].engine;
            for (place, stop) in of_engine.iter().enumerate() {
                let engine = if place == 0 { engine.as_str() } else { "" };
                let seconds = format!("{:.2}", stop.seconds);
                let result = word(&stop.outcome);
                rows.add_row([engine, &stop.name, &stop.summary, &stop.case, result, &seconds]);
            }
            let seconds: f64 = of_engine.iter().map(|stop| stop.seconds).sum();
            totals.push(format!("{engine}: {}, {seconds:.1} s", passed(of_engine)));
        }
        let mut reasons = Reasons::default();
        for stop in self.stops.iter().filter(|stop| !stop.outcome.is_passed()) {
            reasons.add(stop.outcome.to_string(), &stop.name);
        }
        let on = self.device.as_ref().map_or_else(String::new, |device| format!(", kernels on {device}"));
        format!("{rows}\n\n{reasons}{}\nall: {}{on}", totals.join("\n"), passed(&self.stops))
    }
}

fn passed(stops: &[Visited]) -> String {
    let passed = stops.iter().filter(|stop| stop.outcome.is_passed()).count();
    format!("{passed} of {} stops passed", stops.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::NOUNS;

    fn visited(engine: &str, outcome: Outcome) -> Visited {
        let (name, engine) = (format!("{engine}/a"), engine.to_owned());
        Visited { engine, name, summary: String::new(), case: String::new(), outcome, seconds: 0.5 }
    }

    #[test]
    fn a_tour_that_could_go_nowhere_is_not_done() {
        let ending = |outcomes: &[Outcome]| {
            let stops = outcomes.iter().cloned().map(|outcome| visited("a", outcome)).collect();
            Tour { device: None, stops }.ending()
        };
        let not_run = Outcome::NotRun { why: "no device".into() };
        let failed = Outcome::Failed { why: "wrong".into() };
        assert_eq!(ending(std::slice::from_ref(&not_run)), Ending::DeviceFailed);
        assert_eq!(ending(&[not_run.clone(), Outcome::Passed]), Ending::Done);
        assert_eq!(ending(&[not_run, Outcome::Passed, failed]), Ending::GateFailed);
    }

    #[test]
    fn a_stop_that_fails_is_named_with_its_reason() {
        let failed = Outcome::Failed { why: "off by one".into() };
        let stops = vec![visited("lab", Outcome::Passed), visited("stark", failed)];
        let text = Tour { device: Some("emulated".into()), stops }.text();
        assert!(text.contains("stark/a: failed: off by one"), "{text}");
        assert!(text.contains("stark: 0 of 1 stops passed, 0.5 s"), "{text}");
        assert!(text.ends_with("all: 1 of 2 stops passed, kernels on emulated"), "{text}");
    }

    fn registry(workloads: Vec<Box<dyn Workload>>) -> Registry {
        let mut registry = Registry::new();
        registry.add_all(workloads).unwrap();
        registry
    }

    #[test]
    fn stops_are_grouped_by_engine() {
        let places = Places { engines: Target::Cpu, kernels: Err("not here".into()) };
        let all = registry(crate::workloads());
        let groups = groups(&all, &NOUNS, &places);
        let engines: Vec<&str> = groups.iter().map(|group| group.engine.as_str()).collect();
        assert_eq!(engines, ["lab", "attention", "private", "stark", "train"]);
        let last = |group: &Group<'_>| group.stops.last().map(|stop| stop.name.clone()).unwrap();
        assert_eq!(last(&groups[2]), "private/model");
        assert!(groups[1].stops.iter().all(|stop| stop.name.starts_with("attention")));
    }

    #[test]
    fn engines_that_a_command_is_not_made_of_are_not_toured() {
        let places = Places { engines: Target::Cpu, kernels: Err("not here".into()) };
        let own = registry(gatework_lab::runtime::workloads());
        let groups = groups(&own, &NOUNS, &places);
        assert_eq!(groups.iter().map(|group| group.engine.as_str()).collect::<Vec<_>>(), ["lab"]);
    }
}
