//! `gatework lab report`: records as one HTML file.

use std::path::PathBuf;

use gatework_lab::{Registry, freshness, read_records, report, write_file};
use serde::Serialize;

use crate::command::cli::ReportOptions;
use crate::command::ending::{Ending, Failure};
use crate::command::interrupt::uninterrupted;
use crate::command::output::Output;
use crate::command::progress::Progress;

#[derive(Serialize)]
struct Written {
    file: PathBuf,
    records: usize,
}

pub(super) fn run(
    options: &ReportOptions,
    registry: &Registry,
    output: &Output,
    progress: &Progress,
) -> Result<Ending, Failure> {
    let reading = read_records(&options.results)?;
    for problem in &reading.problems {
        progress.say(&format!("warning: {problem}"));
    }
    if reading.records.is_empty() {
        let folder = options.results.display();
        return Err(Failure::Input(format!(
            "there is no record in {folder}: make one with 'gatework lab gate'"
        )));
    }
    let html = report::html(&reading.records, &|record| freshness(record, registry));
    uninterrupted(|| write_file(&options.out, html.as_bytes()))?;
    let written = Written { file: options.out.clone(), records: reading.records.len() };
    output.show(&written, || format!("{} records drawn in {}", written.records, written.file.display()))?;
    Ok(Ending::Done)
}
