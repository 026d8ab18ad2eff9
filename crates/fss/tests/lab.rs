//! The engine's workloads through the lab's gates: they pass, and every control is refused.
#![cfg(feature = "lab")]

use gatework_fss::workloads::workloads;
use gatework_gpu::{Device, Kind};
use gatework_lab::{Gates, check_case};

#[test]
fn every_case_passes_and_every_control_is_refused() {
    let device = Device::emulated(0).unwrap();
    for workload in workloads() {
        for case in workload.cases(Kind::Emulated) {
            let checked = check_case(workload.as_ref(), &device, &case, 1);
            assert!(checked.outcome.is_passed(), "{} {}: {}", workload.name(), case.name, checked.outcome);
            assert_eq!(checked.controls.len(), 4);
            let work = workload.work(&case);
            assert!(work.bytes > 0, "{} has no cost", workload.name());
        }
    }
}

#[test]
fn the_gates_pass() {
    for workload in workloads() {
        let record = Gates::new(Device::emulated(0).unwrap()).gate(workload.as_ref(), &());
        assert!(record.verdict.is_passed(), "{}", record.verdict);
    }
}
