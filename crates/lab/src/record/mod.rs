//! A record: everything one gating of one workload showed, in one JSON line.

mod occupancy;
mod performance;
mod revision;
pub(crate) mod tuning;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::SystemTime;
use std::{fs, thread};

use gatework_gpu::{Architecture, Clocks, Device, Resources, Source};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use occupancy::Occupancy;
pub(crate) use occupancy::{REGISTER_UNIT, REGISTERS};
pub use performance::{
    BenchRecord, CopyBandwidth, PeerRecord, PerformanceRecord, RateRecord, RecordedPromise, SideRecord,
};
pub use revision::Revision;
pub use tuning::TuningRecord;

use crate::budget::{Deviation, ErrorBudget};
use crate::case::Work;
use crate::outcome::{Gate, Outcome};
use crate::profile::{ProfileError, ProfileRecord};

/// The version of the format that this program writes. It reads this and older ones.
pub const RECORD_VERSION: u32 = 2;

/// Digits of a record's id.
pub(crate) const ID_DIGITS: usize = 12;

/// One workload, gated once: source hash → binary hash → resources → errors, with the device and the time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The format's version.
    pub version: u32,
    /// The workload's name.
    pub workload: String,
    /// All gates together.
    pub verdict: Outcome,
    /// When it was made, in UTC, as RFC 3339 writes it.
    pub time: String,
    /// The version of Gatework that made it.
    pub gatework: String,
    /// The revision of the code; none in records of before, and where it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// The device; none if only compilers took part.
    pub device: Option<DeviceRecord>,
    /// The gates in the order they ran, one line for each target.
    pub gates: Vec<GateRecord>,
    /// The kernels, from source to instruction counts.
    pub kernels: Vec<KernelRecord>,
    /// The cases that were compared with the reference.
    pub cases: Vec<CaseRecord>,
    /// Measurements of the performance gate, since version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub performance: Option<PerformanceRecord>,
    /// Figures of a command that times whole jobs and not workloads, since revisions are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredRecord>,
    /// The profile, since version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileRecord>,
    /// The tuner's search, since version 2. The gates are then those of the configuration that it chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TuningRecord>,
    /// Fields that a later Gatework wrote. They are kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Figures of whole jobs, as the command that took them prints them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredRecord {
    /// The command, with how often it ran and on what.
    pub origin: String,
    /// A figure by name, row by row; a name says its unit, as `median_ms`.
    pub rows: Vec<Map<String, Value>>,
}

/// The device of a record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// `cuda:0` or `emulated`.
    pub id: String,
    /// The card's name.
    pub name: String,
    /// The architecture that kernels are compiled for.
    pub architecture: Architecture,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Device memory, in bytes; 0 for a CPU, which has none of its own.
    pub memory_bytes: u64,
    /// The driver's CUDA version, or the emulated device's compiler.
    pub driver: String,
    /// Clocks and temperature when the gates began, where they can be read.
    pub clocks: Option<Clocks>,
}

impl DeviceRecord {
    /// Describes `device`, with its clocks now.
    pub fn of(device: &Device) -> Self {
        let properties = device.properties();
        Self {
            id: properties.id.clone(),
            name: properties.name.clone(),
            architecture: properties.architecture.clone(),
            multiprocessors: properties.multiprocessors,
            memory_bytes: properties.memory_bytes,
            driver: properties.driver.clone(),
            clocks: device.clocks(),
        }
    }

    /// The CPU of this machine, as what jobs without a GPU are measured on: its model, its cores, its system.
    pub fn of_host() -> Self {
        let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        let arch = std::env::consts::ARCH;
        Self {
            id: "cpu".to_owned(),
            name: model.unwrap_or_else(|| format!("CPU {arch}")),
            // Architectures go by their compiler's name, and so does this one.
            architecture: Architecture::Sm(arch.to_owned()),
            multiprocessors: thread::available_parallelism().map_or(1, NonZeroUsize::get) as u32,
            memory_bytes: 0,
            driver: std::env::consts::OS.to_owned(),
            clocks: None,
        }
    }

    /// The name of the file that holds this device's records, without its ending: `nvidia-h200`, `emulated`.
    pub fn slug(&self) -> String {
        if self.architecture == Architecture::Emulated {
            return "emulated".to_owned();
        }
        let words = self.name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
    }
}

/// The verdict of one gate for one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateRecord {
    /// Which gate.
    pub gate: Gate,
    /// The architecture or the device.
    pub target: String,
    /// The verdict.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// One kernel source and what the compilers made of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelRecord {
    /// The source's name.
    pub source: String,
    /// BLAKE3 of the text, everything it includes and its definitions.
    pub source_hash: String,
    /// One for each architecture.
    pub binaries: Vec<BinaryRecord>,
}

/// One compiled form of a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BinaryRecord {
    /// The architecture that it was compiled for.
    pub architecture: Architecture,
    /// BLAKE3 of everything that went in, compiler and options too.
    pub key: String,
    /// BLAKE3 of what came out: equal hashes are the same program.
    pub hash: String,
    /// The compiler's options; empty in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Its kernels; none are known for the emulated device.
    pub entries: Vec<EntryRecord>,
}

/// One kernel of a binary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EntryRecord {
    /// The kernel's name.
    pub name: String,
    /// Registers, shared memory, stack and spills, as the assembler reported them.
    #[serde(flatten)]
    pub resources: Resources,
    /// How much of a multiprocessor its threads fill, where the size of its blocks is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<Occupancy>,
    /// How often each SASS opcode occurs, if the binary was disassembled.
    pub sass: Option<BTreeMap<String, u32>>,
}

/// One case, over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseRecord {
    /// The case's name.
    pub name: String,
    /// Sizes by name.
    pub dimensions: BTreeMap<String, u64>,
    /// The seeds that ran.
    pub seeds: Vec<u64>,
    /// Bytes and operations that every kernel for this case needs.
    pub work: Work,
    /// The error that was allowed.
    pub budget: ErrorBudget,
    /// The worst of all seeds, by output.
    pub errors: BTreeMap<String, Deviation>,
    /// The negative controls that were refused.
    pub controls: Vec<String>,
}

impl Record {
    /// A record of figures that `origin` measured: `area/name` says what they are of.
    pub fn of_figures(name: &str, device: Option<DeviceRecord>, measured: MeasuredRecord) -> Self {
        Self {
            version: RECORD_VERSION,
            workload: name.to_owned(),
            verdict: Outcome::Passed,
            time: timestamp(),
            gatework: env!("CARGO_PKG_VERSION").to_owned(),
            revision: Revision::current(),
            device,
            gates: Vec::new(),
            kernels: Vec::new(),
            cases: Vec::new(),
            performance: None,
            measured: Some(measured),
            profile: None,
            tuning: None,
            other: Map::new(),
        }
    }

    /// With the kernels that its figures are of: it is stale once one of them changes.
    pub fn of_kernels(mut self, sources: &[Source]) -> gatework_gpu::Result<Self> {
        for source in sources {
            let (source, source_hash) = (source.name().to_owned(), source.hash()?);
            if self.kernels.iter().all(|kernel| kernel.source_hash != source_hash) {
                self.kernels.push(KernelRecord { source, source_hash, binaries: Vec::new() });
            }
        }
        Ok(self)
    }

    /// Twelve digits that name this record in documents: they follow from the workload, the time, the device
    /// and the sources.
    pub fn id(&self) -> String {
        let device = self.device.as_ref().map_or("no device", |device| &device.name);
        let sources = self.kernels.iter().map(|kernel| kernel.source_hash.as_str());
        let mut hasher = blake3::Hasher::new();
        for part in [self.workload.as_str(), &self.time, device].into_iter().chain(sources) {
            hasher.update(part.as_bytes());
            hasher.update(&[0]);
        }
        hasher.finalize().to_hex()[..ID_DIGITS].to_owned()
    }

    /// Adds what the profiler said, or why it said nothing.
    pub fn take_profile(&mut self, profiled: Result<ProfileRecord, ProfileError>) {
        let target = self.device.as_ref().map_or_else(|| "no device".to_owned(), |device| device.id.clone());
        let outcome = match &profiled {
            Ok(_) => Outcome::Passed,
            Err(ProfileError::NotRun(why)) => Outcome::not_run(why),
            Err(ProfileError::Failed(why)) => Outcome::failed(why),
        };
        if let (Outcome::Failed { why }, Outcome::Passed) = (&outcome, &self.verdict) {
            self.verdict = Outcome::failed(format!("{} ({target}): {why}", Gate::Profile));
        }
        self.gates.push(GateRecord { gate: Gate::Profile, target, outcome });
        self.profile = profiled.ok();
    }

    /// The name of the file this record belongs in, without its ending.
    pub fn slug(&self) -> String {
        self.device.as_ref().map_or_else(|| "no-device".to_owned(), DeviceRecord::slug)
    }

    /// The gates that did not run, each with its target and the reason.
    pub fn not_run(&self) -> impl Iterator<Item = (&GateRecord, &str)> {
        self.gates.iter().filter_map(|gate| match &gate.outcome {
            Outcome::NotRun { why } => Some((gate, why.as_str())),
            _ => None,
        })
    }
}

/// Now, in UTC, to the second.
pub(crate) fn timestamp() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, architecture: Architecture) -> DeviceRecord {
        DeviceRecord {
            id: "cuda:0".into(),
            name: name.into(),
            architecture,
            multiprocessors: 132,
            memory_bytes: 1 << 37,
            driver: "13.0".into(),
            clocks: None,
        }
    }

    #[test]
    fn slugs_are_file_names() {
        let slug = |name| device(name, Architecture::Sm("sm_90a".into())).slug();
        assert_eq!(slug("NVIDIA H200"), "nvidia-h200");
        assert_eq!(slug("NVIDIA GeForce RTX 4090 (../x)"), "nvidia-geforce-rtx-4090-x");
        assert_eq!(device("a 4-core host", Architecture::Emulated).slug(), "emulated");
    }
}
