//! `gatework attention bench`: how fast attention is at shapes of one's own, beside its peers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use gatework_attention::{Mask, Shape, bench};
use gatework_gpu::{Device, Target};
use gatework_lab::measure::{HostRecord, PerformanceOptions, Station};
use gatework_lab::peers::{self, PeerCommand};
use gatework_lab::{Case, Freshness, Gates, Outcome, Record, Store, Workload, freshness, read_records};
use serde::Serialize;

use super::figures::{Measured, as_chart, as_table, sources};
use super::shapes;
use crate::command::ending::{Ending, Failure};
use crate::command::files::{require_writable, write_file};
use crate::command::output::Reasons;
use crate::command::progress::Progress;
use crate::command::recorder::Recorder;
use crate::command::samples::at_least_100;
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework attention bench --shapes 4x16x4096x64,1x64/8x4096x128
  gatework attention bench --mask causal --plot attention.svg
  gatework attention bench --device cpu --shapes 1x8x1024x64 --peers none --json
  gatework attention bench --from-records results/nvidia-h200.jsonl --plot attention.svg

A shape is BATCHxHEADSxROWSxDIM; HEADS/KEY_HEADS has fewer key heads, ROWS/KEYS another
number of keys than rows.

On a GPU the kernels pass their gates first. All implementations are timed in turns, in
one run; peers that are not installed are skipped.";

/// Which masks are timed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum MaskChoice {
    /// Every row sees every key
    Full,
    /// Each row sees keys up to its own place
    Causal,
    /// One after the other
    Both,
}

/// Who else is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PeerChoice {
    /// PyTorch's scaled-dot-product attention
    Torch,
    /// cuDNN's FP8 attention
    Cudnn,
    /// Nobody
    None,
}

#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// Shapes to time, separated by commas [default: common shapes for the device]
    #[arg(long, value_name = "SHAPES", value_delimiter = ',', value_parser = shapes::parse)]
    pub(super) shapes: Vec<Shape>,
    /// The mask
    #[arg(long, value_enum, default_value = "both", value_name = "MASK")]
    pub(super) mask: MaskChoice,
    /// Other implementations to time in the same run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "torch,cudnn", value_name = "PEERS")]
    pub(super) peers: Vec<PeerChoice>,
    /// Maximum number of sample pairs per shape, at least 100; sampling stops early once the ratio is
    /// certain, and on a CPU after three seconds
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = at_least_100)]
    pub(super) samples: usize,
    /// Plot TFLOP/s against rows in this SVG file
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// The folder to append records to [default: none are written]
    #[arg(long, value_name = "DIR")]
    pub(super) results: Option<PathBuf>,
    /// Do not time anything: show the newest records of this file or folder
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shapes", "peers", "samples", "results"])]
    pub(super) from_records: Option<PathBuf>,
}

/// Longest that a shape is sampled on the CPU once it has the fewest samples that count.
const LONGEST_ON_CPU: Duration = Duration::from_secs(3);

#[derive(Serialize)]
struct Benched {
    device: String,
    measured: Vec<Measured>,
    /// What did not pass, or no longer speaks of this code.
    remarks: Vec<String>,
    recorded_in: Option<PathBuf>,
    plot: Option<PathBuf>,
    #[serde(skip)]
    notes: Vec<String>,
    #[serde(skip)]
    ending: Ending,
}

impl schema::Document for Benched {
    const SCHEMA: schema::Schema = schema::ATTENTION_BENCH;
}

pub(super) fn run(options: &BenchOptions, shell: &Shell) -> Result<Ending, Failure> {
    if let Some(plot) = &options.plot {
        require_writable("--plot", plot)?;
    }
    let mut benched = match &options.from_records {
        Some(records) => from_records(records, options, shell)?,
        None => match shell.target()? {
            Target::Cpu => on_cpu(options, &shell.progress)?,
            Target::Gpu(device) if device.is_emulated() => {
                return Err(Failure::device(
                    "time means nothing on the emulated device: use --device cuda, or cpu for the CPU's own speed"
                        .into(),
                ));
            }
            Target::Gpu(device) => on_device(&device, options, &shell.progress)?,
        },
    };
    let drawn = match &options.plot {
        // Why nothing was measured is said already, and is what the command ends with.
        Some(_) if benched.measured.is_empty() && benched.ending != Ending::Done => Ok(()),
        Some(plot) => benched.draw(plot),
        None => Ok(()),
    };
    shell.output.show(&benched, || benched.text())?;
    drawn.map(|()| benched.ending)
}

/// The cases that were asked for, or else the usual ones.
fn cases(options: &BenchOptions, usual: fn() -> Vec<Shape>) -> Vec<Case> {
    let shapes = if options.shapes.is_empty() { usual() } else { options.shapes.clone() };
    let masks: &[Mask] = match options.mask {
        MaskChoice::Full => &[Mask::Full],
        MaskChoice::Causal => &[Mask::Causal],
        MaskChoice::Both => &[Mask::Full, Mask::Causal],
    };
    let mut cases: Vec<Case> = Vec::new();
    for shape in &shapes {
        for mask in masks {
            let case = bench::case(shape, *mask);
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
    }
    cases
}

fn chosen_peers(options: &BenchOptions, installed: Vec<PeerCommand>) -> Vec<PeerCommand> {
    let chosen = |peer: &PeerCommand| {
        options.peers.iter().any(|choice| match choice {
            PeerChoice::Torch => peer.id == "torch",
            PeerChoice::Cudnn => peer.id == "cudnn",
            PeerChoice::None => false,
        })
    };
    installed.into_iter().filter(chosen).collect()
}

fn on_cpu(options: &BenchOptions, progress: &Progress) -> Result<Benched, Failure> {
    let store = options.results.as_ref().map(Store::open).transpose()?;
    let cases = cases(options, shapes::for_cpu);
    let station = Station::new(PerformanceOptions {
        samples: options.samples,
        longest: LONGEST_ON_CPU,
        peers: chosen_peers(options, peers::installed_for_cpu()),
        ..PerformanceOptions::default()
    });
    let jobs = progress.start(cases.len());
    let (mut measured, mut records) = (Vec::new(), Vec::new());
    for case in &cases {
        let failed = |error: gatework_lab::RunError| Failure::device(format!("{}: {error}", case.name));
        let bench = bench::on_cpu(case).map_err(failed)?;
        let record = station.measure_on_host(case, bench, progress).map_err(failed)?;
        measured.extend(Measured::of_host(&record));
        records.push(record);
        jobs.done();
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let notes = vec![format!(
        "Medians of host time on {threads} cores, in f32; operations count keys that are seen."
    )];
    let origin = format!("gatework attention bench in f32 on {threads} cores");
    let record = |store: Store| store.append(&HostRecord::record("attention/bench-cpu", origin, &records));
    let recorded_in = store.map(record).transpose()?;
    let device = "the CPU".to_owned();
    let (remarks, ending) = (Vec::new(), Ending::Done);
    Ok(Benched { device, measured, remarks, recorded_in, plot: None, notes, ending })
}

fn on_device(device: &Device, options: &BenchOptions, progress: &Progress) -> Result<Benched, Failure> {
    let workloads = bench::on_device(&cases(options, shapes::for_gpu))?;
    let gates = Gates::new(device.clone()).seeds(0..1).performance(PerformanceOptions {
        samples: options.samples,
        peers: chosen_peers(options, peers::installed()),
        ..PerformanceOptions::default()
    });
    let mut recorder = Recorder::open(options.results.as_deref())?;
    let workloads: Vec<&dyn Workload> = workloads.iter().map(AsRef::as_ref).collect();
    let records = recorder.gate_each(&gates, workloads, progress);
    if let Some(error) = recorder.failure {
        return Err(error.into());
    }
    let ending = if records.iter().any(|record| record.verdict.is_failed()) {
        Ending::GateFailed
    } else if records.iter().any(|record| record.performance.is_none()) {
        Ending::DeviceFailed
    } else {
        Ending::Done
    };
    let measured: Vec<Measured> = records.iter().flat_map(Measured::of_record).collect();
    let mut notes = vec![of_device_time()];
    notes.extend(recorder.file.as_ref().map(|file| sources(&measured, file)));
    Ok(Benched {
        device: device.properties().name.clone(),
        measured,
        remarks: remarks(&records),
        recorded_in: recorder.file,
        plot: None,
        notes,
        ending,
    })
}

/// The newest record of every shape and mask.
fn from_records(path: &Path, options: &BenchOptions, shell: &Shell) -> Result<Benched, Failure> {
    let reading = read_records(path)?;
    shell.warn_of(&reading.problems);
    let of_attention =
        |record: &Record| record.workload.starts_with("attention/") && record.performance.is_some();
    let records: Vec<Record> = reading.records.into_iter().filter(of_attention).collect();
    let mut devices: Vec<&str> = records
        .iter()
        .filter_map(|record| record.device.as_ref())
        .map(|device| device.name.as_str())
        .collect();
    devices.sort_unstable();
    devices.dedup();
    let device = match devices[..] {
        [device] => device.to_owned(),
        [] => {
            return Err(Failure::input(format!(
                "{} has no record of how fast attention is: make one with 'gatework lab bench attention/*'",
                path.display()
            )));
        }
        _ => {
            return Err(Failure::input(format!(
                "{} has records of several devices ({}): name the file of one",
                path.display(),
                devices.join(", ")
            )));
        }
    };
    let wanted = |measured: &Measured| match options.mask {
        MaskChoice::Full => measured.mask() == Mask::Full,
        MaskChoice::Causal => measured.mask() == Mask::Causal,
        MaskChoice::Both => true,
    };
    let mut measured: Vec<Measured> = Vec::new();
    for newer in records.iter().flat_map(Measured::of_record).filter(wanted) {
        measured.retain(|older| !newer.replaces(older));
        measured.push(newer);
    }
    measured.sort_by_key(Measured::order);
    let shown = |record: &&Record| measured.iter().any(|one| one.record() == Some(&record.id()));
    let mut stale = Reasons::default();
    for record in records.iter().filter(shown) {
        if let Freshness::Stale { why } = freshness(record, &shell.registry) {
            stale.add(format!("stale: {why}"), &record.id());
        }
    }
    let stale: Vec<String> = stale.to_string().lines().map(str::to_owned).collect();
    let mut notes = vec![of_device_time(), sources(&measured, path)];
    notes.extend(stale.iter().cloned());
    let (recorded_in, plot, ending) = (None, None, Ending::Done);
    Ok(Benched { device, measured, remarks: stale, recorded_in, plot, notes, ending })
}

fn of_device_time() -> String {
    "Medians of device time in a replayed graph, everybody in one run; operations count keys that are seen."
        .into()
}

/// Why gates did not pass, and what slowed the device down.
fn remarks(records: &[Record]) -> Vec<String> {
    let mut reasons = Reasons::default();
    for record in records {
        let not_passed = record.gates.iter().filter(|gate| gate.outcome != Outcome::Passed);
        for gate in not_passed {
            reasons.add(format!("{} ({}) {}", gate.gate, gate.target, gate.outcome), &record.workload);
        }
        let throttled = record.performance.as_ref().and_then(|performance| performance.throttled.as_ref());
        if let Some(why) = throttled {
            reasons.add(format!("throttled: {why}"), &record.workload);
        }
    }
    reasons.to_string().lines().map(str::to_owned).collect()
}

impl Benched {
    fn draw(&mut self, plot: &Path) -> Result<(), Failure> {
        let mut notes = self.notes.clone();
        if self.measured.iter().any(Measured::has_other_keys) {
            notes.push("Shapes with other keys than rows are not drawn.".into());
        }
        if self.measured.iter().any(Measured::has_window) {
            notes.push("Windows are not drawn.".into());
        }
        let chart = as_chart(&self.measured, &self.device, notes);
        let svg = chart.svg().ok_or_else(|| {
            Failure::input(format!(
                "nothing was drawn to {}: no shape with as many keys as rows was measured",
                plot.display()
            ))
        })?;
        write_file(plot, svg.as_bytes())?;
        self.plot = Some(plot.to_owned());
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = format!("On {}:\n\n{}", self.device, as_table(&self.measured));
        for line in &self.remarks {
            let _ = writeln!(text, "{line}");
        }
        if let Some(file) = &self.recorded_in {
            let _ = writeln!(text, "recorded in {}", file.display());
        }
        if let Some(file) = &self.plot {
            let _ = writeln!(text, "drawn in {}", file.display());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::command::attention::Attention;

    fn options(arguments: &[&str]) -> BenchOptions {
        match Attention::try_parse_from([&["attention", "bench"], arguments].concat()).unwrap() {
            Attention::Bench(options) => options,
            other => panic!("{other:?}"),
        }
    }

    /// The command refuses the emulated device, because it would not time anything there; here it stands for
    /// a card that passes every gate but that one.
    #[test]
    fn a_device_goes_through_the_gates_first() {
        let options = options(&["--shapes", "1x2x64x64", "--peers", "none"]);
        let device = Device::emulated(0).unwrap();
        let benched = on_device(&device, &options, &Progress::new()).unwrap();
        assert!(benched.measured.is_empty() && benched.ending == Ending::DeviceFailed);
        let remarks = benched.remarks.join("\n");
        assert!(
            remarks.contains("attention/chosen-small: performance (emulated) not run: time means nothing"),
            "{remarks}"
        );
        assert!(!remarks.contains("correctness"), "{remarks}");
    }

    #[test]
    fn the_usual_shapes_are_those_of_the_device() {
        let options = options(&[]);
        let rows = |cases: Vec<Case>| cases.iter().map(|case| case.dimension("queries")).max();
        assert_eq!(rows(cases(&options, shapes::for_gpu)), Some(16384));
        assert_eq!(rows(cases(&options, shapes::for_cpu)), Some(2048));
        let chosen =
            |peers: Vec<PeerCommand>| chosen_peers(&options, peers).into_iter().map(|peer| peer.name);
        assert_eq!(chosen(peers::installed()).collect::<Vec<_>>(), ["PyTorch", "cuDNN"]);
        assert_eq!(chosen(peers::installed_for_cpu()).collect::<Vec<_>>(), ["PyTorch"]);
    }
}
