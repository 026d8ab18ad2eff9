//! Rows of a Fibonacci sequence of squares.

use num_traits::One as _;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use stwo::core::channel::Channel;
use stwo::core::fields::FieldExpOps as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo_constraint_framework::{EvalAtRow, FrameworkEval};

use super::{Air, HostColumn, SimdColumn};

/// Every row is a sequence of its own: c = a^2 + b^2, from 1 and the row's number on.
#[derive(Debug, Clone, Copy)]
pub struct WideFibonacci {
    /// The logarithm of the number of rows.
    pub log_rows: u32,
    /// Elements of each sequence, three or more.
    pub columns: usize,
}

impl FrameworkEval for WideFibonacci {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let (mut a, mut b) = (eval.next_trace_mask(), eval.next_trace_mask());
        for _ in 2..self.columns {
            let c = eval.next_trace_mask();
            eval.add_constraint(c.clone() - (a.square() + b.square()));
            (a, b) = (b, c);
        }
        eval
    }
}

impl Air for WideFibonacci {
    type Eval = Self;

    fn preprocessed(&self) -> Vec<(String, HostColumn)> {
        Vec::new()
    }

    fn traces(&self) -> Vec<Vec<HostColumn>> {
        let rows = 1usize << self.log_rows;
        let mut columns = vec![
            vec![BaseField::one(); rows],
            (0..rows as u32).into_par_iter().map(BaseField::from_u32_unchecked).collect(),
        ];
        for index in 2..self.columns {
            let (a, b): (&HostColumn, &HostColumn) = (&columns[index - 2], &columns[index - 1]);
            let next = (0..rows).into_par_iter().map(|row| a[row].square() + b[row].square());
            columns.push(next.collect());
        }
        vec![columns]
    }

    fn public(&self) -> Vec<u32> {
        vec![self.log_rows, self.columns as u32]
    }

    fn evals(&self, _: &mut impl Channel) -> Vec<Self> {
        vec![*self]
    }

    fn interacts(&self) -> bool {
        false
    }

    fn simd_interaction(
        &self,
        _: &Self,
        _: &[HostColumn],
        _: &[HostColumn],
    ) -> (Vec<SimdColumn>, SecureField) {
        (Vec::new(), SecureField::default())
    }

    fn sums_hold(&self, _: &[Self], sums: &[SecureField]) -> bool {
        sums.iter().all(|&sum| sum == SecureField::default())
    }
}
