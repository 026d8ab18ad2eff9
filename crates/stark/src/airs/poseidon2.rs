//! Poseidon2 permutations, eight a row.

use std::ops::{Add, AddAssign, Mul, Sub};

use itertools::Itertools as _;
use num_traits::One as _;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use stwo::core::channel::Channel;
use stwo::core::fields::FieldExpOps;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::prover::backend::simd::column::BaseColumn;
use stwo::prover::backend::simd::m31::LOG_N_LANES;
use stwo::prover::backend::simd::qm31::PackedSecureField;
use stwo_constraint_framework::{
    EvalAtRow, FrameworkEval, LogupTraceGenerator, Relation as _, RelationEntry, relation,
};

use super::{Air, HostColumn, SimdColumn};

/// Permutations that a row has.
pub const PERMUTATIONS_PER_ROW: usize = 8;

const WIDTH: usize = 16;
/// Full rounds before the partial ones, and after.
const HALF_FULL_ROUNDS: usize = 4;
const PARTIAL_ROUNDS: usize = 14;
/// Columns of a permutation: its input, then x^2 and x^5 of every S-box. (With x^5 alone constraints would be
/// of degree 5, and stwo 2.3.0 proves degrees up to 3.)
const COLUMNS: usize = WIDTH + 2 * (2 * HALF_FULL_ROUNDS * WIDTH + PARTIAL_ROUNDS);
/// The constant of every round and place, as in stwo's own example: the shape of the computation is what is
/// measured.
const ROUND_CONSTANT: BaseField = BaseField::from_u32_unchecked(1234);

relation!(Permutations, 16);

/// Permutations whose inputs and outputs are shown to a relation.
#[derive(Debug, Clone, Copy)]
pub struct Poseidon2 {
    /// The logarithm of the number of rows, each of eight permutations.
    pub log_rows: u32,
}

/// The constraints of [`Poseidon2`].
pub struct Poseidon2Eval {
    log_rows: u32,
    permutations: Permutations,
}

/// What a permutation is computed on: values, or symbols.
trait Value:
    FieldExpOps
    + AddAssign
    + AddAssign<BaseField>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<BaseField, Output = Self>
{
}

impl<T> Value for T where
    T: FieldExpOps
        + AddAssign
        + AddAssign<BaseField>
        + Add<Output = Self>
        + Sub<Output = Self>
        + Mul<BaseField, Output = Self>
{
}

/// The matrix M4 of the Poseidon2 paper, appendix B.
fn multiply_m4<F: Value>([a, b, c, d]: [F; 4]) -> [F; 4] {
    let double = |x: &F| x.clone() + x.clone();
    let (ab, cd) = (a + b.clone(), c + d.clone());
    let b2_cd = double(&b) + cd.clone();
    let d2_ab = double(&d) + ab.clone();
    let fourth = double(&double(&cd)) + d2_ab.clone();
    let second = double(&double(&ab)) + b2_cd.clone();
    [d2_ab + second.clone(), second, b2_cd + fourth.clone(), fourth]
}

fn external_matrix<F: Value>(state: &mut [F; WIDTH]) {
    for group in state.as_chunks_mut::<4>().0 {
        *group = multiply_m4(group.clone());
    }
    for place in 0..4 {
        let column = [0, 4, 8, 12].map(|first| state[first + place].clone());
        let [a, b, c, d] = column;
        let sum = a + b + c + d;
        for first in [0, 4, 8, 12] {
            state[first + place] += sum.clone();
        }
    }
}

/// The matrix with 1 + 2^(i + 1) on its diagonal and ones elsewhere.
fn internal_matrix<F: Value>(state: &mut [F; WIDTH]) {
    let sum = state[1..].iter().cloned().fold(state[0].clone(), |sum, value| sum + value);
    for (place, value) in state.iter_mut().enumerate() {
        *value = value.clone() * BaseField::from_u32_unchecked(1 << (place + 1)) + sum.clone();
    }
}

/// x^5, with x^2 and x^5 committed to.
fn sbox<F: Value>(x: F, commit: &mut impl FnMut(F) -> F) -> F {
    let square = commit(x.clone() * x.clone());
    commit(square.clone() * square * x)
}

fn permute<F: Value>(state: &mut [F; WIDTH], mut commit: impl FnMut(F) -> F) {
    let full_rounds = |state: &mut [F; WIDTH], commit: &mut dyn FnMut(F) -> F| {
        for _ in 0..HALF_FULL_ROUNDS {
            for value in state.iter_mut() {
                *value += ROUND_CONSTANT;
            }
            external_matrix(state);
            for value in state.iter_mut() {
                *value = sbox(value.clone(), &mut |x| commit(x));
            }
        }
    };
    full_rounds(state, &mut commit);
    for _ in 0..PARTIAL_ROUNDS {
        state[0] += ROUND_CONSTANT;
        internal_matrix(state);
        state[0] = sbox(state[0].clone(), &mut commit);
    }
    full_rounds(state, &mut commit);
}

impl FrameworkEval for Poseidon2Eval {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        for _ in 0..PERMUTATIONS_PER_ROW {
            let input: [E::F; WIDTH] = std::array::from_fn(|_| eval.next_trace_mask());
            let mut state = input.clone();
            permute(&mut state, |value| {
                let column = eval.next_trace_mask();
                eval.add_constraint(value - column.clone());
                column
            });
            eval.add_to_relation(RelationEntry::new(&self.permutations, E::EF::one(), &input));
            eval.add_to_relation(RelationEntry::new(&self.permutations, -E::EF::one(), &state));
        }
        eval.finalize_logup_in_pairs();
        eval
    }
}

/// The columns of one permutation of a row, and its output.
fn permutation(row: usize, index: usize) -> (Vec<BaseField>, [BaseField; WIDTH]) {
    let mut state: [BaseField; WIDTH] =
        std::array::from_fn(|place| BaseField::from_u32_unchecked((row * WIDTH + place + index) as u32));
    let mut columns = Vec::with_capacity(COLUMNS);
    columns.extend(state);
    permute(&mut state, |value| {
        columns.push(value);
        value
    });
    (columns, state)
}

impl Air for Poseidon2 {
    type Eval = Poseidon2Eval;

    fn preprocessed(&self) -> Vec<(String, HostColumn)> {
        Vec::new()
    }

    fn traces(&self) -> Vec<Vec<HostColumn>> {
        let rows = 1usize << self.log_rows;
        let columns = (0..PERMUTATIONS_PER_ROW).into_par_iter().flat_map(|index| {
            let mut columns: Vec<HostColumn> = (0..COLUMNS).map(|_| Vec::with_capacity(rows)).collect();
            for row in 0..rows {
                for (column, value) in columns.iter_mut().zip(permutation(row, index).0) {
                    column.push(value);
                }
            }
            columns
        });
        vec![columns.collect()]
    }

    fn public(&self) -> Vec<u32> {
        vec![self.log_rows]
    }

    fn evals(&self, channel: &mut impl Channel) -> Vec<Poseidon2Eval> {
        vec![Poseidon2Eval { log_rows: self.log_rows, permutations: Permutations::draw(channel) }]
    }

    fn interacts(&self) -> bool {
        true
    }

    fn simd_interaction(
        &self,
        eval: &Poseidon2Eval,
        _: &[HostColumn],
        trace: &[HostColumn],
    ) -> (Vec<SimdColumn>, SecureField) {
        let mut generator = LogupTraceGenerator::new(self.log_rows);
        let rows = 1usize << self.log_rows;
        for (index, columns) in trace.chunks(COLUMNS).enumerate() {
            let outputs = (0..rows).map(|row| permutation(row, index).1).collect_vec();
            let inputs: [BaseColumn; WIDTH] =
                std::array::from_fn(|place| columns[place].iter().copied().collect());
            let outputs: [BaseColumn; WIDTH] =
                std::array::from_fn(|place| outputs.iter().map(|output| output[place]).collect());
            let mut column = generator.new_col();
            for row in 0..1usize << (self.log_rows - LOG_N_LANES) {
                let input: PackedSecureField =
                    eval.permutations.combine(&inputs.each_ref().map(|column| column.data[row]));
                let output: PackedSecureField =
                    eval.permutations.combine(&outputs.each_ref().map(|column| column.data[row]));
                column.write_frac(row, output - input, input * output);
            }
            column.finalize_col();
        }
        generator.finalize_last()
    }

    /// The other side of the relation, who uses the permutations, is no part of this statement: the sum is
    /// what it is.
    fn sums_hold(&self, _: &[Poseidon2Eval], _: &[SecureField]) -> bool {
        true
    }
}
