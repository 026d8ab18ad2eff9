//! A machine with two counters, a component for the steps of each.

use num_traits::One as _;
use stwo::core::channel::Channel;
use stwo::core::fields::FieldExpOps as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::prover::backend::simd::column::BaseColumn;
use stwo::prover::backend::simd::m31::{LOG_N_LANES, PackedM31};
use stwo::prover::backend::simd::qm31::PackedSecureField;
use stwo_constraint_framework::{
    EvalAtRow, FrameworkEval, LogupTraceGenerator, Relation as _, RelationEntry, relation,
};

use super::{Air, HostColumn, SimdColumn};

relation!(States, 2);

/// 2^n steps of the first counter, then half as many of the second, from (1, 2) on.
#[derive(Debug, Clone, Copy)]
pub struct StateMachine {
    /// The logarithm of the number of steps of the first counter.
    pub log_rows: u32,
}

/// The steps of one counter: a state is taken, and the one after it is put.
pub struct StepsEval {
    log_rows: u32,
    counter: usize,
    states: States,
}

impl FrameworkEval for StepsEval {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let state: [E::F; 2] = std::array::from_fn(|_| eval.next_trace_mask());
        let mut next = state.clone();
        next[self.counter] += E::F::one();
        eval.add_to_relation(RelationEntry::new(&self.states, E::EF::one(), &state));
        eval.add_to_relation(RelationEntry::new(&self.states, -E::EF::one(), &next));
        eval.finalize_logup_in_pairs();
        eval
    }
}

impl StateMachine {
    const FIRST: [u32; 2] = [1, 2];

    fn log_rows_of(&self, counter: usize) -> u32 {
        self.log_rows - counter as u32
    }

    /// The state before the steps of a counter.
    fn start(&self, counter: usize) -> [u32; 2] {
        let [x, y] = Self::FIRST;
        if counter == 0 { [x, y] } else { [x + (1 << self.log_rows), y] }
    }

    fn end(&self) -> [u32; 2] {
        let [x, y] = self.start(1);
        [x, y + (1 << self.log_rows_of(1))]
    }
}

impl Air for StateMachine {
    type Eval = StepsEval;

    fn preprocessed(&self) -> Vec<(String, HostColumn)> {
        Vec::new()
    }

    fn traces(&self) -> Vec<Vec<HostColumn>> {
        let steps = |counter: usize| {
            let start = self.start(counter);
            let states = (0..1u32 << self.log_rows_of(counter)).map(move |step| {
                let mut state = start;
                state[counter] += step;
                state.map(BaseField::from)
            });
            let (x, y) = states.map(|[x, y]| (x, y)).unzip();
            vec![x, y]
        };
        vec![steps(0), steps(1)]
    }

    fn public(&self) -> Vec<u32> {
        [vec![self.log_rows], Self::FIRST.to_vec(), self.end().to_vec()].concat()
    }

    fn evals(&self, channel: &mut impl Channel) -> Vec<StepsEval> {
        let states = States::draw(channel);
        let eval =
            |counter| StepsEval { log_rows: self.log_rows_of(counter), counter, states: states.clone() };
        vec![eval(0), eval(1)]
    }

    fn interacts(&self) -> bool {
        true
    }

    fn simd_interaction(
        &self,
        eval: &StepsEval,
        _: &[HostColumn],
        trace: &[HostColumn],
    ) -> (Vec<SimdColumn>, SecureField) {
        let [x, y]: [BaseColumn; 2] = [&trace[0], &trace[1]].map(|column| column.iter().copied().collect());
        let mut generator = LogupTraceGenerator::new(eval.log_rows);
        let mut column = generator.new_col();
        for row in 0..1usize << (eval.log_rows - LOG_N_LANES) {
            let state = [x.data[row], y.data[row]];
            let mut next = state;
            next[eval.counter] += PackedM31::one();
            let taken: PackedSecureField = eval.states.combine(&state);
            let put: PackedSecureField = eval.states.combine(&next);
            column.write_frac(row, put - taken, taken * put);
        }
        column.finalize_col();
        generator.finalize_last()
    }

    /// All states but the first and the last are put and taken.
    fn sums_hold(&self, evals: &[StepsEval], sums: &[SecureField]) -> bool {
        let entry = |state: [u32; 2]| -> SecureField { evals[0].states.combine(&state.map(BaseField::from)) };
        let expected = entry(Self::FIRST).inverse() - entry(self.end()).inverse();
        sums.iter().copied().sum::<SecureField>() == expected
    }
}
