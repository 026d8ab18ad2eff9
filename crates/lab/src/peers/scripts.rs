//! Where peers are found.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::NotMeasured;

/// The scripts of `peers/`, each with the name it has in records if it never gets to say its own.
const SCRIPTS: [(&str, &str); 3] =
    [("PyTorch", "torch_ops.py"), ("JAX", "jax_ops.py"), ("cuDNN", "cudnn_attention.py")];
/// Those that run on the CPU.
const CPU_SCRIPTS: [(&str, &str); 1] = [("PyTorch", "torch_cpu.py")];
/// The folder of scripts, if it is not `peers/` here or above the program.
const FOLDER_VARIABLE: &str = "GATEWORK_PEERS";
/// The interpreter, if it is not `python3`.
const PYTHON_VARIABLE: &str = "GATEWORK_PYTHON";

/// How a peer is started.
#[derive(Debug, Clone)]
pub struct PeerCommand {
    /// Its name until it says its own.
    pub name: String,
    /// Program and arguments, or why there are none.
    pub(crate) command: Result<(OsString, Vec<OsString>), NotMeasured>,
}

impl PeerCommand {
    /// A peer of one's own.
    pub fn new(name: impl Into<String>, program: impl Into<OsString>, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(Into::into).collect();
        Self { name: name.into(), command: Ok((program.into(), arguments)) }
    }
}

/// The peers that come with Gatework, on a GPU.
pub fn installed() -> Vec<PeerCommand> {
    commands(&SCRIPTS)
}

/// The peers that come with Gatework, on the CPU.
pub fn installed_for_cpu() -> Vec<PeerCommand> {
    commands(&CPU_SCRIPTS)
}

fn commands(scripts: &[(&str, &str)]) -> Vec<PeerCommand> {
    let folder = folder();
    let python = env::var_os(PYTHON_VARIABLE).filter(|value| !value.is_empty()).unwrap_or("python3".into());
    let command = |script: &str| match &folder {
        Some(folder) => Ok((python.clone(), vec![folder.join(script).into_os_string()])),
        None => Err(NotMeasured(format!(
            "the folder peers/ was not found here or above the program: name it in {FOLDER_VARIABLE}"
        ))),
    };
    scripts
        .iter()
        .map(|&(name, script)| PeerCommand { name: name.into(), command: command(script) })
        .collect()
}

fn folder() -> Option<PathBuf> {
    let named = env::var_os(FOLDER_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let here = env::current_dir().ok();
    let program = env::current_exe().ok();
    let above = |start: Option<PathBuf>| {
        let folders: Vec<PathBuf> =
            start.iter().flat_map(|path| path.ancestors()).map(|folder| folder.join("peers")).collect();
        folders
    };
    named.into_iter().chain(above(here)).chain(above(program)).find(|folder| holds_scripts(folder))
}

fn holds_scripts(folder: &Path) -> bool {
    SCRIPTS.iter().any(|(_, script)| folder.join(script).is_file())
}
