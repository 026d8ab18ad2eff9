//! The `gatework` command with the workloads of everything Gatework brings.

use std::process::ExitCode;

use gatework::command;
use gatework::lab::runtime;

fn main() -> ExitCode {
    command::run(std::env::args_os(), runtime::workloads()).into()
}
