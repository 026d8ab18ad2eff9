//! Every engine does one small job, on what this machine has, and every result is checked.

mod account;
mod page;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use gatework_gpu::{Device, DeviceChoice, Kind, Target};
use gatework_lab::{Checked, Outcome, Registry, Workload, check_case};

use self::account::{Account, Tour, Visited};
use crate::command::ending::{Ending, Failure};
use crate::command::files::{require_writable, write_file};
use crate::command::noun::{Entry, Seen, Stop};
use crate::command::progress::Progress;
use crate::command::shell::Shell;

const SEED: u64 = 1;

pub(crate) const EXAMPLES: &str = "\
Examples:
  gatework tour
  gatework tour --report tour.html
  gatework tour --verbose --device emulated

It needs no file, no GPU and no network. Without a GPU the engines run on the CPU and
their kernels on the emulated device.";

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct TourOptions {
    /// Show every single stop, too
    #[arg(long)]
    verbose: bool,
    /// Write a page with all stops, one HTML file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

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
    /// What it does for a user; of workloads that are no engine's, nothing.
    purpose: &'static str,
    first_command: Option<&'static str>,
    stops: Vec<Stop<'a>>,
}

pub(crate) fn run(options: &TourOptions, shell: &Shell, nouns: &[Entry]) -> Result<Ending, Failure> {
    if let Some(path) = &options.report {
        require_writable("--report", path)?;
    }
    let places = Places::choose(shell)?;
    let mut tour = Tour { device: places.device(), engines: Vec::new(), stops: Vec::new() };
    let mut first_commands = Vec::new();
    for group in groups(&shell.registry, nouns, &places) {
        let stops = visit_all(&group.engine, group.stops, &shell.progress);
        let account = Account::of(&group.engine, group.purpose, tour.device.as_deref(), &stops);
        for line in account.lines() {
            shell.output.line(&line)?;
        }
        first_commands.extend(group.first_command);
        tour.engines.push(account);
        tour.stops.extend(stops);
    }
    if let Some(path) = &options.report {
        write_file(path, page::html(&tour).as_bytes())?;
        shell.progress.say(&format!("{} stops written to {}", tour.stops.len(), path.display()));
    }
    shell.output.show(&tour, || tour.text(options.verbose, &first_commands))?;
    Ok(tour.ending())
}

/// Goes to the stops of an engine, with a bar of its own.
fn visit_all(engine: &str, stops: Vec<Stop<'_>>, progress: &Progress) -> Vec<Visited> {
    let jobs = progress.start(stops.len());
    let visit = |stop: Stop<'_>| {
        jobs.doing(if stop.name.starts_with(engine) {
            stop.name.clone()
        } else {
            format!("{engine}: {}", stop.name)
        });
        let started = Instant::now();
        let seen = (stop.visit)();
        jobs.done();
        Visited::new(engine, stop.name, stop.summary, seen, started.elapsed())
    };
    stops.into_iter().map(visit).collect()
}

/// The stops by engine, in the order of the nouns: what the noun itself shows, then the workloads of its
/// area. The command of a crate that has kernels of its own does not tour the engines that it is not made of,
/// and its own workloads are a group by the name of their area.
fn groups<'a>(registry: &'a Registry, nouns: &[Entry], places: &'a Places) -> Vec<Group<'a>> {
    let of_noun = |noun: &Entry| {
        let (purpose, first_command) = (noun.purpose, Some(noun.first_command));
        (noun.area, Group { engine: noun.name(), purpose, first_command, stops: Vec::new() })
    };
    let mut groups: Vec<(&str, Group<'a>)> = nouns.iter().map(of_noun).collect();
    for workload in registry.iter() {
        let area = workload.name().split('/').next().unwrap_or_default();
        let stop = places.stop(workload);
        match groups.iter_mut().find(|(known, group)| *known == area || group.engine == area) {
            Some((_, group)) => group.stops.extend(stop),
            None => {
                let stops = stop.into_iter().collect();
                groups
                    .push((area, Group { engine: area.to_owned(), purpose: "", first_command: None, stops }));
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
            group.stops.splice(0..0, (noun.stops)(&places.engines));
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
        Some(Stop::new(workload.name(), workload.summary(), move || match &self.kernels {
            Ok(device) => of_kernel(case.name.clone(), check_case(workload, device, &case, SEED)),
            Err(why) => {
                let outcome = Outcome::NotRun { why: why.clone() };
                Seen { case: case.name, outcome, finding: None, controls_refused: Some(0) }
            }
        }))
    }
}

/// What the correctness gate saw of one case of a workload.
fn of_kernel(case: String, checked: Checked) -> Seen {
    let refused = checked.controls.len();
    let finding = checked.outcome.is_passed().then(|| {
        let how = if checked.deviations.iter().all(|(_, deviation)| deviation.mismatches == 0) {
            "every element equal to its CPU reference"
        } else {
            "equal to its CPU reference within its error budget"
        };
        format!("{how}; {refused} wrong results refused")
    });
    Seen { case, outcome: checked.outcome, finding, controls_refused: Some(refused) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::NOUNS;
    use crate::command::cli::Line;

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
        let name = |group: &Group<'_>, place: usize| group.stops[place].name.clone();
        assert_eq!((name(&groups[2], 0), name(&groups[2], 1)), ("private".into(), "private/model".into()));
        assert!(groups[1].stops.iter().all(|stop| stop.name.starts_with("attention")));
    }

    #[test]
    fn engines_that_a_command_is_not_made_of_are_not_toured() {
        let places = Places { engines: Target::Cpu, kernels: Err("not here".into()) };
        let own = registry(gatework_lab::runtime::workloads());
        let groups = groups(&own, &NOUNS, &places);
        assert_eq!(groups.iter().map(|group| group.engine.as_str()).collect::<Vec<_>>(), ["lab"]);
    }

    #[test]
    fn the_commands_to_try_first_are_understood() {
        for noun in &NOUNS {
            let words = noun.first_command.replace("'Where is my parcel?'", "text");
            assert!(Line::parse(words.split(' '), &NOUNS).is_ok(), "{words}");
            assert!(words.starts_with(&format!("gatework {} ", noun.name())), "{words}");
        }
    }
}
