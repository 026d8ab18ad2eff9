//! `gatework lab compare`: what changed between two sets of records.

use std::path::Path;

use gatework_lab::{Basis, Comparison, Record, compare, read_records};

use crate::command::cli::CompareOptions;
use crate::command::ending::{Ending, Failure};
use crate::command::output::{Output, table};
use crate::command::progress::Progress;
use gatework_lab::quantity::ratio;

pub(super) fn run(options: &CompareOptions, output: &Output, progress: &Progress) -> Result<Ending, Failure> {
    let comparison = compare(&read(&options.first, progress)?, &read(&options.second, progress)?);
    output.show(&comparison, || text(&comparison))?;
    if comparison.cases.is_empty() {
        let why = "the two have no benchmark in common: make both with 'gatework lab bench'";
        return Err(Failure::Input(why.to_owned()));
    }
    Ok(if comparison.has_slower() { Ending::GateFailed } else { Ending::Done })
}

fn read(path: &Path, progress: &Progress) -> Result<Vec<Record>, Failure> {
    let reading = read_records(path)?;
    for problem in &reading.problems {
        progress.say(&format!("warning: {problem}"));
    }
    Ok(reading.records)
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
    format!("{rows}\n\n{note}{}", comparison.left_out.join("\n"))
}
