//! Sequences of squares, one in each row, computed sixteen rows at a time.

use gatework_stark::airs::WideFibonacci;
use num_traits::{One as _, Zero as _};
use stwo::core::channel::Blake2sChannel;
use stwo::core::fields::FieldExpOps as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::prover::backend::simd::m31::{N_LANES, PackedBaseField};

use super::{Program, Simd, evaluation, vectors};

pub struct Fibonacci(WideFibonacci);

impl Fibonacci {
    pub fn new(log_rows: u32, columns: usize) -> Self {
        Self(WideFibonacci { log_rows, columns })
    }
}

impl Program for Fibonacci {
    type Eval = WideFibonacci;

    fn preprocessed(&self) -> Vec<(String, Simd)> {
        Vec::new()
    }

    fn traces(&self) -> Vec<Vec<Simd>> {
        let row = |vector: usize, lane: usize| BaseField::from((vector * N_LANES + lane) as u32);
        let numbers = vectors(self.0.log_rows)
            .map(|vector| PackedBaseField::from_array(std::array::from_fn(|lane| row(vector, lane))))
            // Twice negated, zero becomes P.
            .map(|numbers| -(PackedBaseField::zero() - numbers));
        let mut columns: Vec<Vec<PackedBaseField>> =
            vec![vec![PackedBaseField::one(); vectors(self.0.log_rows).len()], numbers.collect()];
        for index in 2..self.0.columns {
            let pairs = columns[index - 2].iter().zip(&columns[index - 1]);
            columns.push(pairs.map(|(a, b)| a.square() + b.square()).collect());
        }
        vec![columns.into_iter().map(evaluation).collect()]
    }

    fn evals(&self, _: &mut Blake2sChannel) -> Vec<WideFibonacci> {
        vec![self.0]
    }

    fn interactions(&self, _: &[WideFibonacci]) -> Vec<(Vec<Simd>, SecureField)> {
        Vec::new()
    }
}
