//! Proofs on a target, which the engine itself finds the backend for.

use std::sync::{Arc, Mutex};

use gatework_gpu::{Device, Notice, Target};
use gatework_stark::airs::{self, Input, WideFibonacci};
use gatework_stark::{Error, Prover};
use stwo::core::pcs::PcsConfig;
use stwo::prover::backend::simd::SimdBackend;

const AIR: WideFibonacci = WideFibonacci { log_rows: 5, columns: 6 };

/// A proof on `target` as JSON, and the stages that were told of.
fn prove(target: &Target) -> (String, Vec<String>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let observer = move |notice: Notice<'_>| {
        if let Notice::Started { stage } = notice {
            list.lock().unwrap().push(stage.to_owned());
        }
    };
    let prover = Prover::builder().observer(Arc::new(observer)).build(target).unwrap();
    let proved = prover.prove(&AIR, PcsConfig::default()).unwrap();
    let stages = told.lock().unwrap().clone();
    (serde_json::to_string(&proved).unwrap(), stages)
}

#[test]
fn every_target_gives_the_bytes_of_simd_and_tells_of_its_stages() {
    let config = PcsConfig::default();
    let simd = airs::prove(&AIR, config, Input::<SimdBackend>::new(&AIR, config)).unwrap();
    let simd = serde_json::to_string(&simd).unwrap();
    let (on_cpu, stages) = prove(&Target::Cpu);
    assert!(on_cpu == simd);
    assert_eq!(stages, ["trace", "proof"]);
    let (on_device, stages) = prove(&Device::emulated(3).unwrap().into());
    assert!(on_device == simd);
    assert!(stages[0] == "trace" && stages.iter().any(|stage| stage == "FRI"), "{stages:?}");
}

#[test]
fn what_does_not_fit_on_the_device_is_refused_before_the_trace_is_made() {
    let device = Device::emulated(3).unwrap();
    device.budget().set_limit(1 << 10);
    let untouched = |notice: Notice<'_>| panic!("{notice:?}");
    let prover = Prover::builder().observer(Arc::new(untouched)).build(&device.into()).unwrap();
    let error = prover.prove(&AIR, PcsConfig::default()).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[test]
fn the_hosts_memory_is_counted_where_the_target_uses_it() {
    let plan = airs::plan(&AIR, PcsConfig::default());
    let emulated = Device::emulated(3).unwrap().into();
    assert_eq!(plan.host_bytes(&Target::Cpu), plan.host_peak_bytes());
    assert_eq!(plan.host_bytes(&emulated), plan.column_bytes() + plan.peak_bytes());
}
