//! `gatework attention`.

mod run;

use crate::command::cli::AttentionCommand;
use crate::command::device::DeviceChoice;
use crate::command::ending::{Ending, Failure};
use crate::command::output::Output;
use crate::command::progress::Progress;

pub(crate) fn run(
    command: &AttentionCommand,
    device: &DeviceChoice,
    output: &Output,
    progress: &Progress,
) -> Result<Ending, Failure> {
    match command {
        AttentionCommand::Run(options) => run::run(options, device, output, progress),
    }
}

/// What an error of the engine means to a user of the command.
fn failure(error: gatework_attention::Error) -> Failure {
    match error {
        gatework_attention::Error::Gpu(error) => error.into(),
        other => Failure::Input(other.to_string()),
    }
}
