//! The command line: results on stdout, everything else on stderr.

mod attention;
mod check;
mod cli;
mod completions;
mod device_memory;
mod doctor;
mod ending;
mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod interrupt;
mod lab;
mod machine;
mod man;
mod noun;
mod output;
mod private;
mod progress;
mod recorder;
mod samples;
mod schema;
mod schemas;
mod shell;
mod stark;
mod topology;
mod tour;
mod train;
mod zoo;

use std::ffi::OsString;

use gatework_gpu::Class;
use gatework_lab::{Registry, Workload};

use self::cli::{Line, Verb, Wanted};
use self::ending::{DONE, Ending, Failure};
use self::noun::Entry;
use self::output::Output;
use self::progress::Progress;
use self::shell::Shell;

/// The nouns of the command line, one line each. The folder of that name says everything else.
const NOUNS: [Entry; 5] = [
    Entry::of::<lab::Lab>(),
    Entry::of::<attention::Attention>(),
    Entry::of::<private::Private>(),
    Entry::of::<stark::Stark>(),
    Entry::of::<train::Train>(),
];

/// The workloads of every noun.
pub(crate) fn workloads() -> Vec<Box<dyn Workload>> {
    NOUNS.iter().flat_map(|noun| (noun.workloads)()).collect()
}

/// Runs the `gatework` command on `arguments`, the program's name first, and returns its exit code.
///
/// The lab knows `workloads` and nothing else: a crate with kernels of its own makes its own command of this.
/// SIGINT, SIGTERM and SIGHUP are blocked in the calling thread and in all that it starts: call this before
/// other threads are there, or block these signals in them.
///
/// ```no_run
/// use gatework::{command, lab::runtime};
/// std::process::exit(command::run(std::env::args_os(), runtime::workloads()).into());
/// ```
pub fn run(arguments: impl IntoIterator<Item = OsString>, workloads: Vec<Box<dyn Workload>>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let line = match Line::parse(&arguments, &NOUNS) {
        Ok(line) => line,
        Err(error) => {
            // Help and version come this way too. Where it cannot be printed there is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() { Class::Input.exit_code() } else { DONE };
        }
    };
    let progress = Progress::new();
    interrupt::install();
    let ready = progress.log_beside().and_then(|()| line.require_printable(&arguments));
    match ready.and_then(|()| dispatch(line, workloads, progress.clone())) {
        Ok(ending) => ending.code(),
        Err(failure) => {
            interrupt::give_way();
            progress.say(&format!("error: {failure}"));
            failure.code()
        }
    }
}

fn dispatch(
    line: Line<'_>,
    workloads: Vec<Box<dyn Workload>>,
    progress: Progress,
) -> Result<Ending, Failure> {
    let mut registry = Registry::new();
    registry.add_all(workloads)?;
    let shell = Shell { registry, device: line.device, output: Output::new(line.json), progress };
    match line.wanted {
        Wanted::Verb(Verb::Doctor) => doctor::run(&shell, &NOUNS),
        Wanted::Verb(Verb::Tour(options)) => tour::run(&options, &shell, &NOUNS),
        Wanted::Verb(Verb::Check(options)) => check::run(&options, &shell),
        Wanted::Verb(Verb::Zoo(options)) => zoo::run(&options, &shell),
        Wanted::Verb(Verb::Schema(options)) => schemas::run(&options, &shell),
        Wanted::Verb(Verb::Completions(options)) => completions::run(&options, &shell, &NOUNS),
        Wanted::Verb(Verb::Man(options)) => man::run(&options, &shell, &NOUNS),
        Wanted::Noun(noun, typed) => noun.run(&typed, &shell),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_of_its_nouns_area() {
        for noun in &NOUNS {
            let (area, name) = (format!("{}/", noun.area), format!("{}/", noun.name()));
            for workload in (noun.workloads)() {
                let own = workload.name().starts_with(&area) || workload.name().starts_with(&name);
                assert!(own, "{} of {}", workload.name(), noun.name());
            }
            assert_eq!(NOUNS.iter().filter(|other| other.area == noun.area).count(), 1, "{area}");
        }
    }
}
