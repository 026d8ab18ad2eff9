//! `gatework stark bench`: proofs on a device and by `SimdBackend`, in one run.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use gatework_gpu::{Device, Source};
use gatework_lab::{DeviceRecord, MeasuredRecord, Record, Store};
use gatework_stark::airs::{self, Air, Input, ProvesWith};
use gatework_stark::floor::{Hash, Machine, Shape};
use gatework_stark::workloads::workloads;
use gatework_stark::{Context, CudaBackend, Rates, Stage, Tier, row_operations, upload_and_interpolate};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stwo::core::channel::{Blake2sChannel, MerkleChannel};
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::PcsConfig;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::poly::circle::PolyOps as _;
use stwo_constraint_framework::{FrameworkEval, INTERACTION_TRACE_IDX, InfoEvaluator};

use super::memory;
use super::place::Place;
use super::statement::{Statement, StatementOptions, Visitor};
use super::throughput::{self, Columns, Throughput, json};
use crate::command::device_memory::MemoryOptions;
use crate::command::ending::{Ending, Failure};
use crate::command::output::table;
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework stark bench --log-rows 14,16,18,20 --device cuda
  gatework stark bench --log-rows 20 --security 96 --repeats 500 --json
  gatework stark bench --air poseidon2 --log-rows 12 --tier interpreted
  gatework stark bench --channel poseidon252 --log-rows 18,20 --device cuda
  gatework stark bench --log-rows 14 --at-once 16 --repeats 100 --device cuda
  gatework stark bench --log-rows 20,22 --device cuda:0,1

The time covers everything from a trace in the backend's memory to the proof in host memory:
interpolation, extension, commitments, constraints, FRI, proof of work, openings.
The exit code is 1 if a proof differs from SimdBackend's.";

/// How constraints are evaluated on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TierChoice {
    /// Generated on CUDA, interpreted on the emulated device
    Auto,
    /// By one kernel for every AIR
    Interpreted,
    /// By kernels compiled for the AIR
    Generated,
    /// By the one kernel until those for the AIR are compiled
    Adaptive,
}

#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    #[command(flatten)]
    pub(super) statement: StatementOptions,
    /// Base-2 logarithms of the numbers of rows, separated by commas
    #[arg(
        long, value_delimiter = ',', default_value = "14", value_name = "LIST",
        value_parser = clap::value_parser!(u32).range(4..=26)
    )]
    pub(super) log_rows: Vec<u32>,
    /// Number of proofs on the device at each size; all must be equal
    #[arg(long, default_value = "10", value_name = "N")]
    pub(super) repeats: NonZeroUsize,
    /// Number of proofs by SimdBackend at each size; the fastest counts
    #[arg(long, default_value = "3", value_name = "N")]
    pub(super) simd_repeats: NonZeroUsize,
    /// The folder to append a record to [default: none is written]
    #[arg(long, value_name = "DIR")]
    pub(super) results: Option<PathBuf>,
    /// Also run N provers at once on the device, --repeats proofs each, and report proofs per second
    #[arg(long, value_name = "N")]
    pub(super) at_once: Option<NonZeroUsize>,
    /// How constraints are evaluated on the device
    #[arg(long, value_enum, default_value = "auto", value_name = "TIER")]
    pub(super) tier: TierChoice,
    #[command(flatten)]
    pub(super) memory: MemoryOptions,
}

/// The vector instructions of `SimdBackend`, which chooses them when it is compiled and not when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Vectors {
    compiled_for: &'static str,
    /// The best that the machine has, if that is better: the comparison is then unfair to `SimdBackend`.
    #[serde(skip_serializing_if = "Option::is_none")]
    unused: Option<&'static str>,
}

impl Vectors {
    fn of_this_machine() -> Self {
        let compiled_for = if cfg!(target_feature = "avx512f") {
            "AVX-512"
        } else if cfg!(target_feature = "avx2") {
            "AVX2"
        } else if cfg!(target_feature = "neon") {
            "NEON"
        } else {
            "portable vectors"
        };
        #[cfg(target_arch = "x86_64")]
        let best = if std::arch::is_x86_feature_detected!("avx512f") {
            Some("AVX-512")
        } else if std::arch::is_x86_feature_detected!("avx2") {
            Some("AVX2")
        } else {
            None
        };
        #[cfg(not(target_arch = "x86_64"))]
        let best: Option<&str> = None;
        Self { compiled_for, unused: best.filter(|&best| best != compiled_for) }
    }
}

#[derive(Serialize)]
struct Document {
    device: String,
    threads: usize,
    /// What SimdBackend was compiled for, and what this machine has beyond it.
    simd: Vectors,
    /// What the floors in the stages' tables are made of, where there is a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<MeasuredRates>,
    sizes: Vec<Size>,
}

impl schema::Document for Document {
    const SCHEMA: schema::Schema = schema::STARK_BENCH;
}

/// What the device did in a second, each alone.
#[derive(Serialize)]
struct MeasuredRates {
    copied_bytes: f64,
    butterflies: f64,
    compressions: f64,
    permutations: f64,
}

#[derive(Serialize)]
struct Size {
    #[serde(flatten)]
    statement: Statement,
    /// The proof as JSON.
    proof_bytes: usize,
    /// The fastest of SimdBackend.
    simd_ms: f64,
    verify_ms: f64,
    verified: bool,
    #[serde(flatten)]
    on_device: Option<OnDevice>,
}

#[derive(Serialize)]
struct OnDevice {
    median_ms: f64,
    p90_ms: f64,
    fastest_ms: f64,
    repeats: usize,
    /// Times faster than SimdBackend.
    ratio: f64,
    /// Whether every proof is that of SimdBackend, byte for byte.
    same_bytes: bool,
    /// Of the first device, where there are several.
    peak_bytes: u64,
    predicted_peak_bytes: u64,
    /// What one proof sends from device to device, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<Link>,
    /// The first proof, with everything that is compiled or allocated once.
    first_ms: f64,
    /// The trace to the device, by way of page-locked memory.
    upload_ms: f64,
    /// The same without, unless there are several devices or columns are streamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pageable_upload_ms: Option<f64>,
    /// The trace to the device and interpolated, columns of it while others are on their way, unless columns
    /// are streamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    interpolated_upload_ms: Option<f64>,
    /// Many at once, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    throughput: Option<Throughput>,
    /// One more proof, with the device waited for after each stage.
    stages: Vec<StageTime>,
}

/// What goes from one device to another.
#[derive(Serialize)]
struct Link {
    from: usize,
    to: usize,
    bytes: u64,
}

#[derive(Serialize)]
struct StageTime {
    stage: &'static str,
    ms: f64,
    /// The least that the hardware allows, where its clocks are known, as counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor_ms: Option<f64>,
    /// The same with the rates that were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_floor_ms: Option<f64>,
}

pub(super) fn run(options: &BenchOptions, shell: &Shell) -> Result<Ending, Failure> {
    // A folder that cannot be written is an error now, not after the measurement.
    let store = options.results.as_ref().map(Store::open).transpose()?;
    let place = Place::open(shell, options.memory)?;
    let devices = place.devices();
    if devices.len() > 1 && (options.results.is_some() || options.at_once.is_some()) {
        return Err(Failure::input("--results and --at-once are of one device: leave them out".into()));
    }
    let device = devices.first();
    // The emulated device has no rates.
    let hardware = device.filter(|device| !device.is_emulated());
    let rates = hardware
        .map(|device| Context::new(device).and_then(|context| Rates::measure(&context)))
        .transpose()?;
    let jobs = shell.progress.start(options.log_rows.len());
    let mut sizes = Vec::new();
    for &log_rows in &options.log_rows {
        let statement = Statement::new(&options.statement, log_rows)?;
        statement.check()?;
        jobs.doing(statement.text());
        sizes.push(statement.accept(Bench { statement, options, devices, rates: rates.as_ref() })?);
        jobs.done();
    }
    drop(jobs);
    let of_device = device.map(DeviceRecord::of);
    let device = match device {
        Some(device) => format!("{} ({})", place.id(), device.properties().name),
        None => "cpu".to_owned(),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let rates = rates.map(|rates| MeasuredRates {
        copied_bytes: rates.bytes,
        butterflies: rates.butterflies,
        compressions: rates.compressions,
        permutations: rates.permutations,
    });
    let document = Document { device, threads, simd: Vectors::of_this_machine(), rates, sizes };
    let measured = document.measured(options)?;
    let kept = store.map_or(Ok(()), |store| keep_record(&store, of_device, measured, shell));
    // What was measured is shown, whatever became of its record.
    shell.output.show(&document, || document.text())?;
    kept?;
    let holds = |size: &Size| size.verified && size.on_device.as_ref().is_none_or(|run| run.same_bytes);
    Ok(if document.sizes.iter().all(holds) { Ending::Done } else { Ending::GateFailed })
}

/// Appends a record of figures, which are of all kernels of the engine.
fn keep_record(
    store: &Store,
    device: Option<DeviceRecord>,
    measured: MeasuredRecord,
    shell: &Shell,
) -> Result<(), Failure> {
    let kernels: Vec<Source> =
        workloads().iter().flat_map(|workload| workload.kernels()).map(|kernel| kernel.source).collect();
    let record = Record::of_figures(RECORD_NAME, device, measured).of_kernels(&kernels)?;
    let file = store.append(&record)?;
    shell.progress.say(&format!("recorded in {} as {}", file.display(), record.id()));
    Ok(())
}

struct Bench<'a> {
    statement: Statement,
    options: &'a BenchOptions,
    /// None on the CPU.
    devices: &'a [Device],
    rates: Option<&'a Rates>,
}

impl Visitor for Bench<'_> {
    type Output = Result<Size, Failure>;

    fn visit<A: Air, MC: MerkleChannel>(self, air: &A, config: PcsConfig) -> Self::Output
    where
        SimdBackend: ProvesWith<MC>,
        CudaBackend: ProvesWith<MC>,
        MC::H: Serialize + DeserializeOwned,
    {
        let plan = <CudaBackend as ProvesWith<MC>>::plan(airs::plan(air, config));
        // The trace stays, beside what is made of it.
        memory::require_to_prove(plan.column_bytes() + plan.host_peak_bytes())?;
        let columns = (air.preprocessed(), air.traces());
        let mut simd = Vec::new();
        let mut expected = None;
        for _ in 0..self.options.simd_repeats.get() {
            let input = Input::<SimdBackend>::of(columns.0.clone(), &columns.1, config);
            let start = Instant::now();
            expected = Some(airs::prove_with::<MC, _, _>(air, config, input)?);
            simd.push(start.elapsed());
        }
        let Some(expected) = expected else { unreachable!("there is one repeat at least") };
        let bytes = json(&expected)?;
        let start = Instant::now();
        let verified = airs::verify_with::<MC, _>(air, config, expected).is_ok();
        let verify_ms = milliseconds(start.elapsed());
        let simd_ms = milliseconds(simd.into_iter().min().unwrap_or_default());
        let on_device = match self.devices {
            [] => None,
            devices => {
                let mut run =
                    on_device::<MC, A>(self.options, devices, air, config, &columns, &bytes, simd_ms)?;
                // Floors are those of one device.
                if let [device] = devices {
                    let hash = self.statement.channel.hash();
                    run.add_floors(&floors(device, self.rates, air, hash, config, &columns));
                }
                Some(run)
            }
        };
        let statement = self.statement;
        Ok(Size { statement, proof_bytes: bytes.len(), simd_ms, verify_ms, verified, on_device })
    }
}

fn on_device<MC: MerkleChannel, A: Air>(
    options: &BenchOptions,
    devices: &[Device],
    air: &A,
    config: PcsConfig,
    columns: &Columns,
    expected: &[u8],
    simd_ms: f64,
) -> Result<OnDevice, Failure>
where
    CudaBackend: ProvesWith<MC>,
    MC::H: Serialize,
{
    let plan = <CudaBackend as ProvesWith<MC>>::plan(airs::plan(air, config));
    let device = &devices[0];
    let context = Context::over(devices)?;
    if let Some(at_once) = options.at_once {
        throughput::require_room(device, at_once, &plan)?;
    }
    let (predicted_peak_bytes, is_streamed, _pages) = if devices.len() == 1 {
        let way = plan.way(device)?;
        (way.device_bytes, way.streaming.is_some(), context.follow(&way))
    } else {
        plan.check_over(devices)?;
        (plan.shares(devices.len()).first, false, None)
    };
    match options.tier {
        TierChoice::Auto => (),
        TierChoice::Interpreted => context.set_tier(Tier::Interpreted),
        TierChoice::Generated => context.set_tier(Tier::Generated),
        TierChoice::Adaptive => context.set_tier(Tier::Adaptive),
    }
    let mut same_bytes = true;
    let mut uploads = Vec::new();
    let mut prove = |keeps_times: bool| -> Result<Duration, Failure> {
        let (proved, upload, time) = context
            .scope(|| {
                let start = Instant::now();
                let input = Input::<CudaBackend>::of(columns.0.clone(), &columns.1, config);
                context.synchronize()?;
                let upload = start.elapsed();
                if keeps_times {
                    context.keep_times();
                }
                let start = Instant::now();
                let proved = airs::prove_with::<MC, _, _>(air, config, input)?;
                Ok((proved, upload, start.elapsed()))
            })
            .and_then(|result| result)?;
        same_bytes &= json(&proved)? == expected;
        uploads.push(upload);
        Ok(time)
    };
    device.budget().reset_peak();
    let first = prove(false)?;
    let links = context.traffic().links().map(|(from, to, bytes)| Link { from, to, bytes }).collect();
    let mut times = (0..options.repeats.get()).map(|_| prove(false)).collect::<Result<Vec<_>, _>>()?;
    times.sort_unstable();
    prove(true)?;
    let kept = context.take_times();
    let peak_bytes = device.budget().peak();
    let stages = Stage::ALL.iter().filter_map(|&stage| {
        let time: Duration = kept.iter().filter(|(of, _)| *of == stage).map(|(_, time)| *time).sum();
        let (ms, floor_ms, measured_floor_ms) = (milliseconds(time), None, None);
        (!time.is_zero()).then(|| StageTime { stage: stage.name(), ms, floor_ms, measured_floor_ms })
    });
    let at = |share: f64| milliseconds(times[((times.len() - 1) as f64 * share).round() as usize]);
    let throughput = options.at_once.map(|at_once| {
        let runs = (at_once, options.repeats);
        throughput::measure::<MC, A>(device, runs, (air, config), columns, expected)
    });
    let throughput = throughput.transpose()?;
    // What is streamed is neither brought as a whole nor interpolated on the way, and the first of several
    // devices need not have the memory for all.
    let is_whole = devices.len() == 1 && !is_streamed;
    let pageable_upload_ms = is_whole.then(|| pageable_upload(device, columns)).transpose()?;
    let interpolated_upload_ms =
        (!is_streamed).then(|| interpolated_upload(&context, columns)).transpose()?;
    Ok(OnDevice {
        median_ms: at(0.5),
        p90_ms: at(0.9),
        fastest_ms: at(0.0),
        repeats: times.len(),
        ratio: simd_ms / at(0.5),
        same_bytes: same_bytes && throughput.as_ref().is_none_or(|many| many.same_bytes),
        peak_bytes,
        predicted_peak_bytes,
        links,
        first_ms: milliseconds(first),
        upload_ms: milliseconds(uploads.iter().copied().min().unwrap_or_default()),
        pageable_upload_ms,
        interpolated_upload_ms,
        throughput,
        stages: stages.collect(),
    })
}

/// Seconds that stages take at least: as counted, and with rates that were measured.
type Floors = [Vec<(Stage, f64)>; 2];

impl OnDevice {
    fn add_floors(&mut self, [counted, measured]: &Floors) {
        let ms = |floors: &[(Stage, f64)], name: &str| {
            floors.iter().find(|(stage, _)| stage.name() == name).map(|(_, seconds)| seconds * 1e3)
        };
        for stage in &mut self.stages {
            stage.floor_ms = ms(counted, stage.stage);
            stage.measured_floor_ms = ms(measured, stage.stage);
        }
    }
}

/// None where the hardware's clocks are not known.
fn floors<A: Air>(
    device: &Device,
    rates: Option<&Rates>,
    air: &A,
    hash: Hash,
    config: PcsConfig,
    columns: &Columns,
) -> Floors {
    let Some(machine) = Machine::of(device.properties()) else { return Floors::default() };
    let evals = air.evals(&mut Blake2sChannel::default());
    let interaction_columns = |eval: &A::Eval| {
        let info = InfoEvaluator::new(eval.log_size(), Vec::new(), SecureField::default());
        eval.evaluate(info).mask_offsets.get(INTERACTION_TRACE_IDX).map_or(0, Vec::len)
    };
    let shape = Shape {
        hash,
        log_rows: evals.iter().map(FrameworkEval::log_size).max().unwrap_or(1),
        columns: columns.0.len() + columns.1.iter().map(Vec::len).sum::<usize>(),
        interaction_columns: evals.iter().map(interaction_columns).sum(),
        row_operations: evals.iter().map(row_operations).sum(),
    };
    let of = |machine: &Machine| gatework_stark::floor::floors(machine, &shape, &config);
    [of(&machine), rates.map(|rates| of(&machine.measured(rates))).unwrap_or_default()]
}

/// The trace to the device from ordinary memory; the fastest of three.
fn pageable_upload(device: &Device, columns: &Columns) -> Result<f64, Failure> {
    let stream = device.stream()?;
    let mut fastest = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        let uploaded =
            columns.1.iter().flatten().map(|column| stream.upload(bytemuck::cast_slice::<_, u32>(column)));
        let uploaded = uploaded.collect::<Result<Vec<_>, _>>()?;
        stream.synchronize()?;
        fastest = fastest.min(milliseconds(start.elapsed()));
        drop(uploaded);
    }
    Ok(fastest)
}

/// The trace to the device and interpolated; the fastest of three.
fn interpolated_upload(context: &Context, columns: &Columns) -> Result<f64, Failure> {
    let columns: Vec<_> = columns.1.iter().flatten().map(Vec::as_slice).collect();
    let log_rows = columns.iter().map(|column| column.len().ilog2()).max().unwrap_or(1);
    let times = context.scope(|| {
        let half_coset = CanonicCoset::new(log_rows).circle_domain().half_coset;
        let twiddles = CudaBackend::precompute_twiddles(half_coset);
        let time = |_| {
            let start = Instant::now();
            let polynomials = upload_and_interpolate(&columns, &twiddles);
            context.synchronize()?;
            drop(polynomials);
            Ok(start.elapsed())
        };
        (0..3).map(time).collect::<gatework_stark::Result<Vec<_>>>()
    });
    let times = times.and_then(|times| times)?;
    Ok(milliseconds(times.into_iter().min().unwrap_or_default()))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What the records of this command are of.
const RECORD_NAME: &str = "stark/bench";

impl Document {
    /// Every proof as a row, and every stage of it as one.
    fn measured(&self, options: &BenchOptions) -> Result<MeasuredRecord, Failure> {
        let unwritable =
            |error: serde_json::Error| Failure::device(format!("figures that JSON cannot hold: {error}"));
        let mut rows = Vec::new();
        for size in &self.sizes {
            let Value::Object(mut proof) = serde_json::to_value(size).map_err(unwritable)? else { continue };
            let stages = proof.remove("stages");
            let of_statement = ["air", "log_rows", "columns", "security", "channel"];
            let statement: Vec<(String, Value)> = of_statement
                .iter()
                .filter_map(|&key| Some((key.to_owned(), proof.get(key)?.clone())))
                .collect();
            let grind = |stage: &&Value| stage["stage"] == Stage::Grind.name();
            let stages = stages.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            if let Some(stage) = stages.iter().find(grind) {
                proof.insert("grind_ms".to_owned(), stage["ms"].clone());
            }
            let channel = size.statement.channel;
            proof.insert("kind".to_owned(), channel.kind("proof").into());
            rows.push(proof);
            for stage in stages.iter().filter_map(Value::as_object) {
                let kind = [("kind".to_owned(), Value::from(channel.kind("stage")))];
                rows.push(kind.into_iter().chain(statement.clone()).chain(stage.clone()).collect());
            }
        }
        let origin = format!(
            "gatework stark bench, {} proofs on the device and {} by SimdBackend ({}) on {} threads",
            options.repeats, options.simd_repeats, self.simd.compiled_for, self.threads
        );
        Ok(MeasuredRecord { origin, rows })
    }

    fn text(&self) -> String {
        let mut rows =
            table(["statement", "SimdBackend ms", "device ms", "p90", "times faster", "same bytes"]);
        for size in &self.sizes {
            let [device, p90, ratio, same] = match &size.on_device {
                Some(run) => [
                    format!("{:.2}", run.median_ms),
                    format!("{:.2}", run.p90_ms),
                    format!("{:.1}", run.ratio),
                    if run.same_bytes { "yes".to_owned() } else { "NO".to_owned() },
                ],
                None => [(); 4].map(|()| "-".to_owned()),
            };
            rows.add_row([size.statement.text(), format!("{:.1}", size.simd_ms), device, p90, ratio, same]);
        }
        let mut text = format!(
            "{rows}\n\nSimdBackend ({}) on {} threads; device: {}\n",
            self.simd.compiled_for, self.threads, self.device
        );
        if let Some(unused) = self.simd.unused {
            text.push_str(&format!(
                "This program was compiled without {unused}, which this machine has: SimdBackend is slower than it could \
                 be.\nBuild with RUSTFLAGS='-C target-cpu=native' to see it at its best.\n"
            ));
        }
        if let Some(rates) = &self.rates {
            text.push_str(&format!(
                "Alone it copies {:.2} TB/s, reads and writes together, and does {:.2} T butterflies and {:.1} G compressions a second.\n",
                rates.copied_bytes / 1e12,
                rates.butterflies / 1e12,
                rates.compressions / 1e9
            ));
        }
        for size in &self.sizes {
            let Some(run) = &size.on_device else { continue };
            let mut stages = table(["stage", "ms", "floor, counted", "floor, measured"]);
            for stage in &run.stages {
                let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}"));
                let [counted, measured] = [stage.floor_ms, stage.measured_floor_ms].map(ms);
                stages.add_row([stage.stage.to_owned(), ms(Some(stage.ms)), counted, measured]);
            }
            text.push_str(&format!("\n{}\n{stages}\n", size.statement.text()));
            if !run.links.is_empty() {
                let mut links = table(["from", "to", "bytes of a proof"]);
                for Link { from, to, bytes } in &run.links {
                    links.add_row([from.to_string(), to.to_string(), bytes.to_string()]);
                }
                text.push_str(&format!("{links}\n"));
            }
            if let Some(many) = &run.throughput {
                text.push_str(&format!("{many}\n"));
            }
        }
        text
    }
}
