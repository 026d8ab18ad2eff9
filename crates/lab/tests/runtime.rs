//! The runtime's own workloads pass on the emulated device.

use gatework_gpu::{Device, Kind};
use gatework_lab::{Case, Gates, Workload, runtime};

fn assert_passes(name: &str) {
    let workloads = runtime::workloads();
    let workload =
        workloads.iter().find(|workload| workload.name() == name).expect("the workload is registered");
    let record = Gates::new(Device::emulated(0).unwrap()).gate(workload.as_ref(), &());
    assert!(record.verdict.is_passed(), "{name}: {}", record.verdict);
}

#[test]
fn saxpy_matches_reference() {
    assert_passes("gpu/saxpy");
}

#[test]
fn reduce_matches_reference() {
    assert_passes("gpu/reduce");
}

#[test]
fn transpose_matches_reference() {
    assert_passes("gpu/transpose");
}

#[test]
fn fp8_tile_matches_reference() {
    assert_passes("gpu/fp8-tile");
}

#[test]
fn graph_chain_matches_reference() {
    assert_passes("gpu/graph-chain");
}

#[test]
fn pinned_copy_matches_reference() {
    assert_passes("gpu/pinned-copy");
}

#[test]
fn async_copy_matches_reference() {
    assert_passes("gpu/async-copy");
}

#[test]
fn convert_matches_reference() {
    assert_passes("gpu/convert");
}

#[test]
fn half_matches_reference() {
    assert_passes("gpu/half");
}

#[test]
fn float_matches_reference() {
    assert_passes("gpu/float");
}

#[test]
fn integer_matches_reference() {
    assert_passes("gpu/integer");
}

#[test]
fn matrix_matches_reference() {
    assert_passes("gpu/matrix");
}

#[test]
fn streams_matches_reference() {
    assert_passes("gpu/streams");
}

#[test]
fn images_matches_reference() {
    assert_passes("gpu/images");
}

#[test]
fn cluster_matches_reference() {
    assert_passes("gpu/cluster");
}

#[test]
fn fabric_matches_reference() {
    assert_passes("gpu/fabric");
}

#[test]
fn order_matches_reference() {
    assert_passes("gpu/order");
}

#[test]
fn tensor_map_matches_reference() {
    assert_passes("gpu/tensor-map");
}

#[test]
fn warp_matches_reference() {
    assert_passes("gpu/warp");
}

#[test]
fn wgmma_matches_reference() {
    assert_passes("gpu/wgmma");
}

/// On CUDA the same code runs on larger shapes: their controls must be sound before a GPU sees them.
#[test]
fn every_control_of_every_cuda_case_is_refused() {
    for workload in runtime::workloads() {
        for case in workload.cases(Kind::Cuda) {
            if case.dimensions.values().product::<u64>() > 5_000_000 {
                continue;
            }
            assert_controls_refused(workload.as_ref(), &case);
        }
    }
}

fn assert_controls_refused(workload: &dyn Workload, case: &Case) {
    let reference = workload.reference(case, 0);
    let budget = workload.budget(case);
    assert_eq!(budget.judge(&reference, &reference).refused, None, "{} {}", workload.name(), case.name);
    let controls = workload.controls(case, 0, &reference);
    assert!(!controls.is_empty(), "{} {}", workload.name(), case.name);
    for control in controls {
        let refused = budget.judge(&control.outputs, &reference).refused;
        assert!(refused.is_some(), "{} {}: '{}' was accepted", workload.name(), case.name, control.name);
    }
}
