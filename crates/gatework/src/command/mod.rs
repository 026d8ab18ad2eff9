//! The command line: results on stdout, everything else on stderr.

mod attention;
mod cli;
mod device;
mod doctor;
mod ending;
mod interrupt;
mod lab;
mod output;
mod private;
mod progress;
mod stark;
mod tour;

use std::ffi::OsString;

use clap::Parser as _;
use gatework_lab::{Registry, Workload};

use self::cli::{Cli, Command};
use self::ending::{DONE, Ending, Failure};
use self::output::Output;
use self::progress::Progress;

/// Runs the `gatework` command on `arguments`, the program's name first, and returns its exit code.
///
/// The lab knows `workloads` and nothing else: a crate with kernels of its own makes its own command of this.
///
/// ```no_run
/// use gatework::{command, lab::runtime};
/// std::process::exit(command::run(std::env::args_os(), runtime::workloads()).into());
/// ```
pub fn run(arguments: impl IntoIterator<Item = OsString>, workloads: Vec<Box<dyn Workload>>) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too. Where it cannot be printed there is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() { ending::BAD_INPUT } else { DONE };
        }
    };
    let progress = Progress::new();
    progress.log_beside();
    interrupt::install();
    match dispatch(&cli, workloads, &progress) {
        Ok(ending) => ending.code(),
        Err(failure) => {
            progress.say(&format!("error: {failure}"));
            failure.code()
        }
    }
}

fn dispatch(cli: &Cli, workloads: Vec<Box<dyn Workload>>, progress: &Progress) -> Result<Ending, Failure> {
    let mut registry = Registry::new();
    registry.add_all(workloads)?;
    let output = Output::new(cli.json);
    match &cli.command {
        Command::Doctor => doctor::run(&output),
        Command::Tour => tour::run(&registry, &cli.device, &output, progress),
        Command::Attention(command) => attention::run(command, &registry, &cli.device, &output, progress),
        Command::Private(command) => private::run(command, &output, progress),
        Command::Stark(command) => stark::run(command, &cli.device, &output, progress),
        Command::Lab(command) => lab::run(command, &registry, &cli.device, &output, progress),
    }
}
