//! Gates that add or multiply, with their wires checked by LogUp.

use gatework_stark::airs::{Air as _, HostColumn, Plonk};
use stwo::core::channel::Blake2sChannel;
use stwo::core::fields::qm31::SecureField;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::Column as _;
use stwo::prover::backend::simd::column::BaseColumn;
use stwo::prover::poly::circle::CircleEvaluation;

use super::{Program, Simd};

pub struct Circuit(Plonk);

impl Circuit {
    pub fn new(log_rows: u32) -> Self {
        Self(Plonk { log_rows })
    }

    /// A column that is written row by row.
    fn column(&self, values: &HostColumn) -> Simd {
        let mut column = BaseColumn::zeros(values.len());
        values.iter().enumerate().for_each(|(row, &value)| column.set(row, value));
        CircleEvaluation::new(CanonicCoset::new(self.0.log_rows).circle_domain(), column)
    }
}

impl Program for Circuit {
    type Eval = <Plonk as gatework_stark::airs::Air>::Eval;

    fn preprocessed(&self) -> Vec<(String, Simd)> {
        let named = self.0.preprocessed().into_iter();
        named.map(|(name, values)| (name, self.column(&values))).collect()
    }

    fn traces(&self) -> Vec<Vec<Simd>> {
        let traces = self.0.traces();
        traces.iter().map(|trace| trace.iter().map(|values| self.column(values)).collect()).collect()
    }

    fn evals(&self, channel: &mut Blake2sChannel) -> Vec<Self::Eval> {
        self.0.evals(channel)
    }

    fn interactions(&self, evals: &[Self::Eval]) -> Vec<(Vec<Simd>, SecureField)> {
        let preprocessed: Vec<HostColumn> =
            self.0.preprocessed().into_iter().map(|(_, column)| column).collect();
        vec![self.0.simd_interaction(&evals[0], &preprocessed, &self.0.traces()[0])]
    }
}
