//! `gatework lab profile`: one launch under the profiler, and what to try next.

use std::env;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use gatework_gpu::Device;
use gatework_lab::profile::{ProfileError, ProfileRecord, ProfiledProgram, profile};
use gatework_lab::{Case, Gates, Record, Workload};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::output::{Reasons, table};
use crate::command::recorder::Recorder;
use crate::command::schema;
use crate::command::shell::Shell;

/// What to profile, and where the record goes.
#[derive(Debug, Args)]
pub(crate) struct ProfileOptions {
    /// The name of the workload
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// The case of the benchmark [default: the first]
    #[arg(long, value_name = "CASE")]
    pub(super) case: Option<String>,
    /// Launch it and nothing else: what the profiler runs
    #[arg(long, hide = true)]
    pub(super) launch: bool,
    /// The folder to append the record to
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(super) results: PathBuf,
    /// Do not write a record
    #[arg(long)]
    pub(super) no_record: bool,
}

/// Launches for the profiler to choose from: it skips the first, which loads the kernel.
const LAUNCHES: usize = 3;

#[derive(Serialize)]
struct Profiled {
    record: Record,
    /// The file the record was appended to.
    recorded_in: Option<PathBuf>,
}

impl schema::Document for Profiled {
    const SCHEMA: schema::Schema = schema::LAB_PROFILE;
}

pub(super) fn run(options: &ProfileOptions, shell: &Shell) -> Result<Ending, Failure> {
    let workload = shell.registry.get(&options.name)?;
    let bed = shell.test_bed()?;
    if options.launch {
        let device =
            bed.device().ok_or_else(|| Failure::device("there is no device to launch on".to_owned()))?;
        return launch(workload, device, options.case.as_deref());
    }
    let mut recorder = Recorder::open((!options.no_record).then_some(options.results.as_path()))?;
    let jobs = shell.progress.start(1);
    let mut record = Gates::new(bed.clone()).seeds(0..1).gate(workload, &shell.progress);
    jobs.doing(format!("{}: profile", workload.name()));
    let profiled = match bed.device() {
        _ if !record.verdict.is_passed() => {
            Err(ProfileError::NotRun("the gates before it were not passed".into()))
        }
        Some(device) => profiled(workload, device, options.case.as_deref()),
        None => Err(ProfileError::NotRun("there is no device".into())),
    };
    record.take_profile(profiled);
    drop(jobs);
    recorder.take(&record);

    let profiled = Profiled { record, recorded_in: recorder.file };
    shell.output.show(&profiled, || profiled.text())?;
    recorder.failure.map_or_else(|| Ok(profiled.ending()), |error| Err(error.into()))
}

fn profiled(
    workload: &dyn Workload,
    device: &Device,
    case: Option<&str>,
) -> Result<ProfileRecord, ProfileError> {
    if device.is_emulated() {
        let why = "there is nothing to profile on the emulated device; use a CUDA device";
        return Err(ProfileError::NotRun(why.to_owned()));
    }
    let kernels: Vec<String> = workload.kernels().into_iter().flat_map(|spec| spec.entries).collect();
    if kernels.is_empty() {
        return Err(ProfileError::NotRun("the workload has no kernels".to_owned()));
    }
    let case = chosen(workload, device, case).map_err(|failure| ProfileError::NotRun(failure.to_string()))?;
    let program = env::current_exe()
        .map_err(|error| ProfileError::NotRun(format!("this program cannot find itself: {error}")))?;
    let id = &device.properties().id;
    let arguments = ["lab", "profile", workload.name(), "--case", &case.name, "--launch", "--device", id];
    profile(&ProfiledProgram {
        program,
        arguments: arguments.map(Into::into).to_vec(),
        kernels,
        case: case.name.clone(),
    })
}

fn chosen(workload: &dyn Workload, device: &Device, name: Option<&str>) -> Result<Case, Failure> {
    let cases = workload.bench_cases(device.properties().kind);
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let found = match name {
        Some(name) => cases.iter().find(|case| case.name == name),
        None => cases.first(),
    };
    found.cloned().ok_or_else(|| match name {
        Some(name) => {
            Failure::input(format!("'{}' has no case '{name}' but {}", workload.name(), names.join(", ")))
        }
        None => Failure::input(format!("'{}' has no benchmark to profile", workload.name())),
    })
}

/// What the profiler runs: the candidate, a few times, with nothing printed.
fn launch(workload: &dyn Workload, device: &Device, case: Option<&str>) -> Result<Ending, Failure> {
    let case = chosen(workload, device, case)?;
    let failed = |error: gatework_lab::RunError| Failure::device(error.to_string());
    let bench = workload.bench(device, &case).map_err(failed)?;
    let bench = bench.ok_or_else(|| Failure::input(format!("case '{}' has no benchmark", case.name)))?;
    let stream = device.stream()?;
    let mut candidate = bench.into_candidate();
    for _ in 0..LAUNCHES {
        candidate.run(&stream).map_err(failed)?;
    }
    Ok(Ending::Done)
}

impl Profiled {
    fn ending(&self) -> Ending {
        match (&self.record.profile, self.record.verdict.is_failed()) {
            (_, true) => Ending::GateFailed,
            (None, false) => Ending::DeviceFailed,
            (Some(_), false) => Ending::Done,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(profile) = &self.record.profile {
            text = shown(&self.record.workload, profile);
        }
        let mut reasons = Reasons::default();
        for gate in self.record.gates.iter().filter(|gate| !gate.outcome.is_passed()) {
            reasons.add(format!("{} ({}) {}", gate.gate, gate.target, gate.outcome), &self.record.workload);
        }
        let _ = write!(text, "{reasons}");
        if let Some(file) = &self.recorded_in {
            let _ = write!(text, "recorded in {}", file.display());
        }
        text
    }
}

fn shown(workload: &str, profile: &ProfileRecord) -> String {
    let percent =
        |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.1} %"));
    let mut rows = table(["workload", "case", "kernel", "tensor pipe", "SM", "DRAM", "bound"]);
    for launch in &profile.launches {
        let used = launch.utilisation;
        rows.add_row([
            workload.to_owned(),
            profile.case.clone(),
            launch.kernel.clone(),
            percent(used.tensor),
            percent(used.multiprocessors),
            percent(used.memory),
            launch.bound_by.to_string(),
        ]);
    }
    let mut text = format!("{rows}\n\n");
    for launch in &profile.launches {
        let _ = writeln!(text, "{} is {}: {}", launch.kernel, launch.bound_by, launch.advice);
    }
    if !profile.missing.is_empty() {
        let _ = writeln!(text, "{} does not know here: {}", profile.tool, profile.missing.join(", "));
    }
    text
}
