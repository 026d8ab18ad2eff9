//! Whole proofs, byte for byte against `SimdBackend`.

mod support;

use gatework_stark::airs::{self, Air, Input, Lookup, Plonk, Poseidon2, Proved, StateMachine, WideFibonacci};
use gatework_stark::{Context, CudaBackend};
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::prover::ComponentProver;
use stwo::prover::backend::simd::SimdBackend;
use stwo_constraint_framework::FrameworkComponent;

use support::context;

/// 3 queries; a blowup of 4 with folds by 8 and packed leaves; 70 queries.
fn configurations() -> [PcsConfig; 3] {
    let with = |pow_bits, fri_config| PcsConfig { pow_bits, fri_config, lifting_log_size: None };
    [
        with(5, FriConfig::new(0, 1, 3, 1)),
        with(4, FriConfig::new(1, 2, 20, 3)),
        with(3, FriConfig::new(0, 1, 70, 1)),
    ]
}

fn on_device<A: Air>(context: &Context, air: &A, config: PcsConfig) -> gatework_stark::Result<Proved>
where
    FrameworkComponent<A::Eval>: ComponentProver<CudaBackend>,
{
    context.scope(|| airs::prove(air, config, Input::<CudaBackend>::new(air, config)))?
}

fn json(proved: &Proved) -> String {
    serde_json::to_string(proved).unwrap()
}

fn matches_simd<A: Air>(air: &A)
where
    FrameworkComponent<A::Eval>: ComponentProver<CudaBackend> + ComponentProver<SimdBackend>,
{
    configurations().into_iter().for_each(|config| matches_simd_with(air, config));
}

fn matches_simd_with<A: Air>(air: &A, config: PcsConfig)
where
    FrameworkComponent<A::Eval>: ComponentProver<CudaBackend> + ComponentProver<SimdBackend>,
{
    let expected = airs::prove(air, config, Input::<SimdBackend>::new(air, config)).unwrap();
    airs::verify(air, config, expected.clone()).unwrap();
    let found = on_device(context(), air, config).unwrap();
    assert!(json(&found) == json(&expected), "the proofs differ with {config:?}");
}

#[test]
fn wide_fibonacci_matches_simd() {
    // The last is large enough for layers of FRI that are folded by launches of their own.
    for (log_rows, columns) in [(4, 100), (5, 7), (6, 9), (7, 5), (8, 20), (10, 4)] {
        matches_simd(&WideFibonacci { log_rows, columns });
    }
}

#[test]
fn lookups_in_preprocessed_columns_match_simd() {
    for log_rows in 4..=8 {
        matches_simd(&Lookup { log_rows, salt: log_rows });
    }
}

#[test]
fn a_state_machine_matches_simd() {
    // Its second component has half the rows, and SimdBackend needs 16.
    for log_rows in 5..=8 {
        matches_simd(&StateMachine { log_rows });
    }
}

#[test]
fn plonk_matches_simd() {
    for log_rows in 4..=8 {
        matches_simd(&Plonk { log_rows });
    }
}

#[test]
fn poseidon2_matches_simd() {
    matches_simd(&Poseidon2 { log_rows: 4 });
    // Larger ones take long on the emulated device: each with one configuration in turn.
    for (log_rows, config) in (5..=8).zip(configurations().into_iter().cycle()) {
        matches_simd_with(&Poseidon2 { log_rows }, config);
    }
}
