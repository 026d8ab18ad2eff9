//! Rounds of Blake2s: a component whose rows are rounds, one whose rows are hashes and look their rounds up,
//! and a table of the exclusive or of two numbers of four bits, which both sides of every round look up in.
//!
//! A word is eight numbers of four bits, the lowest first, so that rotations by 16, 12 and 8 bits only rename
//! them.

use num_traits::{One as _, Zero as _};
use stwo::core::channel::Blake2sChannel;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::prover::backend::simd::m31::{N_LANES, PackedBaseField};
use stwo::prover::backend::simd::qm31::PackedSecureField;
use stwo_constraint_framework::preprocessed_columns::PreProcessedColumnId;
use stwo_constraint_framework::{
    EvalAtRow, FrameworkEval, LogupTraceGenerator, Relation as _, RelationEntry, relation,
};

use super::support::Random;
use super::{Program, Simd, columns_of, vectors};

/// Of ten, so that their number is a power of two.
const ROUNDS: usize = 4;
const LOG_ROUNDS: u32 = 2;
/// Which word of the message each place of a round takes: RFC 7693.
const SIGMA: [[usize; 16]; ROUNDS] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
];
/// Words that are mixed together: columns of the state, then diagonals.
const MIXED: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];
const LOG_TABLE: u32 = 8;
const TABLE: [&str; 3] = ["left", "right", "xor"];

relation!(Xors, 3);
// A state, the state after, and the message as the round takes it, in numbers of sixteen bits.
relation!(Rounds, 96);

pub enum BlakeEval {
    Hashes { log_rows: u32, rounds: Rounds },
    Round { log_rows: u32, xors: Xors, rounds: Rounds },
    Table { xors: Xors },
}

type Word<F> = [F; 8];

/// The two numbers of sixteen bits of a word.
#[inline(never)]
fn limbs<F: Clone + std::ops::Add<Output = F> + std::ops::Mul<BaseField, Output = F>>(
    word: &Word<F>,
) -> [F; 2] {
    let limb = |first: usize| {
        (1..4).fold(word[first].clone(), |sum, place| {
            sum + word[first + place].clone() * BaseField::from(1u32 << (4 * place))
        })
    };
    [limb(0), limb(4)]
}

/// To the right by four bits, `places` times.
fn rotated<F: Clone>(word: &Word<F>, places: usize) -> Word<F> {
    std::array::from_fn(|place| word[(place + places) % 8].clone())
}

struct InRound<'a, E: EvalAtRow> {
    eval: &'a mut E,
    xors: &'a Xors,
}

impl<E: EvalAtRow> InRound<'_, E> {
    // Not inlined, as nothing of a round is: it would be compiled hundreds of times.
    #[inline(never)]
    fn next(&mut self) -> E::F {
        self.eval.next_trace_mask()
    }

    #[inline(never)]
    fn word(&mut self) -> Word<E::F> {
        std::array::from_fn(|_| self.next())
    }

    fn halves(&mut self) -> [E::F; 2] {
        [self.next(), self.next()]
    }

    /// The sum of limbs, modulo 2^32. Its parts are looked up where it is next used.
    #[inline(never)]
    fn add(&mut self, terms: &[[E::F; 2]]) -> Word<E::F> {
        let sum = self.word();
        let parts = limbs(&sum);
        let mut carry = E::F::zero();
        for (half, part) in parts.into_iter().enumerate() {
            let total = terms.iter().fold(carry, |total, term| total + term[half].clone());
            carry = self.eval.next_trace_mask();
            let values =
                (0..terms.len() as u32).map(|value| carry.clone() - E::F::from(BaseField::from(value)));
            let vanishing = values.reduce(|product, factor| product * factor).unwrap();
            self.eval.add_constraint(vanishing);
            self.eval.add_constraint(total - part - carry.clone() * BaseField::from(1u32 << 16));
        }
        sum
    }

    #[inline(never)]
    fn look_up(&mut self, entry: [E::F; 3]) {
        self.eval.add_to_relation(RelationEntry::new(self.xors, E::EF::one(), &entry));
    }

    #[inline(never)]
    fn xor(&mut self, left: &Word<E::F>, right: &Word<E::F>) -> Word<E::F> {
        let xor = self.word();
        for place in 0..8 {
            self.look_up([left[place].clone(), right[place].clone(), xor[place].clone()]);
        }
        xor
    }

    /// To the right by seven bits: the highest bit of each part, and the three below it.
    #[inline(never)]
    fn rotated_by_seven(&mut self, word: &Word<E::F>) -> Word<E::F> {
        let high = self.word();
        let low: Word<E::F> =
            std::array::from_fn(|place| word[place].clone() - high[place].clone() * BaseField::from(8));
        for place in 0..8 {
            self.eval.add_constraint(high[place].clone() * (high[place].clone() - E::F::one()));
            let doubled = low[place].clone() * BaseField::from(2);
            self.look_up([doubled.clone(), E::F::zero(), doubled]);
        }
        std::array::from_fn(|place| {
            high[(place + 1) % 8].clone() + low[(place + 2) % 8].clone() * BaseField::from(2)
        })
    }

    #[inline(never)]
    fn mix(&mut self, state: &mut [Word<E::F>], [a, b, c, d]: [usize; 4], message: [[E::F; 2]; 2]) {
        let [first, second] = message;
        state[a] = self.add(&[limbs(&state[a]), limbs(&state[b]), first]);
        state[d] = rotated(&self.xor(&state[d], &state[a]), 4);
        state[c] = self.add(&[limbs(&state[c]), limbs(&state[d])]);
        state[b] = rotated(&self.xor(&state[b], &state[c]), 3);
        state[a] = self.add(&[limbs(&state[a]), limbs(&state[b]), second]);
        state[d] = rotated(&self.xor(&state[d], &state[a]), 2);
        state[c] = self.add(&[limbs(&state[c]), limbs(&state[d])]);
        let xor = self.xor(&state[b], &state[c]);
        state[b] = self.rotated_by_seven(&xor);
    }
}

impl FrameworkEval for BlakeEval {
    fn log_size(&self) -> u32 {
        match self {
            Self::Hashes { log_rows, .. } | Self::Round { log_rows, .. } => *log_rows,
            Self::Table { .. } => LOG_TABLE,
        }
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_size() + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        match self {
            Self::Hashes { rounds, .. } => {
                let mut halves =
                    |count: usize| -> Vec<E::F> { (0..count).map(|_| eval.next_trace_mask()).collect() };
                let message = halves(32);
                let states: Vec<Vec<E::F>> = (0..=ROUNDS).map(|_| halves(32)).collect();
                for (round, order) in SIGMA.iter().enumerate() {
                    let taken = order.iter().flat_map(|&word| message[2 * word..][..2].iter());
                    let entry: Vec<E::F> =
                        states[round].iter().chain(&states[round + 1]).chain(taken).cloned().collect();
                    eval.add_to_relation(RelationEntry::new(rounds, -E::EF::one(), &entry));
                }
                eval.finalize_logup_in_pairs();
            }
            Self::Round { xors, rounds, .. } => {
                let mut round = InRound { eval: &mut eval, xors };
                let mut state: Vec<Word<E::F>> = (0..16).map(|_| round.word()).collect();
                let message: Vec<[E::F; 2]> = (0..16).map(|_| round.halves()).collect();
                let mut entry: Vec<E::F> = state.iter().flat_map(limbs).collect();
                for (turn, &places) in MIXED.iter().enumerate() {
                    let pair = [message[2 * turn].clone(), message[2 * turn + 1].clone()];
                    round.mix(&mut state, places, pair);
                }
                entry.extend(state.iter().flat_map(limbs));
                entry.extend(message.into_iter().flatten());
                eval.add_to_relation(RelationEntry::new(rounds, E::EF::one(), &entry));
                eval.finalize_logup_in_pairs();
            }
            Self::Table { xors } => {
                let entry =
                    TABLE.map(|id| eval.get_preprocessed_column(PreProcessedColumnId { id: id.into() }));
                let uses = eval.next_trace_mask();
                eval.add_to_relation(RelationEntry::new(xors, -E::EF::from(uses), &entry));
                eval.finalize_logup();
            }
        }
        eval
    }
}

/// What a row of the rounds holds, in the order of its columns, and what it looks up.
#[derive(Default)]
struct RoundRow {
    values: Vec<u32>,
    xors: Vec<[u32; 3]>,
    entry: Vec<u32>,
}

fn parts(word: u32) -> [u32; 8] {
    std::array::from_fn(|place| word >> (4 * place) & 15)
}

fn halves(word: u32) -> [u32; 2] {
    [word & 0xffff, word >> 16]
}

impl RoundRow {
    fn new(mut state: [u32; 16], message: [u32; 16]) -> (Self, [u32; 16]) {
        let mut row = Self::default();
        row.values.extend(state.into_iter().flat_map(parts));
        row.values.extend(message.into_iter().flat_map(halves));
        row.entry.extend(state.into_iter().flat_map(halves));
        for (turn, &places) in MIXED.iter().enumerate() {
            row.mix(&mut state, places, [message[2 * turn], message[2 * turn + 1]]);
        }
        row.entry.extend(state.into_iter().chain(message).flat_map(halves));
        (row, state)
    }

    fn add(&mut self, terms: &[u32]) -> u32 {
        let sum = terms.iter().fold(0u32, |sum, &term| sum.wrapping_add(term));
        self.values.extend(parts(sum));
        let mut carry = 0;
        for half in 0..2 {
            carry = (terms.iter().map(|&term| halves(term)[half]).sum::<u32>() + carry) >> 16;
            self.values.push(carry);
        }
        sum
    }

    fn xor(&mut self, left: u32, right: u32) -> u32 {
        let xor = left ^ right;
        self.values.extend(parts(xor));
        let (left, right, all) = (parts(left), parts(right), parts(xor));
        self.xors.extend((0..8).map(|place| [left[place], right[place], all[place]]));
        xor
    }

    fn mix(&mut self, state: &mut [u32; 16], [a, b, c, d]: [usize; 4], message: [u32; 2]) {
        state[a] = self.add(&[state[a], state[b], message[0]]);
        state[d] = self.xor(state[d], state[a]).rotate_right(16);
        state[c] = self.add(&[state[c], state[d]]);
        state[b] = self.xor(state[b], state[c]).rotate_right(12);
        state[a] = self.add(&[state[a], state[b], message[1]]);
        state[d] = self.xor(state[d], state[a]).rotate_right(8);
        state[c] = self.add(&[state[c], state[d]]);
        let xor = self.xor(state[b], state[c]);
        self.values.extend(parts(xor).map(|part| part >> 3));
        self.xors.extend(parts(xor).map(|part| [2 * (part & 7), 0, 2 * (part & 7)]));
        state[b] = xor.rotate_right(7);
    }
}

pub struct Blake {
    log_hashes: u32,
    /// Rows of the hashes, and the entries that they look up.
    hashes: Vec<Vec<u32>>,
    looked_up: Vec<[Vec<u32>; ROUNDS]>,
    rounds: Vec<RoundRow>,
    uses: Vec<u32>,
}

impl Blake {
    pub fn new(log_hashes: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut words = || -> [u32; 16] { std::array::from_fn(|_| random.base().0 * 2 + 1) };
        let (mut hashes, mut looked_up, mut rounds) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..1 << log_hashes {
            let (message, mut state) = (words(), words());
            let mut row: Vec<u32> = message.into_iter().chain(state).flat_map(halves).collect();
            looked_up.push(SIGMA.map(|order| {
                let (round, next) = RoundRow::new(state, order.map(|word| message[word]));
                state = next;
                row.extend(state.into_iter().flat_map(halves));
                let entry = round.entry.clone();
                rounds.push(round);
                entry
            }));
            hashes.push(row);
        }
        let mut uses = vec![0; 1 << LOG_TABLE];
        for [left, right, _] in rounds.iter().flat_map(|round| &round.xors) {
            uses[(left << 4 | right) as usize] += 1;
        }
        Self { log_hashes, hashes, looked_up, rounds, uses }
    }

    /// Another carry in one of the rounds.
    pub fn corrupt(&mut self) {
        self.rounds[5].values[16 * 8 + 32 + 8] ^= 1;
    }
}

/// Lanes of a tuple, one vector for each of its elements.
fn packed<'a>(rows: impl Fn(usize) -> &'a [u32], vector: usize) -> Vec<PackedBaseField> {
    let element = |index: usize| {
        let lane = |lane: usize| BaseField::from(rows(vector * N_LANES + lane)[index]);
        PackedBaseField::from_array(std::array::from_fn(lane))
    };
    (0..rows(vector * N_LANES).len()).map(element).collect()
}

/// Columns for fractions, two in each.
fn interaction(
    log_rows: u32,
    count: usize,
    fraction: impl Fn(usize, usize) -> (PackedSecureField, PackedSecureField),
) -> (Vec<Simd>, SecureField) {
    let mut generator = LogupTraceGenerator::new(log_rows);
    for first in (0..count).step_by(2) {
        let mut column = generator.new_col();
        for vector in vectors(log_rows) {
            let (mut numerator, mut denominator) = fraction(first, vector);
            if first + 1 < count {
                let (other, below) = fraction(first + 1, vector);
                (numerator, denominator) = (numerator * below + other * denominator, denominator * below);
            }
            column.write_frac(vector, numerator, denominator);
        }
        column.finalize_col();
    }
    generator.finalize_last()
}

impl Program for Blake {
    type Eval = BlakeEval;

    fn preprocessed(&self) -> Vec<(String, Simd)> {
        let rows: Vec<Vec<u32>> = (0..1u32 << LOG_TABLE)
            .map(|row| (row >> 4, row & 15))
            .map(|(left, right)| vec![left, right, left ^ right])
            .collect();
        TABLE.map(String::from).into_iter().zip(columns_of(&rows)).collect()
    }

    fn traces(&self) -> Vec<Vec<Simd>> {
        let rounds: Vec<Vec<u32>> = self.rounds.iter().map(|round| round.values.clone()).collect();
        let uses: Vec<Vec<u32>> = self.uses.iter().map(|&uses| vec![uses]).collect();
        [&self.hashes, &rounds, &uses].map(|rows| columns_of(rows)).to_vec()
    }

    fn evals(&self, channel: &mut Blake2sChannel) -> Vec<BlakeEval> {
        let (xors, rounds) = (Xors::draw(channel), Rounds::draw(channel));
        let log_rows = self.log_hashes;
        vec![
            BlakeEval::Hashes { log_rows, rounds: rounds.clone() },
            BlakeEval::Round { log_rows: log_rows + LOG_ROUNDS, xors: xors.clone(), rounds },
            BlakeEval::Table { xors },
        ]
    }

    fn interactions(&self, evals: &[BlakeEval]) -> Vec<(Vec<Simd>, SecureField)> {
        let one = PackedSecureField::one();
        let interaction = |eval: &BlakeEval| match eval {
            BlakeEval::Hashes { log_rows, rounds } => interaction(*log_rows, ROUNDS, |round, vector| {
                (-one, rounds.combine(&packed(|row| &self.looked_up[row][round], vector)))
            }),
            BlakeEval::Round { log_rows, xors, rounds } => {
                let count = self.rounds[0].xors.len();
                interaction(*log_rows, count + 1, |number, vector| {
                    if number < count {
                        return (one, xors.combine(&packed(|row| &self.rounds[row].xors[number], vector)));
                    }
                    (one, rounds.combine(&packed(|row| &self.rounds[row].entry, vector)))
                })
            }
            BlakeEval::Table { xors } => {
                let rows: Vec<[u32; 4]> = (0..1u32 << LOG_TABLE)
                    .map(|row| [row >> 4, row & 15, (row >> 4) ^ (row & 15), self.uses[row as usize]])
                    .collect();
                interaction(LOG_TABLE, 1, |_, vector| {
                    let lanes = packed(|row| &rows[row], vector);
                    (-PackedSecureField::from(lanes[3]), xors.combine(&lanes[..3]))
                })
            }
        };
        evals.iter().map(interaction).collect()
    }
}
