//! Proofs on a target, which the engine itself finds the backend for.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use gatework_gpu::{Device, Notice, Target};
use gatework_stark::airs::{self, Input, WideFibonacci};
use gatework_stark::{Error, Prover, Provers};
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use stwo::core::pcs::PcsConfig;
use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleChannel;
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

/// One is streamed and the other not; that they are called by threads of a pool changes nothing.
#[test]
fn threads_that_share_a_prover_do_not_disturb_each_other() {
    let config = PcsConfig::default();
    let [large, small] = [(9, 200), (4, 4)].map(|(log_rows, columns)| WideFibonacci { log_rows, columns });
    let device = Device::emulated(3).unwrap();
    device.budget().set_limit(airs::plan(&large, config).peak_bytes() - 1);
    let prover = Prover::builder().build(&device.into()).unwrap();
    let prove = |air: &WideFibonacci| serde_json::to_string(&prover.prove(air, config).unwrap()).unwrap();
    let expected = [large, small].map(|air| prove(&air));
    let beside = |index: usize| assert!(prove(&[large, small][index % 2]) == expected[index % 2]);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|index| scope.spawn(move || beside(index))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    pool.install(|| (0..4).into_par_iter().for_each(beside));
}

/// Statements of several sizes.
fn statements() -> Vec<WideFibonacci> {
    [5, 7, 4, 6, 7, 5, 4].map(|log_rows| WideFibonacci { log_rows, columns: 6 }).to_vec()
}

#[test]
fn many_at_once_are_those_of_one_at_a_time_on_one_device_and_on_two() {
    let config = PcsConfig::default();
    let device = Device::emulated(3).unwrap();
    let alone = Prover::builder().build(&device.clone().into()).unwrap();
    let alone = statements().iter().map(|air| alone.prove(air, config).unwrap()).collect::<Vec<_>>();
    let alone = alone.iter().map(|proved| serde_json::to_string(proved).unwrap()).collect::<Vec<_>>();
    for devices in [vec![device], Device::open_all("emulated:2").unwrap()] {
        for at_once in [1, 3].map(|count| NonZeroUsize::new(count).unwrap()) {
            let provers = Provers::new(&devices, at_once).unwrap();
            let proved = provers.prove_all::<Blake2sMerkleChannel, _>(&statements(), config);
            let proved = proved.iter().map(|proved| serde_json::to_string(proved.as_ref().unwrap()).unwrap());
            assert!(proved.eq(alone.iter().cloned()), "{} devices, {at_once} at once", devices.len());
        }
    }
}

#[test]
fn many_at_once_share_the_memory_and_refuse_what_never_fits() {
    let config = PcsConfig::default();
    let plans = statements().iter().map(|air| airs::plan(air, config).peak_bytes()).collect::<Vec<_>>();
    // The largest fit two at a time, with the tables beside them.
    let largest = *plans.iter().max().unwrap();
    let device = Device::emulated(3).unwrap();
    let limit = 2 * (largest + (64 << 10));
    device.budget().set_limit(limit);
    let provers = Provers::new(std::slice::from_ref(&device), NonZeroUsize::new(4).unwrap()).unwrap();
    let proved = provers.prove_all::<Blake2sMerkleChannel, _>(&statements(), config);
    assert!(proved.iter().all(Result::is_ok), "{:?}", proved.iter().find(|proved| proved.is_err()));
    assert!(device.budget().peak() <= limit);
    drop(provers);

    device.budget().set_limit(largest + (64 << 10) - 1);
    let provers = Provers::new(&[device], NonZeroUsize::new(4).unwrap()).unwrap();
    let proved = provers.prove_all::<Blake2sMerkleChannel, _>(&statements(), config);
    for (proved, plan) in proved.iter().zip(plans) {
        let refused = matches!(proved, Err(Error::TooLarge { .. }));
        assert_eq!(refused, plan == largest, "{proved:?}");
        assert!(refused || proved.is_ok(), "{proved:?}");
    }
}
