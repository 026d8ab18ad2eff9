//! `gatework lab compare`: what changed between two sets of records.

use std::path::{Path, PathBuf};

use clap::Args;
use gatework_lab::{Basis, Comparison, Record, compare};

use crate::command::ending::{Ending, Failure};
use crate::command::output::table;
use crate::command::schema;
use crate::command::shell::Shell;
use gatework_lab::quantity::ratio;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework lab compare before/ after/
  gatework lab compare results/nvidia-h200.jsonl new.jsonl --json

The exit code is 1 if anything became SLOWER or is no longer measured. Records of
different devices are compared by their ratios to the baseline.";

/// What to compare.
#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    /// The older records: a file or a folder
    #[arg(value_name = "A")]
    pub(super) first: PathBuf,
    /// The newer records: a file or a folder
    #[arg(value_name = "B")]
    pub(super) second: PathBuf,
}

impl schema::Document for Comparison {
    const SCHEMA: schema::Schema = schema::LAB_COMPARE;
}

pub(super) fn run(options: &CompareOptions, shell: &Shell) -> Result<Ending, Failure> {
    let comparison = compare(&read(&options.first, shell)?, &read(&options.second, shell)?);
    shell.output.show(&comparison, || text(&comparison))?;
    if comparison.cases.is_empty() {
        let why = "the two have no benchmark in common: make both with 'gatework lab bench'";
        return Err(Failure::input(why.to_owned()));
    }
    Ok(if comparison.is_sound() { Ending::Done } else { Ending::GateFailed })
}

fn read(path: &Path, shell: &Shell) -> Result<Vec<Record>, Failure> {
    Ok(shell.records(path)?.records)
}

fn text(comparison: &Comparison) -> String {
    let mut rows = table(["workload", "case", "device", "compared", "second over first", "verdict"]);
    for case in &comparison.cases {
        let basis = match case.basis {
            Basis::Time => "time",
            Basis::RatioToBaseline => "ratio to baseline",
        };
        let verdict = case.verdict.to_string();
        rows.add_row([&case.workload, &case.case, &case.devices, basis, &ratio(case.ratio), &verdict]);
    }
    let across = comparison.cases.iter().any(|case| case.basis == Basis::RatioToBaseline);
    let note = if across {
        "times of different devices are not compared: their ratios to the baseline are\n"
    } else {
        ""
    };
    let vanished = comparison.vanished.iter().map(|what| format!("VANISHED: {what}"));
    let said: Vec<String> = vanished.chain(comparison.left_out.iter().cloned()).collect();
    format!("{rows}\n\n{note}{}", said.join("\n"))
}
