//! `gatework lab table`: the tables of documents, from records.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::Args;
use gatework_lab::{Freshness, Record, Registry, freshness, write_tables};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::files::write_file;
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework lab table                    # all documents below this folder
  gatework lab table README.md

A table stands between '<!-- lab table: QUERY -->' and '<!-- end -->'. A query is
'benches NAME...', 'peers NAME...' or 'rows NAME KEY=VALUE... show COLUMN...'.";

/// Which documents to write.
#[derive(Debug, Args)]
pub(crate) struct TableOptions {
    /// The documents [default: all below this folder]
    #[arg(value_name = "FILE")]
    pub(super) documents: Vec<PathBuf>,
    /// The folder to read records from
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(super) results: PathBuf,
}

#[derive(Serialize)]
struct Written {
    documents: Vec<PathBuf>,
}

impl schema::Document for Written {
    const SCHEMA: schema::Schema = schema::LAB_TABLE;
}

pub(super) fn run(options: &TableOptions, shell: &Shell) -> Result<Ending, Failure> {
    let reading = shell.records(&options.results)?;
    let documents =
        if options.documents.is_empty() { documents(Path::new("."))? } else { options.documents.clone() };
    let mut written = Written { documents: Vec::new() };
    for path in documents {
        let text = read(&path)?;
        let fresh = tables_of(&path, &text, &options.results, &reading.records, &shell.registry).map_err(
            |problem| Failure::input(format!("{}:{}: {}", path.display(), problem.line, problem.what)),
        )?;
        if fresh != text {
            write_file(&path, fresh.as_bytes())?;
            written.documents.push(path);
        }
    }
    shell.output.show(&written, || match written.documents.as_slice() {
        [] => "every table is as its records say".to_owned(),
        changed => changed.iter().map(|path| format!("wrote {}\n", path.display())).collect(),
    })?;
    Ok(Ending::Done)
}

pub(super) fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::input(format!("{} cannot be read: {error}", path.display())))
}

/// A document with its tables as the records say.
pub(super) fn tables_of(
    path: &Path,
    text: &str,
    results: &Path,
    records: &[Record],
    registry: &Registry,
) -> Result<String, gatework_lab::DocumentProblem> {
    let inside = path.strip_prefix(".").unwrap_or(path);
    let up = "../".repeat(inside.components().count().saturating_sub(1));
    let folder = format!("{up}{}", results.display());
    let is_stale = |record: &Record| freshness(record, registry) != Freshness::Current;
    write_tables(text, records, &folder, &is_stale)
}

/// Every Markdown file below a folder, but for hidden folders and what was built.
pub(super) fn documents(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |path: &Path, error: io::Error| {
        Failure::input(format!("the folder {} cannot be read: {error}", path.display()))
    };
    let (mut folders, mut found) = (vec![root.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|error| unreadable(&folder, error))? {
            let path = entry.map_err(|error| unreadable(&folder, error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_left_out =
                name.starts_with('.') || ["target", "shared", "node_modules"].contains(&name.as_str());
            if path.is_dir() && !path.is_symlink() && !is_left_out {
                folders.push(path);
            } else if path.is_file() && name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
