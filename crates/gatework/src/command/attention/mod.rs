//! `gatework attention`.

mod bench;
mod figures;
mod run;
pub(crate) mod shapes;
pub(crate) mod stop;

use std::path::Path;

use gatework_lab::Registry;

use crate::command::cli::AttentionCommand;
use crate::command::device::DeviceChoice;
use crate::command::ending::{Ending, Failure};
use crate::command::output::Output;
use crate::command::progress::Progress;

pub(crate) fn run(
    command: &AttentionCommand,
    registry: &Registry,
    device: &DeviceChoice,
    output: &Output,
    progress: &Progress,
) -> Result<Ending, Failure> {
    match command {
        AttentionCommand::Run(options) => run::run(options, device, output, progress),
        AttentionCommand::Bench(options) => bench::run(options, registry, device, output, progress),
    }
}

/// Says now what would otherwise be found after the work is done.
pub(crate) fn require_writable(option: &str, path: &Path) -> Result<(), Failure> {
    let refuse = |why: String| Err(Failure::Input(format!("{option} {}: {why}", path.display())));
    if path.is_dir() {
        return refuse("it is a folder: name a file in it".into());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match tempfile::tempfile_in(folder) {
        Ok(_) => Ok(()),
        Err(error) => {
            refuse(format!("no file can be written to {}: {error}; name another folder", folder.display()))
        }
    }
}

/// What an error of the engine means to a user of the command.
fn failure(error: gatework_attention::Error) -> Failure {
    match error {
        gatework_attention::Error::Gpu(error) => error.into(),
        other => Failure::Input(other.to_string()),
    }
}
