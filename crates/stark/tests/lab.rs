//! The engine's workloads through the lab's suite, on the emulated device.

use std::process::ExitCode;

use gatework_lab::suite;
use gatework_stark::workloads::workloads;

fn main() -> ExitCode {
    suite(workloads()).controls(4).mutants(11, &[]).run()
}
