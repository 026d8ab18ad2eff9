//! What the lab gates.

use gatework_gpu::{Device, Kind, Source};

use crate::bench::Bench;
use crate::budget::ErrorBudget;
use crate::case::{Case, RunError, Work};
use crate::control::Control;
use crate::space::{Configuration, Space};
use crate::tensor::Outputs;

/// A job with a known right answer: kernels, the host code that launches them, and the plain code they must
/// equal.
///
/// `run` and `reference` make their inputs from the same seed. `run` is the code that ships, on outputs from
/// [`poisoned`](crate::poisoned); `reference` is the plainest Rust that is right.
pub trait Workload: Send + Sync {
    /// `area/name`, as `gpu/saxpy`.
    fn name(&self) -> &str;

    /// What it computes, in one line.
    fn summary(&self) -> &str;

    /// The kernels it launches. Empty if it only copies.
    fn kernels(&self) -> Vec<KernelSpec>;

    /// The shapes it is checked on: small ones for the emulated device, more and larger ones for CUDA.
    fn cases(&self, kind: Kind) -> Vec<Case>;

    /// Runs the real host code and returns what the device computed.
    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError>;

    /// What the device should have computed.
    fn reference(&self, case: &Case, seed: u64) -> Outputs;

    /// How far the outputs may be from the reference.
    fn budget(&self, case: &Case) -> ErrorBudget;

    /// Wrong outputs that the correctness gate must refuse. A workload without one is refused itself.
    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control>;

    /// The least that must be done, whatever the kernel.
    fn work(&self, case: &Case) -> Work;

    /// The shapes it is timed on. None: it has no performance gate.
    fn bench_cases(&self, _kind: Kind) -> Vec<Case> {
        Vec::new()
    }

    /// Puts random inputs on the device, waits until they are there, and returns what to time.
    fn bench(&self, _device: &Device, _case: &Case) -> Result<Option<Bench>, RunError> {
        Ok(None)
    }

    /// The ways it can be done, if there is more than one.
    fn tunable(&self) -> Option<&dyn Tunable> {
        None
    }
}

/// A workload that has more than one way to do its job.
pub trait Tunable {
    /// The ways.
    fn space(&self) -> Space;

    /// The one that is used where nothing was tuned.
    fn default_configuration(&self) -> Configuration;

    /// The workload, done in one way.
    fn configured(&self, configuration: &Configuration) -> Box<dyn Workload>;

    /// The shapes that the search times.
    fn training_cases(&self, kind: Kind) -> Vec<Case>;

    /// The shapes that only the winner sees.
    fn held_out_cases(&self, kind: Kind) -> Vec<Case>;
}

/// A kernel source and what its compiled form must look like.
#[derive(Debug, Clone)]
pub struct KernelSpec {
    /// The source.
    pub source: Source,
    /// The kernels in it that the workload launches.
    pub entries: Vec<String>,
    /// SASS opcodes that every entry must contain, as `QGMMA`.
    pub required: Vec<String>,
    /// SASS opcodes that no entry may contain.
    pub forbidden: Vec<String>,
    /// Files that it includes whose mutants are hunted as its own are.
    pub headers: Vec<String>,
    /// Most registers a thread.
    pub max_registers: Option<u32>,
    /// Threads of the largest block it is launched with: its registers must fit into a multiprocessor.
    pub threads: Option<u32>,
}

/// Local memory: loads and stores there are spills or arrays that did not fit into registers.
const LOCAL_MEMORY_OPCODES: [&str; 2] = ["LDL", "STL"];

impl KernelSpec {
    /// The kernel that has the source's name, without spills and local memory.
    pub fn new(source: Source) -> Self {
        Self {
            entries: vec![source.name().to_owned()],
            source,
            required: Vec::new(),
            forbidden: LOCAL_MEMORY_OPCODES.map(str::to_owned).to_vec(),
            headers: Vec::new(),
            max_registers: None,
            threads: None,
        }
    }

    /// The kernels `entries` instead of the one that has the source's name.
    pub fn entries<const N: usize>(self, entries: [&str; N]) -> Self {
        Self { entries: entries.map(str::to_owned).to_vec(), ..self }
    }

    /// With an opcode that every entry must contain.
    pub fn require(mut self, opcode: &str) -> Self {
        self.required.push(opcode.to_owned());
        self
    }

    /// With an opcode that no entry may contain.
    pub fn forbid(mut self, opcode: &str) -> Self {
        self.forbidden.push(opcode.to_owned());
        self
    }

    /// With an included file that a hunt for mutants goes through, too.
    pub fn header(mut self, path: &str) -> Self {
        self.headers.push(path.to_owned());
        self
    }

    /// With a limit on registers a thread.
    pub fn max_registers(self, registers: u32) -> Self {
        Self { max_registers: Some(registers), ..self }
    }

    /// Launched with blocks of up to `threads` threads.
    pub fn threads(self, threads: u32) -> Self {
        Self { threads: Some(threads), ..self }
    }
}
