//! `gatework lab report`: records as one HTML file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use gatework_lab::report::{self, TrainingRuns};
use gatework_lab::{freshness, read_records};
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
    training_runs: usize,
}

impl schema::Document for Written {
    const SCHEMA: schema::Schema = schema::LAB_REPORT;
}

/// Where training runs lie in a folder of results.
const TRAINING_RUNS: &str = "foresight/forecast-runs.csv";

pub(super) fn run(options: &ReportOptions, shell: &Shell) -> Result<Ending, Failure> {
    let reading = read_records(&options.results)?;
    shell.warn_of(&reading.problems);
    if reading.records.is_empty() {
        let folder = options.results.display();
        return Err(Failure::input(format!(
            "there is no record in {folder}: make one with 'gatework lab gate'"
        )));
    }
    let training = training(&options.results)?;
    let html = report::html(&reading.records, &training, &|record| freshness(record, &shell.registry));
    write_file(&options.out, html.as_bytes())?;
    let runs = training.iter().map(|group| group.runs.len()).sum();
    let written = Written { file: options.out.clone(), records: reading.records.len(), training_runs: runs };
    shell.output.show(&written, || {
        let runs = if runs > 0 { format!(" and {runs} training runs") } else { String::new() };
        format!("{} records{runs} drawn in {}", written.records, written.file.display())
    })?;
    Ok(Ending::Done)
}

/// The runs that lie beside the records, if there are any.
fn training(results: &Path) -> Result<Vec<TrainingRuns>, Failure> {
    let path = results.join(TRAINING_RUNS);
    match std::fs::read_to_string(&path) {
        Ok(text) => TrainingRuns::read(&text)
            .map_err(|why| Failure::input(format!("{} cannot be drawn: {why}", path.display()))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(Failure::input(format!("{}: {error}", path.display()))),
    }
}
