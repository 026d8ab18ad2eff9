//! The engine's workloads through the lab's suite.

use std::process::ExitCode;

use gatework_foresight::workloads::{hunted, workloads};
use gatework_lab::suite;

fn main() -> ExitCode {
    suite(workloads()).controls(4).mutants_of(hunted(), 50, &[]).run()
}
