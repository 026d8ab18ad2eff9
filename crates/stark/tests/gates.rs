//! The engine's workloads on the emulated device: the gates pass, and every control is refused.
#![cfg(feature = "lab")]

use gatework_gpu::{Device, Kind};
use gatework_lab::mutation::{Fate, hunt, mutants};
use gatework_lab::{Gates, check_case};
use gatework_stark::workloads::workloads;

/// Schedules within which a mutant must fail.
const MUTANT_SEEDS: u64 = 20;

#[test]
fn every_case_passes_and_every_control_is_refused() {
    let device = Device::emulated(0).unwrap();
    for workload in workloads() {
        for case in workload.cases(Kind::Emulated) {
            let checked = check_case(workload.as_ref(), &device, &case, 1);
            assert!(checked.outcome.is_passed(), "{} {}: {}", workload.name(), case.name, checked.outcome);
            assert!(checked.controls.len() >= 4);
            assert!(workload.work(&case).operations > 0);
        }
    }
}

#[test]
fn the_gates_pass() {
    for workload in workloads() {
        let record = Gates::new(Device::emulated(0).unwrap()).seeds(0..1).gate(workload.as_ref(), &());
        assert!(record.verdict.is_passed(), "{}: {}", workload.name(), record.verdict);
    }
}

/// Whether a line belongs to a kernel, or to what stands before the first one.
fn inside(text: &str, entry: &str, line: usize) -> bool {
    let kernel = text.lines().take(line).filter(|line| line.starts_with("GW_KERNEL")).last();
    kernel.is_none_or(|kernel| kernel.contains(&format!("({entry}")))
}

#[test]
fn every_mutant_is_caught() {
    let (mut caught, mut survivors) = (0, Vec::new());
    for workload in workloads() {
        for spec in workload.kernels() {
            let text = spec.source.text();
            for mutant in mutants(text) {
                // A file of kernels may have some that this workload does not launch; another does.
                if !spec.entries.iter().any(|entry| inside(text, entry, mutant.line)) {
                    continue;
                }
                match hunt(workload.as_ref(), text, &mutant.text, MUTANT_SEEDS).unwrap() {
                    Fate::Caught { seeds, how } => {
                        let how: String = how.lines().next().unwrap_or_default().chars().take(120).collect();
                        println!("{} {mutant}: caught at seed {seeds}: {how}", workload.name());
                        caught += 1;
                    }
                    Fate::Survived => survivors.push(format!("{} {mutant}", workload.name())),
                }
            }
        }
    }
    println!("{caught} mutants caught");
    assert!(survivors.is_empty(), "mutants that no schedule finds out:\n{}", survivors.join("\n"));
    assert!(caught >= 9, "{caught}");
}
