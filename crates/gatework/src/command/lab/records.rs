//! `gatework lab records`: what earlier gatings showed.

use std::path::PathBuf;

use clap::Args;
use gatework_gpu::Architecture;
use gatework_lab::Record;
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::output::{table, word};
use crate::command::schema;
use crate::command::shell::Shell;

/// Which records to show.
#[derive(Debug, Args)]
pub(crate) struct RecordsOptions {
    /// The folder to read, or one file of it
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(super) results: PathBuf,
    /// Find stale records, figures in documents without a record, and tables that differ from their records
    #[arg(long)]
    pub(super) check: bool,
    /// Report stale records, but do not fail because of them
    #[arg(long, requires = "check")]
    pub(super) allow_stale: bool,
}

#[derive(Serialize)]
struct Listing {
    records: Vec<Record>,
    problems: Vec<String>,
}

impl schema::Document for Listing {
    const SCHEMA: schema::Schema = schema::LAB_RECORDS;
}

pub(super) fn run(options: &RecordsOptions, shell: &Shell) -> Result<Ending, Failure> {
    let reading = shell.records(&options.results)?;
    let problems = reading.problems.iter().map(ToString::to_string).collect();
    let listing = Listing { records: reading.records, problems };
    shell.output.show(&listing, || listing.text())?;
    Ok(Ending::Done)
}

impl Listing {
    fn text(&self) -> String {
        let mut rows = table(["id", "time", "workload", "device", "verdict", "not run", "binaries"]);
        for record in &self.records {
            let device = record.device.as_ref().map_or("none", |device| &device.name);
            let columns = [&record.id(), &record.time, &record.workload, device, word(&record.verdict)];
            rows.add_row(columns.map(str::to_owned).into_iter().chain([not_run(record), binaries(record)]));
        }
        format!("{rows}\n{} records", self.records.len())
    }
}

/// The first digits of each binary that ran on a GPU or could: enough to see which records are of the same
/// program.
fn binaries(record: &Record) -> String {
    let binaries = record.kernels.iter().flat_map(|kernel| &kernel.binaries);
    let for_gpus = binaries.filter(|binary| binary.architecture != Architecture::Emulated);
    for_gpus.map(|binary| binary.hash.chars().take(8).collect::<String>()).collect::<Vec<_>>().join(" ")
}

/// The gates of a record that did not run, as `resources (sm_90a)`.
fn not_run(record: &Record) -> String {
    record
        .not_run()
        .map(|(gate, _)| format!("{} ({})", gate.gate, gate.target))
        .collect::<Vec<_>>()
        .join(", ")
}
