//! The engine's workloads on the emulated device: the gates pass, and every mutant of the kernels is found out.
#![cfg(feature = "lab")]

use gatework_attention::workloads::workloads;
use gatework_gpu::{Device, Kind};
use gatework_lab::mutation::{Fate, hunt, mutants};
use gatework_lab::{Gates, check_case};

/// Schedules within which a mutant must fail.
const MUTANT_SEEDS: u64 = 20;

#[test]
fn every_case_passes_and_every_control_is_refused() {
    let device = Device::emulated(0).unwrap();
    for workload in workloads() {
        for case in workload.cases(Kind::Emulated) {
            let checked = check_case(workload.as_ref(), &device, &case, 1);
            assert!(checked.outcome.is_passed(), "{} {}: {}", workload.name(), case.name, checked.outcome);
            println!("{} {}: {:?}", workload.name(), case.name, checked.deviations);
            assert!(checked.controls.len() >= 5);
        }
    }
}

#[test]
fn the_gates_pass() {
    let workloads = workloads();
    let record = Gates::new(Device::emulated(0).unwrap()).seeds(0..1).gate(workloads[0].as_ref(), &());
    assert!(record.verdict.is_passed(), "{}", record.verdict);
}

#[test]
fn every_mutant_is_caught() {
    let workloads = workloads();
    let workload = workloads.iter().find(|workload| workload.name() == "attention/mission-1").unwrap();
    // Two consumers that take turns, in blocks that have several items.
    let tunable = workload.tunable().unwrap();
    let busy =
        tunable.default_configuration().with("CONSUMERS", 2).with("STAGES", 2).with("ISSUE", "in turn");
    let workload = tunable.configured(&busy);
    let mut texts: Vec<String> =
        workload.kernels().iter().map(|spec| spec.source.text().to_owned()).collect();
    texts.sort();
    texts.dedup();
    let (mut caught, mut survivors) = (0, Vec::new());
    for text in texts {
        for mutant in mutants(&text) {
            // Without turns the result is the same; only its time is not.
            if mutant.call.contains("barrier_sync(1 + group") && mutant.change == "dropped" {
                continue;
            }
            match hunt(workload.as_ref(), &text, &mutant.text, MUTANT_SEEDS).unwrap() {
                Fate::Caught { seeds, how } => {
                    let how: String = how.lines().next().unwrap_or_default().chars().take(120).collect();
                    println!("{mutant}: caught at seed {seeds}: {how}");
                    caught += 1;
                }
                Fate::Survived => survivors.push(mutant.to_string()),
            }
        }
    }
    println!("{caught} mutants caught");
    assert!(survivors.is_empty(), "mutants that no schedule finds out:\n{}", survivors.join("\n"));
    assert!(caught >= 30, "{caught}");
}
