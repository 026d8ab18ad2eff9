//! What can be typed before a noun.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell as ShellKind;
use gatework_gpu::DeviceChoice;

use crate::command::check::CheckOptions;
use crate::command::ending::Failure;
use crate::command::noun::Entry;
use crate::command::schemas::{self, SchemaOptions};
use crate::command::shell::{Origin, Request};
use crate::command::tour::{self, TourOptions};
use crate::command::zoo::ZooOptions;

pub(crate) const EXIT_CODES: &str = "\
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
    /// Where to run: auto, cpu, cuda, cuda:N (GPU number N, from 0) or emulated
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
    /// Show kernel bugs from public reports, and how the emulated device finds them
    #[command(after_help = "Examples:\n  gatework zoo\n  gatework zoo store-wait --source")]
    Zoo(ZooOptions),
    /// Print the JSON Schema of a document that --json prints or a command writes
    #[command(after_help = schemas::EXAMPLES)]
    Schema(SchemaOptions),
    /// Print a script with which a shell completes the command line
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsOptions),
    /// Write manual pages, one for each command
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManOptions),
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  gatework completions bash > ~/.local/share/bash-completion/completions/gatework
  gatework completions zsh > ~/.zfunc/_gatework
  gatework completions fish > ~/.config/fish/completions/gatework.fish";

/// Options of `gatework completions`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct CompletionsOptions {
    /// The shell that reads the script
    #[arg(value_enum)]
    pub(crate) shell: ShellKind,
}

const MAN_EXAMPLES: &str = "\
Examples:
  gatework man ~/.local/share/man/man1
  gatework man pages && man pages/gatework-lab-gate.1";

/// Options of `gatework man`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct ManOptions {
    /// The folder that the pages are written to; it is made if it is not there
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
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
pub(crate) fn command(nouns: &[Entry]) -> clap::Command {
    Options::command().subcommands(nouns.iter().map(|noun| (noun.command)()))
}

impl<'a> Line<'a> {
    pub(crate) fn parse<I, T>(arguments: I, nouns: &'a [Entry]) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<OsString> + Clone,
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

    /// Refuses paths that no JSON document can hold. Found only when the document is printed, they would cost
    /// the work that it is about.
    pub(crate) fn require_printable(&self, arguments: &[OsString]) -> Result<(), Failure> {
        match arguments.iter().skip(1).find(|argument| self.json && argument.to_str().is_none()) {
            Some(argument) => Err(Failure::input(format!(
                "'{}' is not UTF-8, as JSON is: name another path, or leave out --json",
                argument.display()
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::NOUNS;
    use crate::command::schema::{SCHEMAS, Schema};

    #[test]
    fn the_definition_is_consistent() {
        command(&NOUNS).debug_assert();
    }

    /// Every command says how it is called, and a noun what it is for.
    #[test]
    fn every_command_has_examples() {
        for (call, command) in leaves(&command(&NOUNS), "gatework") {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:") && help.contains(&call), "{call}: {help}");
        }
    }

    /// A wrapped example cannot be copied, and a wrapped line of notes looks torn.
    #[test]
    fn what_follows_the_options_fits_a_terminal_of_100_columns() {
        for (call, command) in leaves(&command(&NOUNS), "gatework") {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let wide: Vec<&str> = help.lines().filter(|line| line.len() > 100).collect();
            assert!(wide.is_empty(), "{call}: {wide:?}");
        }
    }

    /// The commands that do something, with what is typed to call them. All on the way say what they are for.
    fn leaves(command: &clap::Command, call: &str) -> Vec<(String, clap::Command)> {
        assert!(command.get_about().is_some(), "{call}");
        if !command.has_subcommands() {
            return vec![(call.to_owned(), command.clone())];
        }
        let inner = command.get_subcommands();
        inner.flat_map(|inner| leaves(inner, &format!("{call} {}", inner.get_name()))).collect()
    }

    /// A command without a document would print JSON that nobody can check, and a document without a command
    /// is never printed. A shell's script is none.
    #[test]
    fn commands_and_documents_agree() {
        let calls: Vec<String> =
            leaves(&command(&NOUNS), "").into_iter().map(|(call, _)| call.trim_start().to_owned()).collect();
        let makes = |call: &str, schema: &Schema| {
            let rest = schema.made_by.strip_prefix(call);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ',']))
        };
        for call in calls.iter().filter(|call| *call != "completions") {
            assert!(
                SCHEMAS.iter().any(|schema| makes(call, schema)),
                "'gatework {call}' has no schema: add one to schema.rs"
            );
        }
        for schema in SCHEMAS {
            assert!(calls.iter().any(|call| makes(call, schema)), "{} is of no command", schema.name);
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
