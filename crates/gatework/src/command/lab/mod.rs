//! `gatework lab`.

mod gate;
mod list;
mod records;

use gatework_lab::Registry;

use crate::command::cli::LabCommand;
use crate::command::device::DeviceChoice;
use crate::command::ending::{Ending, Failure};
use crate::command::output::Output;
use crate::command::progress::Progress;

pub(crate) fn run(
    command: &LabCommand,
    registry: &Registry,
    device: &DeviceChoice,
    output: &Output,
    progress: &Progress,
) -> Result<Ending, Failure> {
    match command {
        LabCommand::List => list::run(registry, output),
        LabCommand::Gate(options) => gate::run(options, registry, device, output, progress),
        LabCommand::Records(options) => records::run(options, output, progress),
    }
}
