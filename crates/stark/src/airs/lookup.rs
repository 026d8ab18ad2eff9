//! Squares looked up in a preprocessed table.

use num_traits::{One as _, Zero as _};
use stwo::core::channel::Channel;
use stwo::core::fields::FieldExpOps as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::prover::backend::simd::column::BaseColumn;
use stwo::prover::backend::simd::m31::LOG_N_LANES;
use stwo::prover::backend::simd::qm31::PackedSecureField;
use stwo_constraint_framework::preprocessed_columns::PreProcessedColumnId;
use stwo_constraint_framework::{
    EvalAtRow, FrameworkEval, LogupTraceGenerator, Relation as _, RelationEntry, relation,
};

use super::{Air, HostColumn, SimdColumn};

relation!(Squares, 2);

/// Values v with their squares are entries of the table (t, t^2), t from 0 on.
#[derive(Debug, Clone, Copy)]
pub struct Lookup {
    /// The logarithm of the number of rows, of the table and of the values.
    pub log_rows: u32,
    /// Which values are looked up.
    pub salt: u32,
}

/// The constraints of [`Lookup`].
pub struct LookupEval {
    log_rows: u32,
    squares: Squares,
}

impl FrameworkEval for LookupEval {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let t = eval.get_preprocessed_column(PreProcessedColumnId { id: "table".into() });
        let (v, square, multiplicity) =
            (eval.next_trace_mask(), eval.next_trace_mask(), eval.next_trace_mask());
        eval.add_constraint(square.clone() - v.square());
        eval.add_to_relation(RelationEntry::new(&self.squares, E::EF::one(), &[v, square]));
        let entry = [t.clone(), t.square()];
        eval.add_to_relation(RelationEntry::new(&self.squares, -E::EF::from(multiplicity), &entry));
        eval.finalize_logup();
        eval
    }
}

impl Air for Lookup {
    type Eval = LookupEval;

    fn preprocessed(&self) -> Vec<(String, HostColumn)> {
        let table = (0..1u32 << self.log_rows).map(BaseField::from_u32_unchecked).collect();
        vec![("table".into(), table)]
    }

    fn traces(&self) -> Vec<Vec<HostColumn>> {
        let rows = 1usize << self.log_rows;
        let looked_up: Vec<usize> = (0..rows).map(|row| (row * row + self.salt as usize) % rows).collect();
        let mut multiplicities = vec![0u32; rows];
        for &value in &looked_up {
            multiplicities[value] += 1;
        }
        let values: HostColumn =
            looked_up.iter().map(|&value| BaseField::from_u32_unchecked(value as u32)).collect();
        let squares = values.iter().map(|value| value.square()).collect();
        let multiplicities = multiplicities.into_iter().map(BaseField::from_u32_unchecked).collect();
        vec![vec![values, squares, multiplicities]]
    }

    fn public(&self) -> Vec<u32> {
        vec![self.log_rows, self.salt]
    }

    fn evals(&self, channel: &mut impl Channel) -> Vec<LookupEval> {
        vec![LookupEval { log_rows: self.log_rows, squares: Squares::draw(channel) }]
    }

    fn interacts(&self) -> bool {
        true
    }

    fn simd_interaction(
        &self,
        eval: &LookupEval,
        preprocessed: &[HostColumn],
        trace: &[HostColumn],
    ) -> (Vec<SimdColumn>, SecureField) {
        let [v, square, multiplicity, table]: [BaseColumn; 4] =
            [&trace[0], &trace[1], &trace[2], &preprocessed[0]]
                .map(|column| column.iter().copied().collect());
        let mut generator = LogupTraceGenerator::new(self.log_rows);
        let packed_rows = 0..1usize << (self.log_rows - LOG_N_LANES);
        let mut column = generator.new_col();
        for row in packed_rows.clone() {
            let entry: PackedSecureField = eval.squares.combine(&[v.data[row], square.data[row]]);
            column.write_frac(row, PackedSecureField::one(), entry);
        }
        column.finalize_col();
        let mut column = generator.new_col();
        for row in packed_rows {
            let t = table.data[row];
            let entry: PackedSecureField = eval.squares.combine(&[t, t * t]);
            column.write_frac(row, -PackedSecureField::from(multiplicity.data[row]), entry);
        }
        column.finalize_col();
        generator.finalize_last()
    }

    fn sums_hold(&self, _: &[LookupEval], sums: &[SecureField]) -> bool {
        sums.iter().all(|sum| sum.is_zero())
    }
}
