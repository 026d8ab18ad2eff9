//! AIRs for the tests of this module.

use std::array::from_fn;

use stwo::core::Fraction;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo_constraint_framework::{EvalAtRow, FrameworkEval};

/// An irregular head, a block on other columns again and again, blocks of another kind, and an irregular
/// tail.
pub(super) struct Blocks {
    /// Constraints of the head, and of the tail.
    pub(super) irregular: usize,
    pub(super) repeats: u32,
    pub(super) others: u32,
    pub(super) constants_differ: bool,
    /// The block that has another operation.
    pub(super) odd_one: Option<u32>,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { irregular: 13, repeats: 40, others: 0, constants_differ: false, odd_one: None }
    }
}

fn constant(value: u32) -> BaseField {
    BaseField::from_u32_unchecked(value)
}

/// No two of these have the same form.
fn irregular<E: EvalAtRow>(eval: &mut E, constraints: usize, mut product: E::F) -> E::F {
    for index in 0..constraints {
        let terms = (0..index).map(|_| eval.next_trace_mask());
        let sum = terms.fold(product.clone(), |sum, term| sum * constant(3) + term);
        product = eval.next_trace_mask();
        eval.add_constraint(sum * product.clone() - product.clone());
    }
    product
}

fn block<E: EvalAtRow>(eval: &mut E, factor: BaseField, is_odd: bool) {
    let x: [E::F; 12] = from_fn(|_| eval.next_trace_mask());
    for index in 0..10 {
        let at = |ahead: usize| x[(index * 5 + ahead) % 12].clone();
        let sum = at(0) * factor + at(1) * at(2) + E::F::from(constant(9));
        let last = if is_odd && index == 4 { -at(4) } else { at(4) };
        eval.add_constraint(sum * at(3) - last);
    }
}

fn other_block<E: EvalAtRow>(eval: &mut E) {
    let x: [E::F; 9] = from_fn(|_| eval.next_trace_mask());
    for index in 0..9 {
        let at = |ahead: usize| x[(index + ahead) % 9].clone();
        eval.add_constraint((at(0) - at(1)) * (at(2) - at(3)) * constant(index as u32 + 2) - at(5) - at(7));
    }
}

impl FrameworkEval for Blocks {
    fn log_size(&self) -> u32 {
        5
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        6
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let first = eval.next_trace_mask();
        let last = irregular(&mut eval, self.irregular, first);
        for index in 0..self.repeats {
            let factor = if self.constants_differ { 1000 + 7 * index } else { 1000 };
            block(&mut eval, constant(factor), self.odd_one == Some(index));
        }
        (0..self.others).for_each(|_| other_block(&mut eval));
        irregular(&mut eval, self.irregular / 2, last);
        eval
    }
}

/// Constraints of these kinds, one after the other.
pub(super) struct Sequence(pub(super) Vec<usize>);

impl FrameworkEval for Sequence {
    fn log_size(&self) -> u32 {
        5
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        6
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let mut before = eval.next_trace_mask();
        for &kind in &self.0 {
            let terms = (0..5 + kind).map(|_| eval.next_trace_mask());
            let sum = terms.fold(before.clone(), |sum, term| sum * constant(5) + term);
            eval.add_constraint(sum * before.clone());
            before = eval.next_trace_mask();
        }
        eval
    }
}

/// A term of nearly two thousand steps, in each of two hundred constraints.
pub(super) struct OneLargeTerm;

impl FrameworkEval for OneLargeTerm {
    fn log_size(&self) -> u32 {
        5
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        6
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let term = (0..600)
            .fold(eval.next_trace_mask(), |sum, index| sum * constant(index + 2) + eval.next_trace_mask());
        for _ in 0..200 {
            let (a, b) = (eval.next_trace_mask(), eval.next_trace_mask());
            eval.add_constraint(term.clone() * a - b);
        }
        eval
    }
}

/// Fractions a / (b + z), each of two columns and a z of its own, one for each column of the interaction
/// trace.
pub(super) struct Fractions {
    pub(super) count: u32,
}

impl Fractions {
    pub(super) fn z(index: u32) -> SecureField {
        SecureField::from_u32_unchecked(index + 2, 3, 5, 7 * index)
    }
}

impl FrameworkEval for Fractions {
    fn log_size(&self) -> u32 {
        5
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        6
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        for index in 0..self.count {
            let (a, b) = (eval.next_trace_mask(), eval.next_trace_mask());
            eval.write_logup_frac(Fraction::new(a.into(), E::EF::from(b) + Self::z(index)));
        }
        eval.finalize_logup();
        eval
    }
}
