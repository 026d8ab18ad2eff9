//! The engine's workloads through the lab's suite.

use std::process::ExitCode;

use gatework_foresight::workloads::workloads;
use gatework_lab::suite;

fn main() -> ExitCode {
    suite(workloads()).controls(4).run()
}
