//! Where peers are found.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::NotMeasured;

/// A script of `peers/`.
struct Script {
    id: &'static str,
    /// The name in records, until the script says its own.
    name: &'static str,
    file: &'static str,
}

/// The scripts that run on a GPU.
const SCRIPTS: [Script; 3] = [
    Script { id: "torch", name: "PyTorch", file: "torch_ops.py" },
    Script { id: "jax", name: "JAX", file: "jax_ops.py" },
    Script { id: "cudnn", name: "cuDNN", file: "cudnn_attention.py" },
];
/// Those that run on the CPU.
const CPU_SCRIPTS: [Script; 1] = [Script { id: "torch", name: "PyTorch", file: "torch_cpu.py" }];
/// The folder of scripts, if it is not `peers/` here or above the program.
const FOLDER_VARIABLE: &str = "GATEWORK_PEERS";
/// The interpreter, if it is not `python3`.
const PYTHON_VARIABLE: &str = "GATEWORK_PYTHON";

/// How a peer is started.
#[derive(Debug, Clone)]
pub struct PeerCommand {
    /// Its name in options: `torch`, `jax`, `cudnn`.
    pub id: String,
    /// Its name until it says its own.
    pub name: String,
    /// Program and arguments, or why there are none.
    pub(crate) command: Result<(OsString, Vec<OsString>), NotMeasured>,
}

impl PeerCommand {
    /// A peer of one's own, with its name as its id.
    pub fn new(name: impl Into<String>, program: impl Into<OsString>, arguments: &[&str]) -> Self {
        let (name, arguments) = (name.into(), arguments.iter().map(Into::into).collect());
        Self { id: name.clone(), name, command: Ok((program.into(), arguments)) }
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

fn commands(scripts: &[Script]) -> Vec<PeerCommand> {
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
        .map(|script| PeerCommand {
            id: script.id.into(),
            name: script.name.into(),
            command: command(script.file),
        })
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
    SCRIPTS.iter().any(|script| folder.join(script.file).is_file())
}
