//! The engine's workloads on the emulated device: the gates pass, and every control is refused.
#![cfg(feature = "lab")]

use gatework_gpu::{Device, Kind};
use gatework_lab::{Gates, check_case};
use gatework_stark::workloads::workloads;

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
        let record = Gates::new(Device::emulated(0).unwrap()).seeds(0..1).gate(workload.as_ref(), &|_| ());
        assert!(record.verdict.is_passed(), "{}: {}", workload.name(), record.verdict);
    }
}
