//! The `gatework` command with the workloads of everything Gatework brings.

use std::process::ExitCode;

use gatework::{command, workloads};

fn main() -> ExitCode {
    command::run(std::env::args_os(), workloads()).into()
}
