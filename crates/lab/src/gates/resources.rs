//! What a kernel takes of the machine, from the assembler's figures and from its instructions.

use gatework_gpu::{Architecture, Binary, Error, Resources, SassReport};

use super::Outcome;
use super::listings::Listings;
use crate::record::KernelRecord;
use crate::record::{REGISTER_UNIT, REGISTERS};
use crate::workload::KernelSpec;

/// Whether the compiler of `architecture` reports registers and instructions.
pub(super) fn has_figures(architecture: &Architecture) -> bool {
    *architecture != Architecture::Emulated
}

/// Checks the binaries made for `architecture`, and writes their instruction counts into `kernels`.
pub(super) fn run(
    specs: &[KernelSpec],
    architecture: &Architecture,
    binaries: &[(usize, Binary)],
    listings: &Listings,
    kernels: &mut [KernelRecord],
) -> Outcome {
    let built = || binaries.iter().filter(|(_, binary)| binary.architecture == *architecture);
    if specs.is_empty() {
        return Outcome::not_run("the workload has no kernels");
    }
    if built().count() < specs.len() {
        return Outcome::not_run(format!("the kernels were not compiled for {architecture}"));
    }
    for (index, binary) in built() {
        if let Some(why) = figures_refusal(&specs[*index], binary) {
            return Outcome::Failed { why };
        }
    }
    for (index, binary) in built() {
        let report = match listings.of(binary) {
            Ok(report) => report,
            Err(error @ Error::NoTool { .. }) => {
                return Outcome::not_run(format!(
                    "registers, stack and spills are within limits, but the instructions were not seen: {error}"
                ));
            }
            Err(error) => return Outcome::failed(error),
        };
        write_counts(&mut kernels[*index], architecture, &report);
        if let Some(why) = instructions_refusal(&specs[*index], &report) {
            return Outcome::Failed { why };
        }
    }
    Outcome::Passed
}

fn figures_refusal(spec: &KernelSpec, binary: &Binary) -> Option<String> {
    let launched = binary.resources.iter().filter(|(name, _)| spec.entries.contains(name));
    launched.into_iter().find_map(|(name, used)| Some(format!("kernel '{name}' {}", excess(spec, used)?)))
}

fn excess(spec: &KernelSpec, used: &Resources) -> Option<String> {
    let Resources { registers, stack_bytes, spill_stores, spill_loads, .. } = *used;
    if spill_stores + spill_loads > 0 {
        return Some(format!("spills: {spill_stores} bytes stored and {spill_loads} loaded, 0 allowed"));
    }
    if stack_bytes > 0 {
        return Some(format!("has a stack frame of {stack_bytes} bytes, 0 allowed"));
    }
    if let Some(limit) = spec.max_registers.filter(|&limit| registers > limit) {
        return Some(format!("takes {registers} registers a thread, {limit} allowed"));
    }
    let held = |threads: u32| registers.next_multiple_of(REGISTER_UNIT) * threads;
    let threads = spec.threads.filter(|&threads| held(threads) > REGISTERS)?;
    Some(format!(
        "cannot be launched: {registers} registers for each of {threads} threads are more than the \
         {REGISTERS} of a multiprocessor"
    ))
}

fn instructions_refusal(spec: &KernelSpec, report: &SassReport) -> Option<String> {
    for entry in &spec.entries {
        if let Some(opcode) = spec.required.iter().find(|opcode| report.count(entry, opcode) == 0) {
            return Some(format!("kernel '{entry}' has no {opcode} instruction, and must"));
        }
        if let Some(opcode) = spec.forbidden.iter().find(|opcode| report.count(entry, opcode) > 0) {
            let count = report.count(entry, opcode);
            return Some(format!("kernel '{entry}' has {count} {opcode} instructions, and must have none"));
        }
        if let Some((_, copy)) = report.truncated.iter().find(|(kernel, _)| kernel == entry) {
            return Some(format!(
                "kernel '{entry}' copies by an address whose upper half the compiler has lost, '{copy}': index the pointer \
                 with 64 bits"
            ));
        }
    }
    None
}

fn write_counts(kernel: &mut KernelRecord, architecture: &Architecture, report: &SassReport) {
    let binaries = kernel.binaries.iter_mut().filter(|binary| binary.architecture == *architecture);
    for entry in binaries.flat_map(|binary| &mut binary.entries) {
        let counts = report.kernels.iter().find(|(name, _)| *name == entry.name);
        entry.sass = counts.map(|(_, counts)| counts.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use gatework_gpu::Source;

    use super::*;

    fn refusal(spec: &KernelSpec, used: Resources) -> Option<String> {
        let binary = Binary {
            name: "k".into(),
            architecture: Architecture::Sm("sm_90a".into()),
            key: String::new(),
            hash: String::new(),
            path: PathBuf::new(),
            log: String::new(),
            resources: vec![("k".into(), used), ("unused".into(), Resources { stack_bytes: 8, ..used })],
            cached: false,
            folder: None,
        };
        figures_refusal(spec, &binary)
    }

    fn spec() -> KernelSpec {
        KernelSpec::new(Source::new("k", ""))
    }

    #[test]
    fn spills_stack_and_registers_are_refused() {
        let plain = Resources { registers: 40, ..Resources::default() };
        assert_eq!(refusal(&spec().max_registers(40).threads(1024), plain), None);
        assert!(refusal(&spec(), Resources { spill_loads: 4, ..plain }).unwrap().contains("spills"));
        assert!(
            refusal(&spec(), Resources { stack_bytes: 16, ..plain }).unwrap().contains("stack frame of 16")
        );
        assert!(refusal(&spec().max_registers(39), plain).unwrap().contains("40 registers a thread, 39"));
        let heavy = Resources { registers: 65, ..plain };
        assert!(refusal(&spec().threads(1024), heavy).unwrap().contains("cannot be launched"));
    }

    #[test]
    fn required_and_forbidden_instructions() {
        let report = SassReport {
            kernels: vec![("k".into(), [("QGMMA".to_owned(), 8), ("LDL".to_owned(), 2)].into())],
            truncated: Vec::new(),
        };
        assert!(instructions_refusal(&spec().require("HGMMA"), &report).unwrap().contains("no HGMMA"));
        assert!(instructions_refusal(&spec().require("QGMMA"), &report).unwrap().contains("2 LDL"));
    }

    #[test]
    fn a_lost_half_of_an_address_is_refused() {
        let kernels = vec![("k".into(), [("UBLKCP".to_owned(), 1)].into())];
        let copy = |kernel: &str| (kernel.to_owned(), "UBLKCP.S.G [UR12], [UR6], UR8".to_owned());
        let report = SassReport { kernels, truncated: vec![copy("k")] };
        let why = instructions_refusal(&spec(), &report).unwrap();
        assert!(why.contains("[UR6]") && why.contains("64 bits"), "{why}");
        let elsewhere = SassReport { truncated: vec![copy("other")], ..report };
        assert_eq!(instructions_refusal(&spec(), &elsewhere), None);
    }
}
