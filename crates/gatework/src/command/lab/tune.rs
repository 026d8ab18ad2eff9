//! `gatework lab tune`: the fastest configuration that is right.

use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gatework_gpu::Device;
use gatework_lab::tune::{
    Conclusion, DeviceEvaluator, Limits, Search, Strategy, Trial, TrialOutcome, Tunable, TuneStop,
    TuningRecord, TuningState, tune,
};
use gatework_lab::{Gates, Record, Registry, Workload};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::files::write_json;
use crate::command::interrupt::uninterrupted;
use crate::command::output::table;
use crate::command::progress::Progress;
use crate::command::recorder::Recorder;
use crate::command::schema;
use crate::command::shell::Shell;
use gatework_lab::quantity::ratio;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework lab tune gpu/transpose --seconds 60
  gatework lab tune gpu/transpose --exhaustive --out transpose.json
  gatework lab tune gpu/transpose --evaluations 200 --state transpose.state

Running the same command with --state again continues the search. The winner is compared
with the default on shapes and seeds that the search never saw.";

/// What to tune, and when to stop.
#[derive(Debug, Args)]
pub(crate) struct TuneOptions {
    /// The name of the workload
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// Stop after this many seconds
    #[arg(long, value_name = "N")]
    pub(super) seconds: Option<NonZeroU64>,
    /// Stop after this many configurations, counting those in the state file
    #[arg(long, value_name = "N")]
    pub(super) evaluations: Option<usize>,
    /// Try every configuration instead of breeding from the best
    #[arg(long)]
    pub(super) exhaustive: bool,
    /// The seed of the search
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(super) seed: u64,
    /// Save the search to this file, and continue from it if it exists
    #[arg(long, value_name = "FILE")]
    pub(super) state: Option<PathBuf>,
    /// Write all trials and the best configurations to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    /// The folder to append the record to
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(super) results: PathBuf,
    /// Do not write a record
    #[arg(long)]
    pub(super) no_record: bool,
}

/// Configurations that are kept and bred from.
const ELITE: usize = 5;

#[derive(Serialize)]
struct Tuned {
    workload: String,
    device: String,
    tuning: TuningRecord,
    /// The file the record was appended to.
    recorded_in: Option<PathBuf>,
}

impl schema::Document for Tuned {
    const SCHEMA: schema::Schema = schema::LAB_TUNE;
}

impl schema::Document for TuningRecord {
    const SCHEMA: schema::Schema = schema::TUNING;
}

pub(super) fn run(options: &TuneOptions, shell: &Shell) -> Result<Ending, Failure> {
    let registry = &shell.registry;
    let workload = registry.get(&options.name)?;
    let Some(tunable) = workload.tunable() else {
        return Err(Failure::input(format!(
            "'{}' has nothing to tune: {}",
            options.name,
            tunables(registry)
        )));
    };
    let device = timing_device(shell)?;
    let mut recorder = Recorder::open((!options.no_record).then_some(options.results.as_path()))?;
    let tuning = search(options, workload, tunable, &device, &shell.progress)?;
    if let Some(path) = &options.out {
        write_json(path, &tuning)?;
    }
    recorder.take(&record(tunable, device.clone(), &tuning, &shell.progress));
    let tuned = Tuned {
        workload: options.name.clone(),
        device: device.properties().name.clone(),
        tuning,
        recorded_in: recorder.file,
    };
    shell.output.show(&tuned, || tuned.text())?;
    recorder.failure.map_or(Ok(Ending::Done), |error| Err(error.into()))
}

fn timing_device(shell: &Shell) -> Result<Device, Failure> {
    match shell.test_bed()?.device() {
        Some(device) => Ok(device.clone()),
        None => Err(Failure::device("tuning times kernels on a GPU: use --device cuda".to_owned())),
    }
}

fn tunables(registry: &Registry) -> String {
    let names: Vec<&str> =
        registry.iter().filter(|workload| workload.tunable().is_some()).map(Workload::name).collect();
    if names.is_empty() { "no workload has".to_owned() } else { format!("these have: {}", names.join(", ")) }
}

fn search(
    options: &TuneOptions,
    workload: &dyn Workload,
    tunable: &dyn Tunable,
    device: &Device,
    progress: &Progress,
) -> Result<TuningRecord, Failure> {
    let mut evaluator = DeviceEvaluator::new(tunable, device.clone())?;
    let strategy = if options.exhaustive { Strategy::Exhaustive } else { Strategy::Evolution };
    let search = Search::new(tunable.space(), tunable.default_configuration(), strategy, options.seed, ELITE);
    let mut state = TuningState::new(workload.name(), &device.properties().name, sources(tunable)?, &search);
    if let Some(path) = &options.state {
        state = state.resumed_from(path)?;
        // Now, not after the first trial: a file that cannot be written loses nothing yet.
        uninterrupted(|| state.write(path))?;
    }
    let limits = Limits {
        evaluations: options.evaluations,
        time: options.seconds.map(|seconds| Duration::from_secs(seconds.get())),
    };
    let jobs = progress.start(options.evaluations.unwrap_or_else(|| search.space().configurations().count()));
    jobs.doing(format!("{}: {}", workload.name(), search.default_configuration()));
    let record = tune(&search, &mut evaluator, &mut state, limits, &mut |state| {
        jobs.done();
        if let Some(trial) = state.trials.last() {
            jobs.doing(format!("{}: {} {}", workload.name(), trial.configuration, fate(trial)));
        }
        options.state.as_ref().map_or(Ok(()), |path| uninterrupted(|| state.write(path)))
    })?;
    Ok(record)
}

/// The sources of the default's kernels: a search of other sources is another search.
fn sources(tunable: &dyn Tunable) -> Result<Vec<String>, Failure> {
    let default = tunable.configured(&tunable.default_configuration());
    default.kernels().iter().map(|spec| Ok(spec.source.hash()?)).collect()
}

/// The gates of the configuration that the search settled on, with the search.
fn record(tunable: &dyn Tunable, device: Device, tuning: &TuningRecord, progress: &Progress) -> Record {
    let _jobs = progress.start(1);
    let settled = tunable.configured(tuning.best());
    let mut record = Gates::new(device).gate(settled.as_ref(), progress);
    record.tuning = Some(tuning.clone());
    record
}

fn fate(trial: &Trial) -> String {
    match &trial.outcome {
        TrialOutcome::Timed { score } => format!("{:.3}", score.ratio),
        TrialOutcome::SameAs { trial } => format!("the same program as trial {trial}"),
        TrialOutcome::Rejected { rejection } => rejection.to_string(),
    }
}

impl Tuned {
    fn text(&self) -> String {
        let mut rows = table(["place", "configuration", "time over baseline", "binary", "same program"]);
        for (place, member) in self.tuning.elite.iter().enumerate() {
            let digits = member.identity.as_deref().unwrap_or("").chars().take(12).collect();
            let also: Vec<String> = member.also.iter().map(ToString::to_string).collect();
            let score = format!("{:.4}", member.ratio);
            rows.add_row([
                (place + 1).to_string(),
                member.configuration.to_string(),
                score,
                digits,
                also.join("; "),
            ]);
        }
        let mut text = format!("{rows}\n\n{}\n{}", self.summary(), self.conclusion());
        if let Some(file) = &self.recorded_in {
            let _ = write!(text, "\nrecorded in {}", file.display());
        }
        text
    }

    fn summary(&self) -> String {
        let trials = &self.tuning.trials;
        let count =
            |which: fn(&TrialOutcome) -> bool| trials.iter().filter(|trial| which(&trial.outcome)).count();
        let timed = count(|outcome| matches!(outcome, TrialOutcome::Timed { .. }));
        let same = count(|outcome| matches!(outcome, TrialOutcome::SameAs { .. }));
        let rejected = count(|outcome| matches!(outcome, TrialOutcome::Rejected { .. }));
        let ended = match self.tuning.stopped {
            TuneStop::Evaluations => "as many as were allowed",
            TuneStop::Time => "the time is up",
            TuneStop::Exhausted => "there are no more",
        };
        format!(
            "{} configurations of {} on {}: {timed} timed, {same} the same program as another, {rejected} rejected; {ended}",
            trials.len(),
            self.workload,
            self.device
        )
    }

    fn conclusion(&self) -> String {
        let (said, held_out) = match &self.tuning.conclusion {
            Conclusion::WinnerBeatsDefault { held_out } => (
                format!("the winner {} beats the default {}", self.tuning.best(), self.tuning.default),
                held_out,
            ),
            Conclusion::DefaultStays { why, held_out } => {
                (format!("the default {} stays: {why}", self.tuning.default), held_out)
            }
        };
        let mut text = said;
        for case in held_out {
            let _ = write!(
                text,
                "\n  {} (never seen): {} of the default, {}",
                case.case,
                ratio(case.ratio),
                case.verdict
            );
        }
        text
    }
}
