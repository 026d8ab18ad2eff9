//! Whole proofs, byte for byte against `SimdBackend`.

mod support;

use gatework_stark::airs::{
    self, Air, HostColumn, Input, Lookup, Plonk, Poseidon2, Proved, SimdColumn, StateMachine, WideFibonacci,
};
use gatework_stark::{Context, CudaBackend};
use stwo::core::channel::Channel;
use stwo::core::fields::qm31::SecureField;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::prover::ComponentProver;
use stwo::prover::backend::simd::SimdBackend;
use stwo_constraint_framework::preprocessed_columns::PreProcessedColumnId;
use stwo_constraint_framework::{EvalAtRow, FrameworkComponent, FrameworkEval};

use support::{Random, context};

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
    // stwo's verifier takes a tree without columns to be as high as the others are lifted to, which its
    // prover does not.
    if config.lifting_log_size.is_none() || !air.preprocessed().is_empty() {
        airs::verify(air, config, expected.clone()).unwrap();
    }
    let found = on_device(context(), air, config).unwrap();
    assert!(json(&found) == json(&expected), "the proofs differ with {config:?}");
}

/// With folds by two, down to last layers of one value and of many, some larger than what one launch folds.
#[test]
fn last_layers_of_any_size_match_simd() {
    let with = |log_last_degree, log_blowup| PcsConfig {
        pow_bits: 2,
        fri_config: FriConfig::new(log_last_degree, log_blowup, 10, 1),
        lifting_log_size: None,
    };
    for (log_rows, config) in [
        (4, with(3, 1)),
        (5, with(2, 1)),
        (6, with(0, 2)),
        (6, with(3, 2)),
        (9, with(1, 1)),
        (11, with(0, 1)),
        (11, with(9, 1)),
        (11, with(10, 1)),
    ] {
        matches_simd_with(&WideFibonacci { log_rows, columns: 3 }, config);
    }
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
    for log_rows in 4..=8 {
        matches_simd(&Poseidon2 { log_rows });
    }
}

#[test]
fn lifted_trees_match_simd() {
    for (fri_config, more) in [(FriConfig::new(0, 1, 3, 1), 1), (FriConfig::new(1, 2, 5, 3), 2)] {
        let lifted = |log_rows: u32| PcsConfig {
            pow_bits: 3,
            fri_config,
            lifting_log_size: Some(log_rows + fri_config.log_blowup_factor + more),
        };
        matches_simd_with(&WideFibonacci { log_rows: 6, columns: 20 }, lifted(6));
        matches_simd_with(&Lookup { log_rows: 5, salt: 4 }, lifted(5));
        matches_simd_with(&Plonk { log_rows: 4 }, lifted(4));
        matches_simd_with(&StateMachine { log_rows: 6 }, lifted(6));
    }
}

/// Components of two sizes, each with a preprocessed column of its size, beside columns of other sizes that
/// none asks for.
struct Scaled;

struct ScaledEval {
    log_rows: u32,
}

const LOG_SCALED: [u32; 2] = [6, 4];

impl FrameworkEval for ScaledEval {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let factor =
            eval.get_preprocessed_column(PreProcessedColumnId { id: format!("2^{}", self.log_rows) });
        let (from, to) = (eval.next_trace_mask(), eval.next_trace_mask());
        eval.add_constraint(to - from * factor);
        eval
    }
}

impl Air for Scaled {
    type Eval = ScaledEval;

    fn preprocessed(&self) -> Vec<(String, HostColumn)> {
        let column =
            |log_rows: u32| (format!("2^{log_rows}"), Random::new(log_rows.into()).bases(1 << log_rows));
        [5, 6, 8, 4].map(column).to_vec()
    }

    fn traces(&self) -> Vec<Vec<HostColumn>> {
        let trace = |log_rows: u32| {
            let from = Random::new(u64::from(log_rows) + 100).bases(1 << log_rows);
            let factors = Random::new(log_rows.into()).bases(1 << log_rows);
            let to = from.iter().zip(factors).map(|(&from, factor)| from * factor).collect();
            vec![from, to]
        };
        LOG_SCALED.map(trace).to_vec()
    }

    fn public(&self) -> Vec<u32> {
        LOG_SCALED.to_vec()
    }

    fn evals(&self, _: &mut impl Channel) -> Vec<ScaledEval> {
        LOG_SCALED.map(|log_rows| ScaledEval { log_rows }).into()
    }

    fn interacts(&self) -> bool {
        false
    }

    fn simd_interaction(
        &self,
        _: &ScaledEval,
        _: &[HostColumn],
        _: &[HostColumn],
    ) -> (Vec<SimdColumn>, SecureField) {
        (Vec::new(), SecureField::default())
    }

    fn sums_hold(&self, _: &[ScaledEval], sums: &[SecureField]) -> bool {
        sums.iter().all(|&sum| sum == SecureField::default())
    }
}

#[test]
fn preprocessed_columns_of_other_sizes_match_simd() {
    matches_simd(&Scaled);
}
