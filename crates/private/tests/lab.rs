//! The engine's workloads through the lab's suite.

use std::process::ExitCode;

use gatework_lab::suite;
use gatework_private::workloads::workloads;

fn main() -> ExitCode {
    suite(workloads()).controls(4).run()
}
