//! What can be typed before a noun.

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use gatework_gpu::DeviceChoice;

use crate::command::check::CheckOptions;
use crate::command::noun::Entry;
use crate::command::shell::{Origin, Request};
use crate::command::tour::{self, TourOptions};
use crate::command::zoo::ZooOptions;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    a gate or a verification failed
  2    bad usage or bad input
  3    the device failed, or there is none; the other party failed
  130  interrupted";

/// GPU kernels that passed their gates, and the jobs that run on them.
#[derive(Debug, Parser)]
#[command(
    name = "gatework", version, after_help = EXIT_CODES, arg_required_else_help = true, subcommand_required = true
)]
struct Options {
    /// Where to run: auto, cpu, cuda, cuda:N or emulated
    #[arg(long, global = true, env = "GATEWORK_DEVICE", default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// What can be done without a noun.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub(crate) enum Verb {
    /// Show what this machine has, and what will run where
    #[command(after_help = "Examples:\n  gatework doctor\n  gatework doctor --device cpu --json")]
    Doctor,
    /// See every engine do one small job, with every result checked
    #[command(after_help = tour::EXAMPLES)]
    Tour(TourOptions),
    /// Check the kernels of a CUDA file on the emulated device
    #[command(
        after_help = "Examples:\n  gatework check kernel.cu\n  gatework check kernel.cu --plan launch.toml --json"
    )]
    Check(CheckOptions),
    /// Show bugs of public reports, and how the emulated device finds them
    #[command(after_help = "Examples:\n  gatework zoo\n  gatework zoo store-wait --source")]
    Zoo(ZooOptions),
}

/// A command line that was understood.
pub(crate) struct Line<'a> {
    pub(crate) device: Request,
    pub(crate) json: bool,
    pub(crate) wanted: Wanted<'a>,
}

/// What is to be done.
pub(crate) enum Wanted<'a> {
    Verb(Verb),
    /// A noun, and what was typed after it.
    Noun(&'a Entry, ArgMatches),
}

/// The whole command line.
fn command(nouns: &[Entry]) -> clap::Command {
    Options::command().subcommands(nouns.iter().map(|noun| (noun.command)()))
}

impl<'a> Line<'a> {
    pub(crate) fn parse<I, T>(arguments: I, nouns: &'a [Entry]) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        let mut command = command(nouns);
        let mut matches = command.try_get_matches_from_mut(arguments)?;
        let options = Options::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        let origin = match matches.value_source("device") {
            Some(ValueSource::CommandLine) => Origin::Flag,
            _ => Origin::Environment,
        };
        let noun = |name: &str| nouns.iter().find(|noun| noun.name() == name);
        let wanted = match (options.verb, matches.remove_subcommand()) {
            (Some(verb), _) => Wanted::Verb(verb),
            (None, Some((name, typed))) if let Some(noun) = noun(&name) => Wanted::Noun(noun, typed),
            _ => return Err(command.error(clap::error::ErrorKind::MissingSubcommand, "a command is missing")),
        };
        let device = Request { choice: options.device, origin };
        Ok(Self { device, json: options.json, wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::NOUNS;

    #[test]
    fn the_definition_is_consistent() {
        command(&NOUNS).debug_assert();
    }

    /// Every command says how it is called, and a noun what it is for.
    #[test]
    fn every_command_has_examples() {
        for noun in command(&NOUNS).get_subcommands() {
            assert!(noun.get_about().is_some(), "{}", noun.get_name());
            for command in noun.get_subcommands() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                let call = format!("gatework {} {}", noun.get_name(), command.get_name());
                assert!(help.contains(&call) && command.get_about().is_some(), "{call}: {help}");
            }
        }
    }

    #[test]
    fn a_flag_is_told_from_the_environment() {
        let origin =
            |arguments: &[&str]| Line::parse(arguments, &NOUNS).map(|line| line.device.origin).unwrap();
        for arguments in
            [["gatework", "--device", "cpu", "doctor"], ["gatework", "doctor", "--device", "cpu"]]
        {
            assert_eq!(origin(&arguments), Origin::Flag);
        }
        assert_eq!(origin(&["gatework", "lab", "list", "--device=cpu"]), Origin::Flag);
        assert_eq!(origin(&["gatework", "lab", "list"]), Origin::Environment);
    }
}
