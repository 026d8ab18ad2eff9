//! `gatework check`: a stranger's CUDA file on the emulated device.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use gatework_lab::check::{CheckError, KNOWN_PTX, Plan, Report, Sizes, check_file, known_includes};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::schema;
use crate::command::shell::{DeviceUse, Shell};

/// Options of `gatework check`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct CheckOptions {
    /// The CUDA C++ file; headers that it includes by "…" are looked for beside it
    #[arg(required_unless_present = "known")]
    file: Option<PathBuf>,
    /// How its kernels are launched, as TOML: kernel, blocks, threads, shared, cluster, cooperative, early,
    /// seeds, seconds, and [args] with a number or { elements, fill } for each parameter or field of one.
    /// Without it, they are launched as the file does it, as far as that stands there in numbers
    #[arg(long, value_name = "TOML")]
    plan: Option<PathBuf>,
    /// Number of schedules to run each kernel under [default: the plan's]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// List the headers and the PTX instructions that are supported
    #[arg(long)]
    known: bool,
}

#[derive(Serialize)]
struct Checked {
    file: String,
    kernels: Vec<Report>,
}

impl schema::Document for Checked {
    const SCHEMA: schema::Schema = schema::CHECK;
}

#[derive(Serialize)]
struct Known {
    includes: Vec<&'static str>,
    ptx: &'static [&'static str],
}

impl schema::Document for Known {
    const SCHEMA: schema::Schema = schema::CHECK_KNOWN;
}

pub(crate) fn run(options: &CheckOptions, shell: &Shell) -> Result<Ending, Failure> {
    shell.device.check("check", DeviceUse::EmulatedOnly)?;
    if options.known {
        let known = Known { includes: known_includes(), ptx: KNOWN_PTX };
        let text = || format!("headers: {}\n\nPTX: {}", known.includes.join(", "), KNOWN_PTX.join(", "));
        shell.output.show(&known, text)?;
        return Ok(Ending::Done);
    }
    let Some(path) = &options.file else { return Err(Failure::input("a file is missing".into())) };
    let mut plan = match &options.plan {
        Some(path) => toml::from_str(&read(path)?)
            .map_err(|error| Failure::input(format!("{}: {error}", path.display())))?,
        None => Plan::default(),
    };
    plan.seeds = options.seeds.unwrap_or(plan.seeds);
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let kernels = check_file(path, &plan).map_err(|error| match error {
        CheckError::Refused(refusal) => Failure::input(format!("{}: {refusal}", path.display())),
        CheckError::Plan(sentence) => Failure::input(sentence),
        CheckError::File { .. } => Failure::input(error.to_string()),
        CheckError::Device(error) => error.into(),
    })?;
    let checked = Checked { file: name, kernels };
    shell.output.show(&checked, || checked.text())?;
    let is_clean = checked.kernels.iter().all(|kernel| kernel.findings.is_empty());
    Ok(if is_clean { Ending::Done } else { Ending::GateFailed })
}

fn read(path: &PathBuf) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::input(format!("{}: {error}; it should be a text file: name another", path.display()))
    })
}

/// `4`, or `4 x 2`.
fn extent(sides: &[u32; 3]) -> String {
    let used = sides.iter().rposition(|&side| side != 1).map_or(1, |last| last + 1);
    sides[..used].iter().map(u32::to_string).collect::<Vec<_>>().join(" x ")
}

impl Checked {
    fn text(&self) -> String {
        let mut text = String::new();
        for Report { kernel, blocks, threads, sizes, seeds, findings, warnings, fills_registers } in
            &self.kernels
        {
            if findings.is_empty() {
                let plural = if blocks == &[1; 3] { "" } else { "s" };
                let launch = format!("{} block{plural} of {} threads", extent(blocks), extent(threads));
                let like = match sizes {
                    Sizes::OfTheFile => ", with buffers as large as the file's",
                    Sizes::OfThePlan => "",
                };
                let _ = writeln!(text, "{kernel}: nothing found under {seeds} schedules of {launch}{like}");
                if !fills_registers {
                    let _ = writeln!(
                        text,
                        "    registers that some threads do not initialise were not looked for: that needs GCC 12 or later, and a \
                         kernel that is not too slow without optimisation"
                    );
                }
            }
            let all = findings.iter().map(|finding| ("", finding));
            for (word, finding) in all.chain(warnings.iter().map(|warning| ("warning: ", warning))) {
                let fault = &finding.fault;
                let site = fault.site.as_ref().map_or_else(|| self.file.clone(), ToString::to_string);
                let thread = fault.thread.map_or_else(String::new, |thread| format!(", thread {thread:?}"));
                let _ = writeln!(text, "{site}: {word}{}", fault.message);
                let _ = writeln!(
                    text,
                    "    in {kernel}, block {:?}{thread}, under {} of {seeds} schedules (the first: seed {})",
                    fault.block, finding.seeds, fault.seed
                );
            }
        }
        text
    }
}
