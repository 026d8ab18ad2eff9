//! `gatework lab records --check`: records that no longer speak of this code, and figures that no record
//! stands for.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use gatework_lab::{DocumentProblem, Freshness, Record, Registry, check_document, freshness, standing};
use serde::Serialize;

use super::records::RecordsOptions;
use super::table::{documents, read, tables_of};
use crate::command::ending::{Ending, Failure};
use crate::command::output::table;
use crate::command::schema;
use crate::command::shell::Shell;

#[derive(Serialize)]
struct Check {
    records: usize,
    stale: Vec<Stale>,
    documents: Vec<Document>,
}

impl schema::Document for Check {
    const SCHEMA: schema::Schema = schema::LAB_RECORDS_CHECK;
}

#[derive(Serialize)]
struct Stale {
    id: String,
    workload: String,
    device: String,
    time: String,
    why: String,
}

#[derive(Serialize)]
struct Document {
    path: PathBuf,
    problems: Vec<DocumentProblem>,
}

pub(super) fn run(options: &RecordsOptions, shell: &Shell) -> Result<Ending, Failure> {
    let registry = &shell.registry;
    let records = records(&options.results, shell)?;
    let stale: Vec<Stale> =
        standing(&records).into_iter().filter_map(|record| Stale::of(record, registry)).collect();
    let documents = documents(Path::new("."))?
        .into_iter()
        .map(|path| Document::check(path, options, &records, registry))
        .collect::<Result<Vec<_>, _>>()?;
    let check = Check { records: records.len(), stale, documents };
    shell.output.show(&check, || check.text())?;
    let unnamed = check.documents.iter().any(|document| !document.problems.is_empty());
    let too_old = !check.stale.is_empty() && !options.allow_stale;
    Ok(if !too_old && !unnamed { Ending::Done } else { Ending::GateFailed })
}

/// The records of a folder; none if there is no folder yet.
fn records(folder: &Path, shell: &Shell) -> Result<Vec<Record>, Failure> {
    if !folder.exists() {
        shell.progress.say(&format!("there is no folder {}: no figure has a record", folder.display()));
        return Ok(Vec::new());
    }
    Ok(shell.records(folder)?.records)
}

impl Stale {
    fn of(record: &Record, registry: &Registry) -> Option<Self> {
        Some(Self {
            id: record.id(),
            workload: record.workload.clone(),
            device: record.device.as_ref().map_or_else(|| "none".to_owned(), |device| device.name.clone()),
            time: record.time.clone(),
            why: staleness(record, registry)?,
        })
    }
}

fn staleness(record: &Record, registry: &Registry) -> Option<String> {
    match freshness(record, registry) {
        Freshness::Current => None,
        Freshness::Stale { why } => Some(why),
        Freshness::Unknown => Some("there is no workload of that name any more".to_owned()),
    }
}

/// What is wrong with the record of an id that a document names.
fn refusal(id: &str, options: &RecordsOptions, records: &[Record], registry: &Registry) -> Option<String> {
    match records.iter().find(|record| record.id() == id) {
        None => Some("there is no such record".to_owned()),
        Some(_) if options.allow_stale => None,
        Some(record) => staleness(record, registry).map(|why| format!("that is stale: {why}")),
    }
}

impl Document {
    fn check(
        path: PathBuf,
        options: &RecordsOptions,
        records: &[Record],
        registry: &Registry,
    ) -> Result<Self, Failure> {
        let text = read(&path)?;
        let mut problems = check_document(&text, &|id| refusal(id, options, records, registry));
        match tables_of(&path, &text, &options.results, records, registry) {
            Ok(fresh) => problems.extend(first_difference(&text, &fresh)),
            Err(problem) => problems.push(problem),
        }
        problems.sort_by_key(|problem| problem.line);
        Ok(Self { path: path.strip_prefix(".").map(Path::to_owned).unwrap_or(path), problems })
    }
}

/// The first line of a document that is not as its records say.
fn first_difference(text: &str, fresh: &str) -> Option<DocumentProblem> {
    let line = text.lines().zip(fresh.lines()).position(|(now, then)| now != then);
    let what = "the table is not as its records say: write it with 'gatework lab table'".to_owned();
    (text != fresh).then(|| DocumentProblem { line: line.map_or(1, |line| line + 1), what })
}

impl Check {
    fn text(&self) -> String {
        let mut text = String::new();
        if !self.stale.is_empty() {
            let mut rows = table(["stale record", "workload", "device", "time", "why"]);
            for Stale { id, workload, device, time, why } in &self.stale {
                rows.add_row([id, workload, device, time, why]);
            }
            let _ = writeln!(text, "{rows}\n");
        }
        for Document { path, problems } in &self.documents {
            for DocumentProblem { line, what } in problems {
                let _ = writeln!(text, "{}:{line}: {what}", path.display());
            }
        }
        let unnamed: usize = self.documents.iter().map(|document| document.problems.len()).sum();
        let (records, stale, documents) = (self.records, self.stale.len(), self.documents.len());
        let _ = write!(text, "{records} records, {stale} stale; {documents} documents, {unnamed} problems");
        text
    }
}
