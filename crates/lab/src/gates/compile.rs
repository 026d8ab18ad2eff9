//! Every kernel compiles, for every architecture whose compiler is here.

use gatework_gpu::{Architecture, Binary, Error, Resources, compile, compile_options};

use super::{Gate, Outcome};
use crate::record::{BinaryRecord, EntryRecord, GateRecord, KernelRecord, Occupancy};
use crate::workload::KernelSpec;

/// What the compilers made of a workload's kernels.
#[derive(Default)]
pub(super) struct Compilation {
    pub(super) gates: Vec<GateRecord>,
    /// One for each kernel spec, in their order.
    pub(super) kernels: Vec<KernelRecord>,
    /// Each binary with the index of its spec.
    pub(super) binaries: Vec<(usize, Binary)>,
}

pub(super) fn run(specs: &[KernelSpec], architectures: &[Architecture]) -> Compilation {
    let mut compilation = Compilation::default();
    let hashed = specs.iter().map(unbuilt).collect::<Result<Vec<_>, _>>();
    match hashed {
        Ok(kernels) => compilation.kernels = kernels,
        Err(error) => {
            compilation.gates =
                architectures.iter().map(|target| said(target, Outcome::failed(&error))).collect();
            return compilation;
        }
    }
    for architecture in architectures {
        let outcome = compilation.build_all(specs, architecture);
        compilation.gates.push(said(architecture, outcome));
    }
    compilation
}

impl Compilation {
    /// Nothing was compiled, for a reason that holds for every architecture.
    pub(super) fn refused(architectures: &[Architecture], outcome: &Outcome) -> Self {
        let gates = architectures.iter().map(|target| said(target, outcome.clone())).collect();
        Self { gates, ..Self::default() }
    }

    fn build_all(&mut self, specs: &[KernelSpec], architecture: &Architecture) -> Outcome {
        if specs.is_empty() {
            return Outcome::not_run("the workload has no kernels");
        }
        for (index, spec) in specs.iter().enumerate() {
            match compile(&spec.source, architecture).and_then(|binary| with_entries(spec, binary)) {
                Ok(binary) => {
                    self.kernels[index].binaries.push(record(spec, &binary));
                    self.binaries.push((index, binary));
                }
                Err(error @ (Error::NoNvrtc { .. } | Error::NoCompiler { .. })) => {
                    return Outcome::not_run(error);
                }
                Err(error) => return Outcome::failed(error),
            }
        }
        Outcome::Passed
    }
}

fn unbuilt(spec: &KernelSpec) -> gatework_gpu::Result<KernelRecord> {
    Ok(KernelRecord {
        source: spec.source.name().to_owned(),
        source_hash: spec.source.hash()?,
        binaries: Vec::new(),
    })
}

/// Refuses a cubin that lacks an entry. What is in the emulated device's library shows when it is loaded.
fn with_entries(spec: &KernelSpec, binary: Binary) -> gatework_gpu::Result<Binary> {
    let has = |entry: &String| binary.resources.iter().any(|(name, _)| name == entry);
    match spec.entries.iter().find(|entry| !has(entry)) {
        Some(entry) if binary.architecture != Architecture::Emulated => {
            Err(Error::NoEntry { kernel: spec.source.name().to_owned(), entry: entry.clone() })
        }
        _ => Ok(binary),
    }
}

fn record(spec: &KernelSpec, binary: &Binary) -> BinaryRecord {
    let entry = |(name, resources): &(String, Resources)| EntryRecord {
        name: name.clone(),
        resources: *resources,
        occupancy: spec.threads.and_then(|threads| Occupancy::of(resources, threads)),
        sass: None,
    };
    BinaryRecord {
        architecture: binary.architecture.clone(),
        key: binary.key.clone(),
        hash: binary.hash.clone(),
        // The compiler was there a moment ago.
        options: compile_options(&spec.source, &binary.architecture).unwrap_or_default(),
        entries: binary.resources.iter().map(entry).collect(),
    }
}

fn said(architecture: &Architecture, outcome: Outcome) -> GateRecord {
    GateRecord { gate: Gate::Compile, target: architecture.to_string(), outcome }
}
