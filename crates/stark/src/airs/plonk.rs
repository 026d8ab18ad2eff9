//! A circuit of additions and multiplications, with wires checked by LogUp.

use num_traits::{One as _, Zero as _};
use stwo::core::channel::Channel;
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

relation!(Wires, 2);

/// Gate r computes wire r from two of the wires before it: their sum where the operation is 1, their product
/// where it is 0.
#[derive(Debug, Clone, Copy)]
pub struct Plonk {
    /// The logarithm of the number of gates.
    pub log_rows: u32,
}

/// The constraints of [`Plonk`].
pub struct PlonkEval {
    log_rows: u32,
    wires: Wires,
}

const PREPROCESSED: [&str; 4] = ["a_wire", "b_wire", "c_wire", "operation"];

impl FrameworkEval for PlonkEval {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let [a_wire, b_wire, c_wire, operation] =
            PREPROCESSED.map(|id| eval.get_preprocessed_column(PreProcessedColumnId { id: id.into() }));
        let uses = eval.next_trace_mask();
        let [a, b, c]: [E::F; 3] = std::array::from_fn(|_| eval.next_trace_mask());
        let sum = operation.clone() * (a.clone() + b.clone());
        let product = (E::F::one() - operation) * a.clone() * b.clone();
        eval.add_constraint(c.clone() - sum - product);
        eval.add_to_relation(RelationEntry::new(&self.wires, E::EF::one(), &[a_wire, a]));
        eval.add_to_relation(RelationEntry::new(&self.wires, E::EF::one(), &[b_wire, b]));
        eval.add_to_relation(RelationEntry::new(&self.wires, -E::EF::from(uses), &[c_wire, c]));
        eval.finalize_logup_batched(&vec![0, 0, 1]);
        eval
    }
}

impl Plonk {
    fn gates(&self) -> usize {
        1 << self.log_rows
    }

    /// The wires that a gate reads. The first two gates read their own, which hold 1, the square of itself.
    fn inputs(gate: usize) -> (usize, usize) {
        if gate < 2 { (gate, gate) } else { (gate - 1, gate - 2 - (gate * 7) % (gate - 1)) }
    }

    fn is_sum(gate: usize) -> bool {
        gate >= 2 && !gate.is_multiple_of(3)
    }
}

fn column(values: impl Iterator<Item = usize>) -> HostColumn {
    values.map(|value| BaseField::from_u32_unchecked(value as u32)).collect()
}

impl Air for Plonk {
    type Eval = PlonkEval;

    fn preprocessed(&self) -> Vec<(String, HostColumn)> {
        let gates = || 0..self.gates();
        let columns = [
            column(gates().map(|gate| Self::inputs(gate).0)),
            column(gates().map(|gate| Self::inputs(gate).1)),
            column(gates()),
            column(gates().map(|gate| usize::from(Self::is_sum(gate)))),
        ];
        PREPROCESSED.iter().map(|&name| name.into()).zip(columns).collect()
    }

    fn preprocessed_log_sizes(&self) -> Vec<u32> {
        vec![self.log_rows; PREPROCESSED.len()]
    }

    fn traces(&self) -> Vec<Vec<HostColumn>> {
        let mut wires: HostColumn = vec![BaseField::one(); self.gates()];
        let mut uses = vec![0usize; self.gates()];
        for gate in 0..self.gates() {
            let (a, b) = Self::inputs(gate);
            uses[a] += 1;
            uses[b] += 1;
            let (a, b) = (wires[a], wires[b]);
            wires[gate] = if Self::is_sum(gate) { a + b } else { a * b };
        }
        let read = |wire: fn((usize, usize)) -> usize| -> HostColumn {
            (0..self.gates()).map(|gate| wires[wire(Self::inputs(gate))]).collect()
        };
        let (a, b) = (read(|inputs| inputs.0), read(|inputs| inputs.1));
        vec![vec![column(uses.into_iter()), a, b, wires]]
    }

    fn public(&self) -> Vec<u32> {
        vec![self.log_rows]
    }

    fn evals(&self, channel: &mut impl Channel) -> Vec<PlonkEval> {
        vec![PlonkEval { log_rows: self.log_rows, wires: Wires::draw(channel) }]
    }

    fn interacts(&self) -> bool {
        true
    }

    fn simd_interaction(
        &self,
        eval: &PlonkEval,
        preprocessed: &[HostColumn],
        trace: &[HostColumn],
    ) -> (Vec<SimdColumn>, SecureField) {
        let packed = |column: &HostColumn| -> BaseColumn { column.iter().copied().collect() };
        let [a_wire, b_wire, c_wire] = [0, 1, 2].map(|index| packed(&preprocessed[index]));
        let [uses, a, b, c] = [0, 1, 2, 3].map(|index| packed(&trace[index]));
        let mut generator = LogupTraceGenerator::new(self.log_rows);
        let packed_rows = 0..1usize << (self.log_rows - LOG_N_LANES);
        let mut column = generator.new_col();
        for row in packed_rows.clone() {
            let first: PackedSecureField = eval.wires.combine(&[a_wire.data[row], a.data[row]]);
            let second: PackedSecureField = eval.wires.combine(&[b_wire.data[row], b.data[row]]);
            column.write_frac(row, first + second, first * second);
        }
        column.finalize_col();
        let mut column = generator.new_col();
        for row in packed_rows {
            let made: PackedSecureField = eval.wires.combine(&[c_wire.data[row], c.data[row]]);
            column.write_frac(row, -PackedSecureField::from(uses.data[row]), made);
        }
        column.finalize_col();
        generator.finalize_last()
    }

    fn sums_hold(&self, _: &[PlonkEval], sums: &[SecureField]) -> bool {
        sums.iter().all(|sum| sum.is_zero())
    }
}
