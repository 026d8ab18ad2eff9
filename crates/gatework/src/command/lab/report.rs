//! `gatework lab report`: records as one HTML file.

use std::path::PathBuf;

use clap::Args;
use gatework_lab::{freshness, read_records, report};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::files::write_file;
use crate::command::schema;
use crate::command::shell::Shell;

/// What to draw, and where.
#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    /// The folder to read, or one file of it
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(super) results: PathBuf,
    /// The file to write
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    pub(super) out: PathBuf,
}

#[derive(Serialize)]
struct Written {
    file: PathBuf,
    records: usize,
}

impl schema::Document for Written {
    const SCHEMA: schema::Schema = schema::LAB_REPORT;
}

pub(super) fn run(options: &ReportOptions, shell: &Shell) -> Result<Ending, Failure> {
    let reading = read_records(&options.results)?;
    shell.warn_of(&reading.problems);
    if reading.records.is_empty() {
        let folder = options.results.display();
        return Err(Failure::input(format!(
            "there is no record in {folder}: make one with 'gatework lab gate'"
        )));
    }
    let html = report::html(&reading.records, &|record| freshness(record, &shell.registry));
    write_file(&options.out, html.as_bytes())?;
    let written = Written { file: options.out.clone(), records: reading.records.len() };
    shell
        .output
        .show(&written, || format!("{} records drawn in {}", written.records, written.file.display()))?;
    Ok(Ending::Done)
}
