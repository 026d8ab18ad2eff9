//! `gatework stark`.

mod bench;
pub(crate) mod cli;
mod memory;
mod prove;
mod quiet;
mod statement;
pub(crate) mod stop;
mod verify;

use self::cli::StarkCommand;
use crate::command::device::DeviceChoice;
use crate::command::ending::{Ending, Failure};
use crate::command::output::Output;
use crate::command::progress::Progress;

pub(crate) fn run(
    command: &StarkCommand,
    device: &DeviceChoice,
    output: &Output,
    progress: &Progress,
) -> Result<Ending, Failure> {
    match command {
        StarkCommand::Prove(options) => prove::run(options, device, output, progress),
        StarkCommand::Verify(options) => verify::run(options, output),
        StarkCommand::Bench(options) => bench::run(options, device, output, progress),
    }
}

/// What an error of the engine means to a user of the command.
fn failure(error: gatework_stark::Error) -> Failure {
    match error {
        gatework_stark::Error::Gpu(error) => error.into(),
        other => Failure::Input(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace that does not satisfy its constraints is no fault of the device.
    #[test]
    fn only_faults_of_the_device_end_as_such() {
        assert_eq!(failure(gatework_stark::Error::ConstraintsNotSatisfied).code(), 2);
        assert_eq!(failure(gatework_stark::Error::TooLarge { needed: 2, free: 1, limit: 1 }).code(), 2);
        let out_of_memory = gatework_gpu::Error::OutOfMemory { asked: 2, held: 0, free: 1, limit: 1 };
        assert_eq!(failure(out_of_memory.into()).code(), 3);
    }
}
