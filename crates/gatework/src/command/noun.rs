//! What a noun of the command line is: `gatework <noun> <command>`.

use clap::{ArgMatches, Parser};
use gatework_gpu::Target;
use gatework_lab::{Outcome, Workload};

use crate::command::ending::{Ending, Failure};
use crate::command::machine::{Job, Machine};
use crate::command::shell::{DeviceUse, Shell};

/// A noun, which is its commands with their options. One folder implements it for each engine, and for the
/// lab.
pub(crate) trait Noun: Parser {
    /// What the names of its workloads begin with, up to the slash, if it is not the noun itself.
    const AREA: &'static str;

    /// What it does for a user, as a phrase after "you can": `gatework tour` says it.
    const PURPOSE: &'static str;

    /// The command to try first. It needs no file, no GPU and no network.
    const FIRST_COMMAND: &'static str;

    /// What the lab may gate of it.
    fn workloads() -> Vec<Box<dyn Workload>>;

    /// What the command does with `--device`. The shell refuses what would be ignored.
    fn device_use(&self) -> DeviceUse;

    /// Runs the command.
    fn run(self, shell: &Shell) -> Result<Ending, Failure>;

    /// What it does, and where on this machine it would: its lines of `gatework doctor`.
    fn jobs(machine: &Machine) -> Vec<Job>;

    /// Its stops of `gatework tour` beside its workloads: the engine as a program uses it.
    fn stops(target: &Target) -> Vec<Stop<'_>>;
}

/// A stop of the tour.
pub(crate) struct Stop<'a> {
    pub(crate) name: String,
    /// What it computes.
    pub(crate) summary: String,
    /// Goes there.
    pub(crate) visit: Box<dyn FnOnce() -> Seen + 'a>,
}

/// What was seen at a stop.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    /// What was computed, in short.
    pub(crate) case: String,
    pub(crate) outcome: Outcome,
    /// A sentence of what was shown and how it was checked, with the numbers of this run; none if it did not
    /// pass.
    pub(crate) finding: Option<String>,
    /// Of a kernel: how many results that were made wrong on purpose the check refused.
    pub(crate) controls_refused: Option<usize>,
}

impl Seen {
    /// What an engine showed: the sentence of what was found, or why it is wrong.
    pub(crate) fn of_engine(case: impl Into<String>, checked: Result<String, String>) -> Self {
        let (outcome, finding) = match checked {
            Ok(finding) => (Outcome::Passed, Some(finding)),
            Err(why) => (Outcome::Failed { why }, None),
        };
        Self { case: case.into(), outcome, finding, controls_refused: None }
    }
}

impl<'a> Stop<'a> {
    pub(crate) fn new(
        name: impl Into<String>,
        summary: impl Into<String>,
        visit: impl FnOnce() -> Seen + 'a,
    ) -> Self {
        Self { name: name.into(), summary: summary.into(), visit: Box::new(visit) }
    }
}

/// A [`Noun`] in a list of nouns.
pub(crate) struct Entry {
    pub(crate) area: &'static str,
    pub(crate) purpose: &'static str,
    pub(crate) first_command: &'static str,
    pub(crate) workloads: fn() -> Vec<Box<dyn Workload>>,
    pub(crate) jobs: fn(&Machine) -> Vec<Job>,
    pub(crate) stops: fn(&Target) -> Vec<Stop<'_>>,
    pub(crate) command: fn() -> clap::Command,
    run: fn(&str, &ArgMatches, &Shell) -> Result<Ending, Failure>,
}

impl Entry {
    pub(crate) const fn of<N: Noun>() -> Self {
        Self {
            area: N::AREA,
            purpose: N::PURPOSE,
            first_command: N::FIRST_COMMAND,
            workloads: N::workloads,
            jobs: N::jobs,
            stops: N::stops,
            command: N::command,
            run: run::<N>,
        }
    }

    /// As it is typed.
    pub(crate) fn name(&self) -> String {
        (self.command)().get_name().to_owned()
    }

    /// Runs the command that was typed after the noun.
    pub(crate) fn run(&self, matches: &ArgMatches, shell: &Shell) -> Result<Ending, Failure> {
        (self.run)(&self.name(), matches, shell)
    }
}

fn run<N: Noun>(name: &str, matches: &ArgMatches, shell: &Shell) -> Result<Ending, Failure> {
    let noun = N::from_arg_matches(matches).map_err(|error| Failure::input(error.to_string()))?;
    let command = format!("{name} {}", matches.subcommand_name().unwrap_or_default());
    shell.device.check(command.trim_end(), noun.device_use())?;
    noun.run(shell)
}
