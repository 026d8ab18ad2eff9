//! AIRs of shapes that those of the crate do not have.

use gatework_stark::airs::{Air, HostColumn, SimdColumn};
use stwo::core::channel::Channel;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo_constraint_framework::{EvalAtRow, FrameworkEval, ORIGINAL_TRACE_IDX, RelationEntry, relation};

relation!(Values, 1);

/// Columns that are constant, each read two rows ahead and two back, and everywhere between.
#[derive(Debug, Clone, Copy)]
pub struct Offsets {
    pub log_rows: u32,
    pub columns: usize,
    /// Whether there is no trace, but a panic instead.
    pub panics: bool,
}

impl FrameworkEval for Offsets {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        for _ in 0..self.columns {
            let [a, b, c, d, e] = eval.next_interaction_mask(ORIGINAL_TRACE_IDX, [0, -2, -1, 1, 2]);
            eval.add_constraint(a.clone() * b - c * d + e - a);
        }
        eval
    }
}

impl Air for Offsets {
    type Eval = Self;

    fn preprocessed(&self) -> Vec<(String, HostColumn)> {
        Vec::new()
    }

    fn traces(&self) -> Vec<Vec<HostColumn>> {
        assert!(!self.panics, "no trace today");
        let column = |number: u32| vec![BaseField::from(number * number + 7); 1 << self.log_rows];
        vec![(0..self.columns as u32).map(column).collect()]
    }

    fn public(&self) -> Vec<u32> {
        vec![self.log_rows]
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
        unreachable!("there is no interaction trace")
    }

    fn sums_hold(&self, _: &[Self], _: &[SecureField]) -> bool {
        true
    }
}

/// So many components, each of which looks the values of one column up in another: proved on devices alone.
#[derive(Debug, Clone, Copy)]
pub struct Many {
    pub log_rows: u32,
    pub components: usize,
}

/// One component.
pub struct Part {
    log_rows: u32,
    values: Values,
}

impl FrameworkEval for Part {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let (put, taken) = (eval.next_trace_mask(), eval.next_trace_mask());
        let one = E::EF::from(SecureField::from(1));
        eval.add_to_relation(RelationEntry::new(&self.values, one.clone(), &[put]));
        eval.add_to_relation(RelationEntry::new(&self.values, -one, &[taken]));
        eval.finalize_logup_in_pairs();
        eval
    }
}

impl Air for Many {
    type Eval = Part;

    fn preprocessed(&self) -> Vec<(String, HostColumn)> {
        Vec::new()
    }

    fn traces(&self) -> Vec<Vec<HostColumn>> {
        let ascending: HostColumn = (0..1u32 << self.log_rows).map(BaseField::from).collect();
        let descending = ascending.iter().rev().copied().collect();
        vec![vec![ascending, descending]; self.components]
    }

    fn public(&self) -> Vec<u32> {
        vec![self.log_rows]
    }

    fn evals(&self, channel: &mut impl Channel) -> Vec<Part> {
        let values = Values::draw(channel);
        (0..self.components).map(|_| Part { log_rows: self.log_rows, values: values.clone() }).collect()
    }

    fn interacts(&self) -> bool {
        true
    }

    fn simd_interaction(
        &self,
        _: &Part,
        _: &[HostColumn],
        _: &[HostColumn],
    ) -> (Vec<SimdColumn>, SecureField) {
        unreachable!("it is proved on devices")
    }

    fn sums_hold(&self, _: &[Part], sums: &[SecureField]) -> bool {
        sums.iter().copied().sum::<SecureField>() == SecureField::default()
    }
}
