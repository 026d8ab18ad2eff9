//! The planner against what is really held.

use gatework_gpu::Device;
use gatework_stark::airs::{self, Air, Input, Lookup, Plonk, ProvesWith, WideFibonacci};
use gatework_stark::{Context, CudaBackend, Error};
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::core::vcs_lifted::poseidon252_merkle::Poseidon252MerkleChannel;
use stwo::prover::ComponentProver;
use stwo_constraint_framework::FrameworkComponent;

fn config(fri_config: FriConfig) -> PcsConfig {
    PcsConfig { pow_bits: 1, fri_config, lifting_log_size: None }
}

/// The peak of a proof on a device of its own, and the predicted one.
fn peaks<A: Air>(air: &A, config: PcsConfig) -> (u64, u64)
where
    FrameworkComponent<A::Eval>: ComponentProver<CudaBackend>,
{
    let device = Device::emulated(2).unwrap();
    let context = Context::new(&device).unwrap();
    context.scope(|| airs::prove(air, config, Input::<CudaBackend>::new(air, config))).unwrap().unwrap();
    (device.budget().peak(), airs::plan(air, config).peak_bytes())
}

#[test]
fn the_predicted_peak_is_the_real_one_within_a_twentieth() {
    let few_folds = config(FriConfig::new(0, 1, 3, 1));
    let many_folds = config(FriConfig::new(1, 2, 5, 3));
    let cases = [
        peaks(&WideFibonacci { log_rows: 10, columns: 20 }, few_folds),
        peaks(&WideFibonacci { log_rows: 11, columns: 5 }, few_folds),
        peaks(&WideFibonacci { log_rows: 9, columns: 40 }, many_folds),
        peaks(&Lookup { log_rows: 11, salt: 1 }, few_folds),
        peaks(&Plonk { log_rows: 10 }, many_folds),
        peaks(
            &WideFibonacci { log_rows: 9, columns: 10 },
            PcsConfig { lifting_log_size: Some(12), ..few_folds },
        ),
    ];
    for (case, (peak, predicted)) in cases.into_iter().enumerate() {
        let ratio = predicted as f64 / peak as f64;
        assert!((0.95..1.05).contains(&ratio), "case {case}: {predicted} predicted, {peak} held, {ratio:.3}");
    }
}

#[test]
fn so_is_that_of_poseidon252() {
    let (air, config) = (WideFibonacci { log_rows: 9, columns: 20 }, config(FriConfig::new(0, 1, 3, 1)));
    let device = Device::emulated(2).unwrap();
    let context = Context::new(&device).unwrap();
    let prove = || {
        let input = Input::<CudaBackend>::new(&air, config);
        airs::prove_with::<Poseidon252MerkleChannel, _, _>(&air, config, input)
    };
    context.scope(prove).unwrap().unwrap();
    let plan = <CudaBackend as ProvesWith<Poseidon252MerkleChannel>>::plan(airs::plan(&air, config));
    let ratio = plan.peak_bytes() as f64 / device.budget().peak() as f64;
    assert!((0.95..1.05).contains(&ratio), "{ratio:.3}");
}

#[test]
fn a_proof_that_does_not_fit_is_refused_before_it_is_begun() {
    let air = WideFibonacci { log_rows: 9, columns: 4 };
    let config = config(FriConfig::new(0, 1, 3, 1));
    let device = Device::emulated(2).unwrap();
    // Room for the trace and its tree, and not for FRI.
    device.budget().set_limit(airs::plan(&air, config).peak_bytes() * 2 / 3);
    let context = Context::new(&device).unwrap();
    let proved = context.scope(|| airs::prove(&air, config, Input::<CudaBackend>::new(&air, config)));
    let error = proved.and_then(|proved| proved).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("bytes of device memory at its peak"), "{error}");
}
