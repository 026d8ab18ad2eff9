//! `gatework lab`.

mod bench;
mod check;
mod compare;
mod gate;
mod list;
mod profile;

mod recorder;
mod records;
mod report;
mod tune;

pub(super) use gate::gate_each;
use gatework_lab::Registry;
pub(super) use recorder::Recorder;

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
        LabCommand::Bench(options) => bench::run(options, registry, device, output, progress),
        LabCommand::Tune(options) => tune::run(options, registry, device, output, progress),
        LabCommand::Profile(options) => profile::run(options, registry, device, output, progress),
        LabCommand::Compare(options) => compare::run(options, output, progress),
        LabCommand::Report(options) => report::run(options, registry, output, progress),
        LabCommand::Records(options) if options.check => check::run(options, registry, output, progress),
        LabCommand::Records(options) => records::run(options, output, progress),
    }
}
