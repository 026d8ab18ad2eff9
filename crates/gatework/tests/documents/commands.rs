//! The page of commands: what every `--help` prints.

use std::fs;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;

const PAGE: &str = "docs/reference/commands.md";
const BEGINNING: &str = "\
# Commands

What `--help` of every command prints. A test writes and checks this page.
";

/// Compares the page with what the binary says, or writes it.
pub fn check(root: &Path, bless: bool) -> Result<(), Failed> {
    let mut page = BEGINNING.to_owned();
    describe(&[], &mut page)?;
    let path = root.join(PAGE);
    if bless {
        fs::write(&path, page)?;
        return Ok(());
    }
    if fs::read_to_string(&path)? == page {
        return Ok(());
    }
    Err(format!("{PAGE} is not what --help says; GATEWORK_BLESS=1 writes it anew").into())
}

/// Adds the help of a command, and of all below it.
fn describe(words: &[&str], page: &mut String) -> Result<(), Failed> {
    let output = Command::new(env!("CARGO_BIN_EXE_gatework"))
        .args(words)
        .arg("--help")
        .env("COLUMNS", "100")
        .env_remove("GATEWORK_DEVICE")
        .output()?;
    let help = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let name = [&["gatework"], words].concat().join(" ");
    page.push_str(&format!(
        "\n{} `{name}`\n\n```text\n{}\n```\n",
        "#".repeat(2.max(words.len() + 1)),
        help.join("\n").trim_end()
    ));
    for below in subcommands(&help) {
        describe(&[words, &[below]].concat(), page)?;
    }
    Ok(())
}

/// The names below `Commands:`.
fn subcommands<'a>(help: &[&'a str]) -> Vec<&'a str> {
    let listed =
        help.iter().skip_while(|line| **line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}
