//! Results on standard output: text for people, or one JSON document.

use std::fmt;
use std::io::{self, Write as _};

use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};
use gatework_lab::Outcome;

use crate::command::ending::Failure;
use crate::command::schema::{Document, Versioned};

/// Where results go, and as what.
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints `document` as JSON with the name of its schema if that was asked for, else the text.
    pub(crate) fn show(
        &self,
        document: &impl Document,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if self.json {
            let json = serde_json::to_string_pretty(&Versioned::new(document));
            return self.print(&json.map_err(|error| Failure::output(&error.into()))?);
        }
        self.print(&text())
    }

    /// Refuses `--json` where what is printed is no document.
    pub(crate) fn require_text(&self, command: &str) -> Result<(), Failure> {
        if self.json {
            let why = format!("'gatework {command}' prints no JSON document: leave out --json");
            return Err(Failure::input(why));
        }
        Ok(())
    }

    /// Prints a line while the work goes on; nothing where one JSON document is asked for.
    pub(crate) fn line(&self, line: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { self.print(line) }
    }

    /// Prints what is the same with and without `--json`.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        let printed = format!("{}\n", text.trim_end());
        let mut stdout = io::stdout().lock();
        match stdout.write_all(printed.as_bytes()).and_then(|()| stdout.flush()) {
            // The reader has seen enough, as in `gatework lab list | head -1`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| Failure::output(&error)),
        }
    }
}

/// Only the header is ruled off.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
/// Columns of a table that goes into a file or a pipe.
const WIDTH_WITHOUT_TERMINAL: u16 = 120;

/// A table with that header, as wide as the terminal.
pub(crate) fn table<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(WIDTH_WITHOUT_TERMINAL);
    }
    table.set_header(header);
    table
}

/// `passed`, `failed` or `not run`: what fits into a table. [`Reasons`] say the rest below it.
pub(crate) fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed { .. } => "failed",
        Outcome::NotRun { .. } => "not run",
    }
}

/// Why things failed or were not run, each said once with all it holds for.
#[derive(Default)]
pub(crate) struct Reasons {
    lines: Vec<(String, Vec<String>)>,
}

impl Reasons {
    /// Notes that `reason` holds for `subject`.
    pub(crate) fn add(&mut self, reason: String, subject: &str) {
        match self.lines.iter_mut().find(|(found, _)| *found == reason) {
            Some((_, subjects)) if subjects.iter().any(|known| known == subject) => (),
            Some((_, subjects)) => subjects.push(subject.to_owned()),
            None => self.lines.push((reason, vec![subject.to_owned()])),
        }
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|(reason, subjects)| writeln!(f, "{}: {reason}", subjects.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_reason_is_said_once() {
        let mut reasons = Reasons::default();
        reasons.add("not run: no NVRTC".into(), "a");
        reasons.add("failed: 8 bytes spilled".into(), "b");
        reasons.add("not run: no NVRTC".into(), "c");
        reasons.add("not run: no NVRTC".into(), "a");
        assert_eq!(reasons.to_string(), "a, c: not run: no NVRTC\nb: failed: 8 bytes spilled\n");
    }
}
