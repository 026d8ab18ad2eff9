//! Files that commands write: tried before the work, whole or not at all, and never cut short by an
//! interrupt.

use std::io;
use std::path::Path;

use crate::command::ending::Failure;
use crate::command::interrupt::uninterrupted;
use crate::command::schema::{Document, Versioned};

/// Says now what would otherwise be found after the work is done. `option` is the one that names the file.
pub(crate) fn require_writable(option: &str, path: &Path) -> Result<(), Failure> {
    let refuse = |why: String| Err(Failure::input(format!("{option} {}: {why}", path.display())));
    if path.is_dir() {
        return refuse("it is a folder: name a file in it".into());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match tempfile::tempfile_in(folder) {
        Ok(_) => Ok(()),
        Err(error) => {
            let why = said(&error);
            refuse(format!("no file can be written to {}: {why}; name another folder", folder.display()))
        }
    }
}

/// Writes a file whole or not at all.
pub(crate) fn write_file(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    uninterrupted(|| gatework_lab::write_file(path, contents)).map_err(|error| {
        let why = said(&error);
        Failure::input(format!("{} cannot be written: {why}; name another file", path.display()))
    })
}

/// What the system said. The file that stands in until the other is whole has a name that nobody knows.
fn said(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.source());
    inner.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Writes a document as JSON for people to read, with the name of its schema, as [`write_file`] does.
pub(crate) fn write_json(path: &Path, document: &impl Document) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(&Versioned::new(document))
        .map_err(|error| Failure::input(format!("{} cannot be written: {error}", path.display())))?;
    text.push(b'\n');
    write_file(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_named_for_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nowhere/proof.json");
        let failure = write_file(&path, b"").unwrap_err();
        let said = failure.to_string();
        assert!(
            said.starts_with(&path.display().to_string()) && said.contains("cannot be written"),
            "{said}"
        );
        assert!(!said.contains("records") && failure.code() == 2, "{said}");
        assert!(require_writable("--out", folder.path()).unwrap_err().to_string().contains("it is a folder"));
    }
}
