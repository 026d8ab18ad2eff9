//! The committed inputs of each target.
//!
//! ```text
//! corpus/<target>/seeds/      whole files, by the writers themselves: `cargo run -p gatework-fuzz --example seeds`
//! corpus/<target>/findings/   inputs that once broke something, kept by hand
//! ```

use std::path::{Path, PathBuf};
use std::{fs, io};

/// An input with the name of its file.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its file.
    pub path: PathBuf,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Where the inputs of a target lie.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Whole files, which must be accepted.
pub fn seeds(target: &str) -> io::Result<Vec<Input>> {
    inputs(&folder(target).join("seeds"))
}

/// Inputs that once broke something; none if nothing was found.
pub fn findings(target: &str) -> io::Result<Vec<Input>> {
    let folder = folder(target).join("findings");
    if folder.exists() { inputs(&folder) } else { Ok(Vec::new()) }
}

fn inputs(folder: &Path) -> io::Result<Vec<Input>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    paths.into_iter().map(|path| Ok(Input { bytes: fs::read(&path)?, path })).collect()
}
