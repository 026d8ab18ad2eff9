//! A state of two counters; one component counts the first up, one the second.

use num_traits::One as _;
use stwo::core::channel::Blake2sChannel;
use stwo::core::fields::FieldExpOps as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::prover::backend::simd::m31::{N_LANES, PackedBaseField};
use stwo::prover::backend::simd::qm31::PackedSecureField;
use stwo_constraint_framework::{
    EvalAtRow, FrameworkEval, LogupTraceGenerator, Relation as _, RelationEntry, relation,
};

use super::{Program, Simd, evaluation, vectors};

relation!(States, 2);

pub struct Machine {
    /// Logarithms of the numbers of steps of each counter.
    pub logs: [u32; 2],
}

pub struct Steps {
    log_rows: u32,
    counter: usize,
    states: States,
}

impl FrameworkEval for Steps {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let state = [eval.next_trace_mask(), eval.next_trace_mask()];
        let mut next = state.clone();
        next[self.counter] += E::F::one();
        eval.add_to_relation(RelationEntry::new(&self.states, E::EF::one(), &state));
        eval.add_to_relation(RelationEntry::new(&self.states, -E::EF::one(), &next));
        eval.finalize_logup_in_pairs();
        eval
    }
}

impl Machine {
    /// The states before the steps of the first counter, before those of the second, and at the end.
    fn corners(&self) -> [[u32; 2]; 3] {
        let [first, second] = self.logs.map(|log| 1 << log);
        [[0, 5], [first, 5], [first, 5 + second]]
    }

    fn lanes(&self, counter: usize) -> [Vec<PackedBaseField>; 2] {
        let start = self.corners()[counter];
        [0, 1].map(|coordinate| {
            let at = |step: usize| start[coordinate] + if coordinate == counter { step as u32 } else { 0 };
            let vector = |vector: usize| {
                PackedBaseField::from_array(std::array::from_fn(|lane| {
                    BaseField::from(at(vector * N_LANES + lane))
                }))
            };
            vectors(self.logs[counter]).map(vector).collect()
        })
    }
}

impl Program for Machine {
    type Eval = Steps;

    fn preprocessed(&self) -> Vec<(String, Simd)> {
        Vec::new()
    }

    fn traces(&self) -> Vec<Vec<Simd>> {
        [0, 1].map(|counter| self.lanes(counter).map(evaluation).to_vec()).to_vec()
    }

    fn evals(&self, channel: &mut Blake2sChannel) -> Vec<Steps> {
        let states = States::draw(channel);
        let steps = |counter: usize| Steps { log_rows: self.logs[counter], counter, states: states.clone() };
        vec![steps(0), steps(1)]
    }

    fn interactions(&self, evals: &[Steps]) -> Vec<(Vec<Simd>, SecureField)> {
        let interaction = |eval: &Steps| {
            let [x, y] = self.lanes(eval.counter);
            let mut generator = LogupTraceGenerator::new(eval.log_rows);
            let mut column = generator.new_col();
            for row in vectors(eval.log_rows) {
                let state = [x[row], y[row]];
                let mut next = state;
                next[eval.counter] += PackedBaseField::one();
                let taken: PackedSecureField = eval.states.combine(&state);
                let put: PackedSecureField = eval.states.combine(&next);
                column.write_frac(row, put - taken, taken * put);
            }
            column.finalize_col();
            generator.finalize_last()
        };
        evals.iter().map(interaction).collect()
    }

    /// All states but the first and the last are put and taken.
    fn total(&self, evals: &[Steps]) -> SecureField {
        let entry = |state: [u32; 2]| -> SecureField { evals[0].states.combine(&state.map(BaseField::from)) };
        let [first, _, last] = self.corners();
        entry(first).inverse() - entry(last).inverse()
    }
}
