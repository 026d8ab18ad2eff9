//! Finds cuBLASLt's library before anything calls it: `cudarc` would panic on a missing one.

use std::path::Path;
use std::sync::OnceLock;

use cudarc::cublaslt::sys;

use crate::cuda::nvrtc_library::{keep_loaded, named_folder, newest, toolkit_folders};
use crate::{Error, Result};

/// Makes the library available, once for the process. Afterwards every function of `cudarc::cublaslt::sys`
/// may be called.
pub(super) fn load() -> Result<()> {
    static LOADED: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    LOADED.get_or_init(find).clone().map_err(|reason| Error::NoBlas { reason })
}

/// Looks in the folder that the user named, if it has the library, else where the system's loader looks, else
/// in installed toolkits.
fn find() -> std::result::Result<(), String> {
    let named = named_folder();
    if named.is_some_and(|folder| preload(&folder).is_ok()) || loader_finds_it() {
        return Ok(());
    }
    let folders = toolkit_folders();
    if folders.iter().any(|folder| preload(folder).is_ok()) {
        return Ok(());
    }
    let tried: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Err(format!("no libcublasLt.so where the system's loader looks, nor in {}", tried.join(", ")))
}

fn preload(folder: &Path) -> std::result::Result<(), String> {
    let library = newest(folder, "libcublasLt.so").ok_or("it has no libcublasLt.so")?;
    keep_loaded(&library)?;
    if loader_finds_it() { Ok(()) } else { Err("it is of a version that the bindings do not know".into()) }
}

fn loader_finds_it() -> bool {
    // SAFETY: initialisers of NVIDIA's libraries may run at any time.
    unsafe { sys::is_culib_present() }
}
