//! Finds NVRTC's library before anything calls it: `cudarc` would panic on a missing one.

use std::borrow::Cow;
use std::env;
use std::ffi::{CStr, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::nvrtc::sys;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::{Error, Result};

const FOLDER_VARIABLE: &str = "GATEWORK_CUDA_LIBRARIES";

/// Makes the library available, once for the process. Afterwards every function of `cudarc::nvrtc::sys` may
/// be called.
pub(super) fn load() -> Result<()> {
    static LOADED: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    LOADED.get_or_init(find).clone().map_err(|reason| Error::NoNvrtc { reason })
}

/// Looks in the folder that the user named, else where the system's loader looks, else in installed toolkits.
fn find() -> std::result::Result<(), String> {
    if let Some(folder) = named_folder() {
        preload(&folder).map_err(|reason| format!("{FOLDER_VARIABLE}={}: {reason}", folder.display()))?;
        warn_if_shadowed(&folder);
        return Ok(());
    }
    if loader_finds_it() {
        return Ok(());
    }
    let folders = toolkit_folders();
    if folders.iter().any(|folder| preload(folder).is_ok()) {
        return Ok(());
    }
    let tried: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Err(format!("no libnvrtc.so where the system's loader looks, nor in {}", tried.join(", ")))
}

/// The folder that the user named.
pub(super) fn named_folder() -> Option<PathBuf> {
    env::var_os(FOLDER_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Library folders of the toolkits that may be installed: those that the environment names, then the usual
/// places.
pub(super) fn toolkit_folders() -> Vec<PathBuf> {
    let named =
        ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(env::var_os).filter(|value| !value.is_empty());
    let mut versioned: Vec<PathBuf> = entries(Path::new("/usr/local"))
        .into_iter()
        .filter(|path| file_name(path).starts_with("cuda-"))
        .collect();
    versioned.sort_by(|left, right| right.cmp(left));
    let toolkits = named.map(PathBuf::from).chain([PathBuf::from("/usr/local/cuda")]).chain(versioned);
    toolkits.map(|toolkit| toolkit.join("lib64")).collect()
}

/// Loads the library from `folder` and keeps it, so that a later look by name alone finds it in memory.
///
/// NVRTC itself looks for its builtins by name alone, so they must be in memory first.
fn preload(folder: &Path) -> std::result::Result<(), String> {
    let library = newest(folder, "libnvrtc.so").ok_or("it has no libnvrtc.so")?;
    let builtins = newest(folder, "libnvrtc-builtins.so").ok_or("it has no libnvrtc-builtins.so")?;
    for path in [&builtins, &library] {
        keep_loaded(path)?;
    }
    if loader_finds_it() {
        return Ok(());
    }
    Err(format!("{} was loaded, but is of a version that the bindings do not know", library.display()))
}

/// Loads a library for everybody. It is deliberately never closed: the process uses it until its end.
pub(super) fn keep_loaded(path: &Path) -> std::result::Result<(), String> {
    // SAFETY: initialisers of NVIDIA's libraries may run at any time.
    let opened = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    let _handle: *mut c_void = opened.map_err(|error| error.to_string())?.into_raw();
    Ok(())
}

/// The file of that name, or of that name and a version, that comes last in order.
pub(super) fn newest(folder: &Path, name: &str) -> Option<PathBuf> {
    entries(folder).into_iter().filter(|path| file_name(path).starts_with(name)).max()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default()
}

fn loader_finds_it() -> bool {
    // SAFETY: initialisers of NVIDIA's libraries may run at any time.
    unsafe { sys::is_culib_present() }
}

/// The bindings ask the loader for `libnvrtc.so` first, so one in the system's own folders wins over the
/// user's folder.
fn warn_if_shadowed(folder: &Path) {
    let Some(used) = library_in_use() else { return };
    let same = |left: &Path, right: &Path| fs::canonicalize(left).ok() == fs::canonicalize(right).ok();
    if !used.parent().is_some_and(|parent| same(parent, folder)) {
        let (used, folder) = (used.display(), folder.display());
        tracing::warn!(
            "{FOLDER_VARIABLE} names {folder}, but the system's loader finds {used} first and that is used"
        );
    }
}

/// The file that the bindings' functions come from.
fn library_in_use() -> Option<PathBuf> {
    // SAFETY: the loader finds the library, and a function may be looked up as an address.
    let function = unsafe { *sys::culib().get::<*const c_void>(b"nvrtcVersion").ok()? };
    // SAFETY: all-zero is a valid `Dl_info`.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is written by the call.
    if unsafe { libc::dladdr(function, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of a library that is never closed.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(name.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_told_from_its_variants() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "libnvrtc-builtins.so.13.0",
            "libnvrtc.alt.so.13",
            "libnvrtc.so.13",
            "libnvrtc-builtins.alt.so.13.0",
        ];
        for name in names {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = |name| newest(folder.path(), name).map(|path| file_name(&path).into_owned());
        assert_eq!(found("libnvrtc.so").as_deref(), Some("libnvrtc.so.13"));
        assert_eq!(found("libnvrtc-builtins.so").as_deref(), Some("libnvrtc-builtins.so.13.0"));
    }

    #[test]
    fn a_folder_without_the_library_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let reason = preload(folder.path()).unwrap_err();
        assert_eq!(reason, "it has no libnvrtc.so");
        fs::write(folder.path().join("libnvrtc.so.13"), "no library").unwrap();
        fs::write(folder.path().join("libnvrtc-builtins.so.13.0"), "no library").unwrap();
        assert!(preload(folder.path()).is_err());
    }
}
