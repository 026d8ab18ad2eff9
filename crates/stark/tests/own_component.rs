//! The example of a component of one's own, against the same constraint in the framework on `SimdBackend`.

#[path = "../examples/own_component.rs"]
mod own_component;
mod support;

use stwo::core::channel::Blake2sChannel;
use stwo::core::fields::FieldExpOps as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleChannel;
use stwo::prover::CommitmentSchemeProver;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::poly::circle::{CircleEvaluation, PolyOps as _};
use stwo_constraint_framework::{EvalAtRow, FrameworkComponent, FrameworkEval, TraceLocationAllocator};

use own_component::{Squares, check, prove};
use support::{Random, on_device};

struct SquaresEval {
    log_rows: u32,
}

impl FrameworkEval for SquaresEval {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let (number, square) = (eval.next_trace_mask(), eval.next_trace_mask());
        eval.add_constraint(square - number.clone() * number);
        eval
    }
}

/// The proof of stwo's own backend, as JSON.
fn expected(log_rows: u32, numbers: &[BaseField], config: PcsConfig) -> String {
    let log_largest = log_rows + config.fri_config.log_blowup_factor.max(1);
    let twiddles =
        SimdBackend::precompute_twiddles(CanonicCoset::new(log_largest).circle_domain().half_coset);
    let channel = &mut Blake2sChannel::default();
    let mut scheme = CommitmentSchemeProver::<SimdBackend, Blake2sMerkleChannel>::new(config, &twiddles);
    scheme.tree_builder().commit(channel);
    let domain = CanonicCoset::new(log_rows).circle_domain();
    let squares: Vec<BaseField> = numbers.iter().map(|number| number.square()).collect();
    let mut tree = scheme.tree_builder();
    tree.extend_evals(
        [numbers, &squares]
            .map(|values| CircleEvaluation::new(domain, values.iter().copied().collect()))
            .to_vec(),
    );
    tree.commit(channel);
    let eval = SquaresEval { log_rows };
    let component =
        FrameworkComponent::new(&mut TraceLocationAllocator::default(), eval, SecureField::default());
    serde_json::to_string(&stwo::prover::prove(&[&component], channel, scheme).unwrap()).unwrap()
}

#[test]
fn a_component_of_ones_own_gives_the_same_proof() {
    for (log_rows, fri_config) in
        [(4, FriConfig::new(0, 1, 5, 1)), (7, FriConfig::new(0, 1, 5, 1)), (5, FriConfig::new(1, 2, 4, 2))]
    {
        let config = PcsConfig { pow_bits: 3, fri_config, lifting_log_size: None };
        let numbers = Random::new(log_rows.into()).bases(1 << log_rows);
        let component = Squares { log_rows };
        let proof = on_device(|| prove(&component, &numbers, config)).unwrap();
        assert!(
            serde_json::to_string(&proof).unwrap() == expected(log_rows, &numbers, config),
            "2^{log_rows} rows, {fri_config:?}"
        );
        check(&component, config, proof.clone()).unwrap();
        // A control: of more rows it is none.
        assert!(check(&Squares { log_rows: log_rows + 1 }, config, proof).is_err());
    }
}
