//! What stwo 2.3.0 cannot prove. First what stwo does with it, then that either backend says so before it
//! begins, and that the way out is one.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use gatework_gpu::{Device, Target};
use gatework_stark::airs::{self, Air, HostColumn, SimdColumn, WideFibonacci};
use gatework_stark::{CudaBackend, Error, Prover};
use itertools::Itertools as _;
use stwo::core::air::Component as _;
use stwo::core::channel::{Blake2sChannel, Channel};
use stwo::core::fields::FieldExpOps as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::{CommitmentSchemeVerifier, PcsConfig};
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::proof::StarkProof;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sMerkleChannel, Blake2sMerkleHasher};
use stwo::prover::backend::BackendForChannel;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::poly::circle::CircleEvaluation;
use stwo::prover::{CommitmentSchemeProver, ComponentProver, ProvingError};
use stwo_constraint_framework::preprocessed_columns::PreProcessedColumnId;
use stwo_constraint_framework::{EvalAtRow, FrameworkComponent, FrameworkEval, TraceLocationAllocator};

use support::{Random, context};

type Proof = StarkProof<Blake2sMerkleHasher>;
type Scheme<'a, B> = CommitmentSchemeProver<'a, B, Blake2sMerkleChannel>;

/// Numbers and powers of them.
#[derive(Clone, Copy, Debug)]
struct Powers {
    log_rows: u32,
    log_bound: u32,
    power: u32,
    /// Whether there is a copy of the numbers in a third tree.
    copies: bool,
}

impl Powers {
    const fn cubes(log_rows: u32) -> Self {
        Self { log_rows, log_bound: log_rows + 1, power: 3, copies: false }
    }

    const fn fifths(log_rows: u32) -> Self {
        Self { log_bound: log_rows + 2, power: 5, ..Self::cubes(log_rows) }
    }

    const fn copied(self) -> Self {
        Self { copies: true, ..self }
    }

    fn columns(&self) -> [Vec<BaseField>; 2] {
        let numbers = Random::new(self.log_rows.into()).bases(1 << self.log_rows);
        let powers = numbers.iter().map(|number| number.pow(self.power.into())).collect();
        [numbers, powers]
    }
}

impl FrameworkEval for Powers {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_bound
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let (number, power) = (eval.next_trace_mask(), eval.next_trace_mask());
        let product = (1..self.power).fold(number.clone(), |product, _| product * number.clone());
        eval.add_constraint(power - product);
        if self.copies {
            let [copy] = eval.next_interaction_mask(2, [0]);
            eval.add_constraint(copy - number);
        }
        eval
    }
}

/// Components beside preprocessed columns that none of them uses.
#[derive(Clone, Debug)]
struct Statement {
    parts: Vec<Powers>,
    preprocessed: Vec<u32>,
    config: PcsConfig,
    keeps_coefficients: bool,
}

const QUERIES: usize = 30;

impl Statement {
    fn new(parts: &[Powers], preprocessed: &[u32]) -> Self {
        let config =
            PcsConfig { pow_bits: 1, fri_config: FriConfig::new(0, 1, QUERIES, 1), lifting_log_size: None };
        Self { parts: parts.to_vec(), preprocessed: preprocessed.to_vec(), config, keeps_coefficients: false }
    }

    fn lifted(&self, log_size: u32) -> Self {
        let config = PcsConfig { lifting_log_size: Some(log_size), ..self.config };
        Self { config, ..self.clone() }
    }

    fn components(&self) -> Vec<FrameworkComponent<Powers>> {
        let ids =
            (0..self.preprocessed.len()).map(|id| PreProcessedColumnId { id: id.to_string() }).collect_vec();
        let mut places = TraceLocationAllocator::new_with_preprocessed_columns(&ids);
        self.parts
            .iter()
            .map(|&part| FrameworkComponent::new(&mut places, part, SecureField::default()))
            .collect()
    }

    fn trees(&self) -> Vec<Vec<Vec<BaseField>>> {
        let preprocessed =
            self.preprocessed.iter().map(|&log_rows| Random::new(9).bases(1 << log_rows)).collect();
        let trace = self.parts.iter().flat_map(|part| part.columns()).collect();
        let copies =
            self.parts.iter().filter(|part| part.copies).map(|part| part.columns()[0].clone()).collect_vec();
        let mut trees = vec![preprocessed, trace];
        if !copies.is_empty() {
            trees.push(copies);
        }
        trees
    }

    fn prove<B: BackendForChannel<Blake2sMerkleChannel>, R>(
        &self,
        prover: impl FnOnce(&[&dyn ComponentProver<B>], &mut Blake2sChannel, Scheme<'_, B>) -> R,
    ) -> R
    where
        FrameworkComponent<Powers>: ComponentProver<B>,
    {
        let log_largest = self.parts.iter().map(|part| part.log_bound).max().unwrap_or(1) + 2;
        let twiddles = B::precompute_twiddles(CanonicCoset::new(log_largest).circle_domain().half_coset);
        let channel = &mut Blake2sChannel::default();
        let mut scheme = Scheme::<B>::new(self.config, &twiddles);
        if self.keeps_coefficients {
            scheme.set_store_polynomials_coefficients();
        }
        for columns in self.trees() {
            let evaluation = |values: Vec<BaseField>| {
                let domain = CanonicCoset::new(values.len().ilog2()).circle_domain();
                CircleEvaluation::new(domain, values.into_iter().collect())
            };
            let mut tree = scheme.tree_builder();
            tree.extend_evals(columns.into_iter().map(evaluation).collect());
            tree.commit(channel);
        }
        let components = self.components();
        prover(&components.iter().map(|component| component as _).collect_vec(), channel, scheme)
    }

    /// What stwo's own prover and `SimdBackend` make of it; none where they panic.
    fn by_stwo(&self) -> Option<Result<Proof, ProvingError>> {
        catch_unwind(AssertUnwindSafe(|| self.prove::<SimdBackend, _>(stwo::prover::prove))).ok()
    }

    fn on_device(&self) -> Result<Proof, Error> {
        context().scope(|| self.prove::<CudaBackend, _>(gatework_stark::prove))?
    }

    /// Both of ours.
    fn by_either(&self) -> [Result<Proof, Error>; 2] {
        [self.on_device(), self.prove::<SimdBackend, _>(<SimdBackend as airs::ProvesWith<_>>::prove)]
    }

    /// Whether stwo's verifier takes a proof.
    fn holds(&self, proof: Proof) -> bool {
        let verify = || {
            let components = self.components();
            let channel = &mut Blake2sChannel::default();
            let mut scheme = CommitmentSchemeVerifier::<Blake2sMerkleChannel>::new(self.config);
            let bounds = components.iter().map(|component| component.trace_log_degree_bounds()).collect_vec();
            for tree in 0..proof.commitments.len() - 1 {
                let sizes = match tree {
                    0 => self.preprocessed.clone(),
                    _ => {
                        bounds.iter().flat_map(|bound| bound.get(tree).cloned().unwrap_or_default()).collect()
                    }
                };
                scheme.commit(proof.commitments[tree], &sizes, channel);
            }
            let components = components.iter().map(|component| component as _).collect_vec();
            stwo::core::verifier::verify(&components, channel, &mut scheme, proof).is_ok()
        };
        catch_unwind(AssertUnwindSafe(verify)).unwrap_or(false)
    }

    /// Both backends refuse it, with the same sentence, which has these parts.
    fn is_refused(&self, parts: &[&str]) {
        let [device, simd] = self.by_either().map(|proved| match proved {
            Err(Error::Unsupported { what }) => what,
            other => panic!("{self:?}: {:?}", other.map(|_| "a proof")),
        });
        assert_eq!(device, simd);
        assert!(parts.iter().all(|part| device.contains(part)), "{device:?} has not {parts:?}");
    }

    /// Both backends prove it, with the bytes of stwo, and it is verified.
    fn is_proved(&self) {
        let expected = self.by_stwo().expect("stwo proves it").expect("it holds");
        let json = |proof: &Proof| serde_json::to_string(proof).unwrap();
        for proved in self.by_either() {
            assert!(json(&proved.unwrap()) == json(&expected), "{self:?}");
        }
        assert!(self.holds(expected), "{self:?}");
    }
}

#[test]
fn preprocessed_columns_that_are_shorter_than_the_trace() {
    for (log_rows, log_preprocessed) in [(6, 4), (7, 6), (5, 1)] {
        let mut statement =
            Statement::new(&[Powers::cubes(log_rows), Powers::cubes(4)], &[log_preprocessed, 1]);
        // Whether stwo's verifier takes a proof depends on its queries.
        let is_refused = |statement: &mut Statement, queries| {
            statement.config.fri_config.n_queries = queries;
            let proof = statement.by_stwo().expect("stwo proves it").expect("it holds");
            !statement.holds(proof)
        };
        assert!(
            (2..60).any(|queries| is_refused(&mut statement, queries)),
            "2^{log_preprocessed}, 2^{log_rows}"
        );
        let rows =
            format!("preprocessed columns of 2^{log_preprocessed} rows beside a trace of 2^{log_rows}");
        statement.is_refused(&[&rows, &format!("lifting_log_size to Some({})", log_rows + 1)]);
        statement.lifted(log_rows + 1).is_proved();
    }
    // As long, longer, or none at all.
    for preprocessed in [&[6][..], &[8, 2], &[]] {
        Statement::new(&[Powers::cubes(6), Powers::cubes(4)], preprocessed).is_proved();
    }
}

#[test]
fn constraints_of_other_degrees() {
    let flat = Powers { log_bound: 5, power: 1, ..Powers::cubes(5) };
    let statements: [&[Powers]; 5] = [
        &[Powers::cubes(6), Powers::fifths(4)],
        &[Powers::fifths(5)],
        &[Powers::cubes(5), Powers::fifths(5)],
        &[flat],
        &[Powers::cubes(6), flat],
    ];
    for (parts, keeps_coefficients) in statements.into_iter().cartesian_product([false, true]) {
        let statement = Statement { keeps_coefficients, ..Statement::new(parts, &[6]) };
        for statement in [statement.clone(), statement.lifted(9)] {
            let proof = statement.by_stwo().and_then(Result::ok);
            assert!(proof.is_none_or(|proof| !statement.holds(proof)), "stwo proves {statement:?}");
            let wrong = parts.iter().find(|part| part.log_bound != part.log_rows + 1).unwrap();
            let bound = format!("max_constraint_log_degree_bound is {}", wrong.log_bound);
            statement.is_refused(&[&bound, "degree 3", "columns of their own"]);
        }
    }
    // A control: of the same sizes, with a bound that is one more.
    Statement::new(&[Powers::cubes(6), Powers { power: 1, ..Powers::cubes(5) }], &[6]).is_proved();
}

#[test]
fn trees_of_a_trace_that_differ_in_height() {
    let statement = Statement::new(&[Powers::cubes(6), Powers::cubes(4).copied()], &[6]);
    let proof = statement.by_stwo().and_then(Result::ok);
    assert!(proof.is_none_or(|proof| !statement.holds(proof)), "stwo proves it");
    statement.is_refused(&["a tree of columns of 2^4 rows", "2^6", "lifting_log_size to Some(7)"]);
    statement.lifted(7).is_proved();
    Statement::new(&[Powers::cubes(6).copied(), Powers::cubes(4)], &[6]).is_proved();
}

#[test]
fn folds_that_are_larger_than_what_is_left() {
    let with = |log_rows, log_last_degree, log_blowup, fold_step| {
        let fri_config = FriConfig { fold_step, ..FriConfig::new(log_last_degree, log_blowup, 3, 1) };
        let statement = Statement::new(&[Powers::cubes(log_rows)], &[]);
        Statement { config: PcsConfig { fri_config, ..statement.config }, ..statement }
    };
    for statement in
        [with(4, 4, 1, 1), with(4, 3, 2, 2), with(4, 0, 1, 5), with(5, 2, 1, 4), with(4, 5, 1, 1)]
    {
        assert!(statement.by_stwo().is_none(), "stwo does not panic: {statement:?}");
        statement.is_refused(&["last layer", "prove more rows", "fold_step"]);
    }
    // stwo would fold for ever.
    with(4, 0, 1, 0).is_refused(&["set fold_step to 1 or more"]);
    for statement in [with(4, 3, 1, 1), with(4, 0, 1, 4), with(5, 1, 1, 4)] {
        statement.is_proved();
    }
}

#[test]
fn trees_that_are_lifted_to_less_than_they_have() {
    let air = WideFibonacci { log_rows: 5, columns: 3 };
    for target in [Target::Cpu, Target::Gpu(Device::emulated(3).unwrap())] {
        let prover = Prover::builder().build(&target).unwrap();
        let config = PcsConfig { lifting_log_size: Some(5), ..PcsConfig::default() };
        let error = prover.prove(&air, config).unwrap_err().to_string();
        assert!(error.contains("lifted to 2^5 rows") && error.contains("Some(6)"), "{error}");
        let fri_config = FriConfig::new(3, 1, 3, 4);
        let error =
            prover.prove(&air, PcsConfig { fri_config, ..PcsConfig::default() }).unwrap_err().to_string();
        assert!(error.contains("last layer of 2^4"), "{error}");
        prover.prove(&air, PcsConfig::default()).unwrap();
    }
}

/// An AIR whose trace must never be asked for.
struct Untouchable(Powers);

impl Air for Untouchable {
    type Eval = Powers;

    fn preprocessed(&self) -> Vec<(String, HostColumn)> {
        panic!("columns were made for what cannot be proved")
    }

    fn preprocessed_log_sizes(&self) -> Vec<u32> {
        vec![3]
    }

    fn traces(&self) -> Vec<Vec<HostColumn>> {
        panic!("a trace was made for what cannot be proved")
    }

    fn public(&self) -> Vec<u32> {
        vec![]
    }

    fn evals(&self, _: &mut impl Channel) -> Vec<Powers> {
        vec![self.0]
    }

    fn interacts(&self) -> bool {
        false
    }

    fn simd_interaction(
        &self,
        _: &Powers,
        _: &[HostColumn],
        _: &[HostColumn],
    ) -> (Vec<SimdColumn>, SecureField) {
        panic!("an interaction was made for what cannot be proved")
    }

    fn sums_hold(&self, _: &[Powers], _: &[SecureField]) -> bool {
        true
    }
}

#[test]
fn a_prover_refuses_before_anything_is_made() {
    for target in [Target::Cpu, Target::Gpu(Device::emulated(3).unwrap())] {
        let prover = Prover::builder().build(&target).unwrap();
        for (powers, part) in
            [(Powers::cubes(5), "preprocessed columns of 2^3"), (Powers::fifths(4), "degree 3")]
        {
            let error = prover.prove(&Untouchable(powers), PcsConfig::default()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}

/// stwo would draw queries for ever where none are wanted, and grind for ever.
#[test]
fn configurations_that_would_not_end() {
    let air = WideFibonacci { log_rows: 4, columns: 4 };
    for target in [Target::Cpu, Target::Gpu(Device::emulated(3).unwrap())] {
        let prover = Prover::builder().build(&target).unwrap();
        let of = |pow_bits, n_queries| PcsConfig {
            pow_bits,
            fri_config: FriConfig::new(0, 1, n_queries, 1),
            lifting_log_size: None,
        };
        for (config, part) in [(of(0, 0), "n_queries to 1"), (of(33, 3), "pow_bits to 32")] {
            let error = prover.prove(&air, config).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        prover.prove(&air, of(1, 1)).unwrap();
    }
}

#[test]
fn nothing_to_prove() {
    let nothing = Statement::new(&[Powers::cubes(4)], &[]);
    let prove =
        || nothing.prove::<CudaBackend, _>(|_, channel, scheme| gatework_stark::prove(&[], channel, scheme));
    let error = context().scope(prove).unwrap().err().unwrap().to_string();
    assert!(error.contains("without components"), "{error}");
    let prove = || {
        nothing.prove::<CudaBackend, _>(|components, channel, mut scheme| {
            scheme.trees.clear();
            gatework_stark::prove(components, channel, scheme)
        })
    };
    let error = context().scope(prove).unwrap().err().unwrap().to_string();
    assert!(error.contains("without commitments"), "{error}");
}
