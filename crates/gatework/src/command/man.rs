//! `gatework man`: manual pages, one for each command.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use serde::Serialize;

use crate::command::cli::{self, ManOptions};
use crate::command::ending::{Ending, Failure};
use crate::command::files::write_file;
use crate::command::noun::Entry;
use crate::command::schema;
use crate::command::shell::{DeviceUse, Shell};

#[derive(Serialize)]
struct Written {
    folder: PathBuf,
    /// The names of the files.
    pages: Vec<String>,
}

impl schema::Document for Written {
    const SCHEMA: schema::Schema = schema::MAN;
}

pub(crate) fn run(options: &ManOptions, shell: &Shell, nouns: &[Entry]) -> Result<Ending, Failure> {
    shell.device.check("man", DeviceUse::None)?;
    let folder = &options.folder;
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::input(format!("{} cannot be made: {error}; name another folder", folder.display()))
    })?;
    let mut written = Written { folder: folder.clone(), pages: Vec::new() };
    for page in pages(nouns) {
        let name = format!("{}.1", page.get_display_name().unwrap_or_else(|| page.get_name()));
        let text = render(&page).map_err(|error| Failure::device(format!("{name}: {error}")))?;
        write_file(&Path::new(folder).join(&name), &text)?;
        written.pages.push(name);
    }
    shell.output.show(&written, || {
        format!("{} pages written to {}", written.pages.len(), written.folder.display())
    })?;
    Ok(Ending::Done)
}

/// Every command of the command line: the whole, the nouns and verbs, and the commands of nouns.
fn pages(nouns: &[Entry]) -> Vec<Command> {
    let mut whole = cli::command(nouns).disable_help_subcommand(true);
    whole.build();
    let mut pages = Vec::new();
    collect(&whole, &mut pages);
    pages
}

fn collect(command: &Command, pages: &mut Vec<Command>) {
    pages.push(command.clone());
    command.get_subcommands().for_each(|inner| collect(inner, pages));
}

fn render(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone()).source(concat!("gatework ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().next().is_some() {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        writeln!(page, ".SH COMMANDS")?;
        for inner in command.get_subcommands() {
            let name = inner.get_display_name().unwrap_or_else(|| inner.get_name());
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            writeln!(page, ".TP\n\\fB{}\\fR(1)\n{}", escaped(name), escaped(&about))?;
        }
    }
    verbatim(&mut page, "EXAMPLES", &examples(command).join("\n"))?;
    if let Some((_, notes)) = after_help(command).split_once("\n\n") {
        verbatim(&mut page, "NOTES", notes)?;
    }
    verbatim(&mut page, "EXIT STATUS", cli::EXIT_CODES.trim_start_matches("Exit codes:\n"))?;
    Ok(page)
}

fn after_help(command: &Command) -> String {
    command.get_after_help().map(ToString::to_string).unwrap_or_default()
}

/// The command's own examples; where it is a group of commands, the first of each.
fn examples(command: &Command) -> Vec<String> {
    if command.has_subcommands() {
        return command.get_subcommands().filter_map(|inner| examples(inner).into_iter().next()).collect();
    }
    let help = after_help(command);
    let own = help.split("\n\n").next().unwrap_or_default();
    let mut examples: Vec<String> = Vec::new();
    for line in own.lines().filter(|line| line.starts_with("  ")) {
        match examples.last_mut() {
            Some(example) if example.ends_with('\\') => {
                example.push('\n');
                example.push_str(line);
            }
            _ => examples.push(line.to_owned()),
        }
    }
    examples
}

/// A section whose lines stay as they are.
fn verbatim(page: &mut Vec<u8>, title: &str, text: &str) -> io::Result<()> {
    writeln!(page, ".SH \"{title}\"\n.nf")?;
    text.lines().try_for_each(|line| writeln!(page, "{}", escaped(line)))?;
    writeln!(page, ".fi")
}

/// Text that roff prints as it stands: no escape, no request, and dashes that can be copied.
fn escaped(text: &str) -> String {
    let plain = text.replace('\\', "\\e").replace('-', "\\-");
    if plain.starts_with(['.', '\'']) { format!("\\&{plain}") } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::NOUNS;

    #[test]
    fn every_page_has_its_sections() {
        for command in pages(&NOUNS) {
            let page = String::from_utf8(render(&command).unwrap()).unwrap();
            for section in [".SH NAME", ".SH SYNOPSIS", ".SH \"EXAMPLES\"", ".SH \"EXIT STATUS\""] {
                assert!(page.contains(section), "{section} of {}", command.get_name());
            }
            assert!(!examples(&command).is_empty(), "{}", command.get_name());
        }
    }

    #[test]
    fn text_is_no_request_to_roff() {
        assert_eq!(escaped(".fi"), "\\&.fi");
        assert_eq!(escaped("a\\b --c"), "a\\eb \\-\\-c");
    }
}
