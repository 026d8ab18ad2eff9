//! Quotients of constraints against `CpuBackend`, on every kind of domain and by both tiers.

mod support;
#[allow(dead_code)]
#[path = "../src/constraints/synthetic.rs"]
mod synthetic;

use std::ops::{Add as _, Mul as _};

use gatework_gpu::Device;
use gatework_stark::airs::{Air, Lookup, Plonk, Poseidon2, StateMachine, WideFibonacci};
use gatework_stark::{Context, CudaBackend, Tier, interaction_trace};
use itertools::Itertools as _;
use num_traits::Zero as _;
use stwo::core::channel::Blake2sChannel;
use stwo::core::fields::FieldExpOps as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::{Column as _, CpuBackend};
use stwo::prover::poly::circle::CircleEvaluation;
use stwo::prover::{ComponentProver, EvaluationMode};
use stwo_constraint_framework::preprocessed_columns::PreProcessedColumnId;
use stwo_constraint_framework::{EvalAtRow, FrameworkComponent, FrameworkEval};

use support::Random;
use support::quotients::quotients;
use synthetic::{Blocks, Fractions};

const MODES: [EvaluationMode; 3] = [
    EvaluationMode::SubDomain { log_expansion: 0 },
    EvaluationMode::SubDomain { log_expansion: 2 },
    EvaluationMode::ExtendToEvalDomain,
];

fn match_cpu_in<E: FrameworkEval>(
    modes: &[EvaluationMode],
    preprocessed: &[PreProcessedColumnId],
    eval: impl Fn() -> E + Sync,
) where
    FrameworkComponent<E>: ComponentProver<CudaBackend> + ComponentProver<CpuBackend>,
{
    for &mode in modes {
        let expected = quotients::<E, CpuBackend>(preprocessed, eval(), mode).to_vec();
        for tier in [Tier::Interpreted, Tier::Generated] {
            let context = Context::new(&Device::emulated(11).unwrap()).unwrap();
            context.set_tier(tier);
            let found = context.scope(|| quotients::<E, CudaBackend>(preprocessed, eval(), mode)).unwrap();
            assert!(found.to_vec() == expected, "{tier:?}, {mode:?}");
        }
    }
}

fn match_cpu<A: Air>(air: &A)
where
    FrameworkComponent<A::Eval>: ComponentProver<CudaBackend> + ComponentProver<CpuBackend>,
{
    let names =
        air.preprocessed().into_iter().map(|(name, _)| PreProcessedColumnId { id: name }).collect_vec();
    match_cpu_in(&MODES, &names, || air.evals(&mut Blake2sChannel::default()).remove(0));
}

#[test]
fn quotients_match_cpu() {
    match_cpu(&WideFibonacci { log_rows: 4, columns: 6 });
    match_cpu(&Lookup { log_rows: 5, salt: 0 });
    match_cpu(&Plonk { log_rows: 3 });
    match_cpu(&StateMachine { log_rows: 4 });
}

/// The first time by the interpreter, or by kernels that were quick to compile; the second time by kernels.
#[test]
fn quotients_are_the_same_before_and_after_kernels_are_there() {
    let (air, mode) = (WideFibonacci { log_rows: 4, columns: 23 }, MODES[0]);
    let expected = quotients::<_, CpuBackend>(&[], air, mode).to_vec();
    let context = Context::new(&Device::emulated(11).unwrap()).unwrap();
    context.set_tier(Tier::Adaptive);
    for _ in 0..2 {
        let found = context.scope(|| quotients::<_, CudaBackend>(&[], air, mode)).unwrap();
        assert!(found.to_vec() == expected);
        context.wait_for_kernels();
    }
}

/// Parts of these are computed by kernels that go through several instances.
#[test]
fn quotients_of_what_repeats_match_cpu() {
    let modes = &MODES[..1];
    let poseidon2 = || Poseidon2 { log_rows: 3 }.evals(&mut Blake2sChannel::default()).remove(0);
    match_cpu_in(modes, &[], poseidon2);
    match_cpu_in(modes, &[], || WideFibonacci { log_rows: 3, columns: 700 });
    match_cpu_in(&MODES, &[], || Blocks { constants_differ: true, ..Blocks::default() });
    match_cpu_in(modes, &[], || Blocks { others: 50, odd_one: Some(7), ..Blocks::default() });
}

/// Numbers of fractions that are and are not multiples of those with one inverse; the last are more than one
/// kernel has.
#[test]
fn interaction_traces_are_sums_of_fractions_by_both_tiers() {
    let (log_rows, rows) = (5, 32);
    for (tier, count) in [Tier::Interpreted, Tier::Generated].into_iter().cartesian_product([1, 3, 4, 6, 450])
    {
        let eval = Fractions { count };
        let trace = (0..2 * u64::from(count)).map(|seed| Random::new(seed).bases(rows)).collect_vec();
        let context = Context::new(&Device::emulated(11).unwrap()).unwrap();
        context.set_tier(tier);
        let (found, claimed_sum) = context
            .scope(|| {
                let domain = CanonicCoset::new(log_rows).circle_domain();
                let up =
                    |values: &Vec<BaseField>| CircleEvaluation::new(domain, values.iter().copied().collect());
                let trace = trace.iter().map(up).collect_vec();
                let (columns, sum) = interaction_trace(&eval, &[], &trace.iter().collect_vec());
                (columns.iter().map(|column| column.values.to_cpu()).collect_vec(), sum)
            })
            .unwrap();
        let mut sums = vec![SecureField::zero(); rows];
        for (index, coordinates) in found.chunks(4).enumerate() {
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum += Fractions::z(index as u32)
                    .add(trace[2 * index + 1][row])
                    .inverse()
                    .mul(trace[2 * index][row]);
            }
            // The last column is summed up over the rows too.
            if index + 1 < count as usize {
                let found = (0..rows).map(|row| coordinates.iter().map(|column| column[row]).collect_array());
                let found = found.map(|coordinates| SecureField::from_m31_array(coordinates.unwrap()));
                assert!(found.eq(sums.iter().copied()), "{tier:?}, column {index} of {count}");
            }
        }
        assert_eq!(claimed_sum, sums.into_iter().sum(), "{tier:?}, {count} fractions");
    }
}

/// Values that are all computed for the first constraint and needed again for the others.
struct ManyLive {
    values: u32,
}

impl FrameworkEval for ManyLive {
    /// Rows for more than one block of the interpreter.
    fn log_size(&self) -> u32 {
        8
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        9
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let (a, b) = (eval.next_trace_mask(), eval.next_trace_mask());
        let value = |number| a.clone() * b.clone() + E::F::from(BaseField::from(number));
        let values = (0..self.values).map(value).collect_vec();
        let sum = values.iter().cloned().reduce(|sum, value| sum + value).expect("there are some");
        eval.add_constraint(sum);
        for (value, next) in values.iter().tuple_windows() {
            eval.add_constraint(value.clone() * next.clone());
        }
        eval
    }
}

#[test]
fn constraints_with_more_live_values_than_shared_memory_has_room_for_match_cpu() {
    let properties = Device::emulated(11).unwrap().properties().clone();
    // Of the smallest block of the interpreter, a word for each value and thread.
    let values = properties.shared_memory_per_block / (32 * 4) + 10;
    for mode in [MODES[0], MODES[2]] {
        let expected = quotients::<_, CpuBackend>(&[], ManyLive { values }, mode).to_vec();
        let context = Context::new(&Device::emulated(11).unwrap()).unwrap();
        context.set_tier(Tier::Interpreted);
        let found = context.scope(|| quotients::<_, CudaBackend>(&[], ManyLive { values }, mode)).unwrap();
        assert!(found.to_vec() == expected, "{mode:?}");
    }
}
