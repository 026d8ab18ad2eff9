//! Records on disk: one file of JSON lines a device, only ever appended to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::record::{RECORD_VERSION, Record};
use crate::{Error, Result};

/// A folder of records that can be written.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens a folder for writing, makes it if it is not there, and tries it out: a folder that cannot be
    /// written is an error now, not after the gates have run.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let store = Self { folder };
        store.try_out().map_err(|(path, error)| unwritable(&path, &error))?;
        Ok(store)
    }

    /// The file that a device's records go to.
    pub fn file(&self, slug: &str) -> PathBuf {
        self.folder.join(format!("{slug}.jsonl"))
    }

    /// Appends one record to the file of its device, and returns the file.
    ///
    /// The line is written whole under a lock and reaches the disk before this returns; if it cannot be, the
    /// file is as it was before.
    pub fn append(&self, record: &Record) -> Result<PathBuf> {
        let path = self.file(&record.slug());
        append_line(&path, record).map_err(|error| unwritable(&path, &error))?;
        Ok(path)
    }

    fn try_out(&self) -> Result<(), (PathBuf, io::Error)> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| (path, error)
        };
        fs::create_dir_all(&self.folder).map_err(at(&self.folder))?;
        tempfile::tempfile_in(&self.folder).map_err(at(&self.folder))?;
        for path in record_files(&self.folder).map_err(at(&self.folder))? {
            OpenOptions::new().append(true).open(&path).map_err(at(&path))?;
        }
        Ok(())
    }
}

fn append_line(path: &Path, record: &Record) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    let is_new = !path.exists();
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    file.lock()?;
    let length = file.metadata()?.len();
    if !ends_with_newline(&mut file, length)? {
        // A line that a crash cut short stays one bad line and does not swallow this one.
        line.insert(0, b'\n');
    }
    if let Err(error) = file.write_all(&line).and_then(|()| file.sync_all()) {
        // A full disk may have taken a part of the line. If even that cannot be undone, the next line starts
        // afresh.
        let _ = file.set_len(length);
        return Err(error);
    }
    if is_new && let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn ends_with_newline(file: &mut File, length: u64) -> io::Result<bool> {
    if length == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(length - 1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Writes a value as JSON, whole or not at all: beside the file first, then in its place.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|error| Error::Unwritable { path: path.to_owned(), reason: error.to_string() })?;
    text.push(b'\n');
    write_file(path, &text).map_err(|error| unwritable(path, &error))
}

/// Writes a file whole or not at all: beside it first, then in its place.
pub fn write_file(path: &Path, contents: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // As other new files are: a temporary one would be its owner's alone.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(contents)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The contents of a folder of records.
#[derive(Debug, Default)]
pub struct Reading {
    /// The records that could be read, by file and then by line.
    pub records: Vec<Record>,
    /// The lines that could not.
    pub problems: Vec<LineProblem>,
}

/// A line that is no record this program can read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {what}", file.display())]
pub struct LineProblem {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The reason.
    pub what: Unreadable,
}

/// Why a line is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A crash or a copy cut it short.
    #[error("the record is cut short and was skipped; the others are intact")]
    Truncated,
    /// A later Gatework wrote it.
    #[error(
        "the record has version {version} and this program reads up to {RECORD_VERSION}: use a newer gatework"
    )]
    Newer {
        /// Its version.
        version: u64,
    },
    /// It is something else.
    #[error("this is no record and was skipped: {reason}")]
    Malformed {
        /// What the parser said.
        reason: String,
    },
}

/// Reads every record of a folder, or of one file. Lines that cannot be read are reported and the rest is
/// read.
pub fn read_records(path: &Path) -> Result<Reading> {
    let unreadable = |path: &Path, error: &io::Error| Error::Unreadable {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let files = if path.is_file() {
        vec![path.to_owned()]
    } else {
        record_files(path).map_err(|error| unreadable(path, &error))?
    };
    let mut reading = Reading::default();
    for file in files {
        let bytes = fs::read(&file).map_err(|error| unreadable(&file, &error))?;
        reading.take_lines(&file, &bytes);
    }
    Ok(reading)
}

impl Reading {
    pub(crate) fn take_lines(&mut self, file: &Path, bytes: &[u8]) {
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            match parse(line) {
                Ok(record) => self.records.push(record),
                Err(what) => self.problems.push(LineProblem { file: file.to_owned(), line: index + 1, what }),
            }
        }
    }
}

fn parse(line: &[u8]) -> Result<Record, Unreadable> {
    let malformed = |error: serde_json::Error| Unreadable::Malformed { reason: error.to_string() };
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| if error.is_eof() { Unreadable::Truncated } else { malformed(error) })?;
    match value.get("version").and_then(Value::as_u64) {
        None => Err(Unreadable::Malformed { reason: "it has no version".into() }),
        Some(version) if version > u64::from(RECORD_VERSION) => Err(Unreadable::Newer { version }),
        Some(_) => serde_json::from_value(value).map_err(malformed),
    }
}

/// The record files of a folder, in the order of their names.
fn record_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    Error::Unwritable { path: path.to_owned(), reason: error.to_string() }
}
