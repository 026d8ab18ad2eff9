//! Compiled kernels on disk: found by everything that went in, verified before use, written atomically.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::scratch::Scratch;
use crate::source::Source;
use crate::types::{Architecture, Binary, Compiled, Resources};
use crate::{Error, Result};

/// What stands beside a cached binary. A binary without a matching one is compiled anew.
#[derive(Serialize, Deserialize)]
struct Entry {
    hash: String,
    log: String,
    resources: Vec<(String, Resources)>,
}

/// Where compiled kernels are kept: `GATEWORK_CACHE`, else the user's cache folder, else the temporary one.
pub fn cache_directory() -> PathBuf {
    let named =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("GATEWORK_CACHE")
        .or_else(|| named("XDG_CACHE_HOME").map(|cache| cache.join("gatework")))
        .or_else(|| named("HOME").map(|home| home.join(".cache/gatework")))
        .unwrap_or_else(|| std::env::temp_dir().join("gatework"))
        .join("kernels")
}

pub(super) fn find_or_build(
    source: &Source,
    includes: &BTreeMap<String, Cow<'static, str>>,
    architecture: &Architecture,
    compiler: &str,
    build: impl FnOnce(&Path) -> Result<Compiled>,
) -> Result<Binary> {
    let mut hasher = blake3::Hasher::new();
    source.feed(includes, &mut hasher);
    hasher.update(architecture.to_string().as_bytes());
    hasher.update(compiler.as_bytes());
    let key = hasher.finalize().to_hex().to_string();
    let suffix = if *architecture == Architecture::Emulated { "so" } else { "cubin" };
    // The key holds the whole name; the file shows what of it can stand in a file's name anywhere.
    let shown: String =
        source.name().chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).take(64).collect();
    let stem = format!("{shown}-{}", &key[..32]);
    let folder = cache_directory();
    let binary = |path: PathBuf, entry: Entry, cached, scratch: Option<Scratch>| Binary {
        name: source.name().to_owned(),
        architecture: architecture.clone(),
        key: key.clone(),
        hash: entry.hash,
        path,
        log: entry.log,
        resources: entry.resources,
        cached,
        folder: scratch.map(|scratch| Arc::new(scratch) as _),
    };

    let path = folder.join(format!("{stem}.{suffix}"));
    let entry_path = folder.join(format!("{stem}.json"));
    let known = source.is_self_contained();
    if known && let Some(entry) = read(&path, &entry_path) {
        return Ok(binary(path, entry, true, None));
    }

    let scratch = Scratch::new().map_err(|source| Error::Io { path: std::env::temp_dir(), source })?;
    let compiled = build(scratch.path())?;
    let hash = blake3::hash(&compiled.bytes).to_hex().to_string();
    let entry = Entry { hash, log: compiled.log, resources: compiled.resources };
    // Without a cache the binary must still lie somewhere until it is loaded.
    let keep = |entry| {
        let kept = scratch.path().join(format!("{stem}.{suffix}"));
        fs::write(&kept, &compiled.bytes).map_err(|error| io(&kept, error))?;
        Ok(binary(kept, entry, false, Some(scratch)))
    };
    if !known {
        return keep(entry);
    }
    match write(&folder, &path, &compiled.bytes).and_then(|()| {
        let text = serde_json::to_vec_pretty(&entry).map_err(|error| io(&entry_path, error.into()))?;
        write(&folder, &entry_path, &text)
    }) {
        Ok(()) => Ok(binary(path, entry, false, None)),
        Err(error) => {
            tracing::warn!(
                "the kernel cache cannot be written ({error}); '{}' is compiled every time",
                source.name()
            );
            keep(entry)
        }
    }
}

/// The entry, if binary and entry are there and belong together.
fn read(path: &Path, entry_path: &Path) -> Option<Entry> {
    let entry = serde_json::from_slice::<Entry>(&fs::read(entry_path).ok()?);
    let bytes = fs::read(path).ok()?;
    match entry {
        Ok(entry) if blake3::hash(&bytes).to_hex().as_str() == entry.hash => Some(entry),
        _ => {
            tracing::warn!("{} is corrupted and is compiled anew", path.display());
            None
        }
    }
}

/// Writes beside and renames, so that no reader ever sees half a file.
fn write(folder: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    fs::create_dir_all(folder).map_err(|source| io(folder, source))?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|source| io(folder, source))?;
    file.write_all(bytes).map_err(|source| io(path, source))?;
    file.persist(path).map_err(|error| io(path, error.error))?;
    Ok(())
}

fn io(path: &Path, source: std::io::Error) -> Error {
    Error::Io { path: path.to_owned(), source }
}
