//! AIRs from a seed: components of mixed sizes, constraints of degrees 1 to 3 over rows up to two away,
//! preprocessed columns, used and not, and fractions in batches.

use itertools::Itertools as _;
use num_traits::{One as _, Zero as _};
use stwo::core::fields::m31::{BaseField, P};
use stwo::core::fields::qm31::SecureField;
use stwo::core::utils::bit_reverse_index;
use stwo::prover::backend::simd::m31::{LOG_N_LANES, N_LANES, PackedBaseField};
use stwo::prover::backend::simd::qm31::PackedSecureField;
use stwo_constraint_framework::preprocessed_columns::PreProcessedColumnId;
use stwo_constraint_framework::{
    EvalAtRow, FrameworkEval, LogupTraceGenerator, ORIGINAL_TRACE_IDX, Relation as _, RelationEntry, relation,
};

use super::Simd;
use super::draw::Draw;

relation!(Entries, 3);

/// A value of a row.
#[derive(Clone, Copy, Debug)]
enum Factor {
    /// A column of the component, at one of its offsets.
    Trace { column: usize, offset: usize },
    /// A preprocessed column of the component.
    Preprocessed(usize),
}

/// A constant, and products with coefficients.
#[derive(Clone, Debug)]
struct Sum {
    constant: u32,
    products: Vec<(u32, Vec<Factor>)>,
}

#[derive(Clone, Debug)]
struct Fraction {
    multiplicity: Sum,
    values: Vec<Factor>,
}

/// A component.
#[derive(Clone, Debug)]
pub struct Part {
    pub log_rows: u32,
    /// The preprocessed columns that it uses, by their numbers.
    pub preprocessed: Vec<usize>,
    /// For each column the rows that are read, by how far they are away; its own is the first.
    offsets: Vec<Vec<isize>>,
    /// Columns that are computed from those before them.
    rules: Vec<(usize, Sum)>,
    fractions: Vec<Fraction>,
    batches: Vec<usize>,
}

#[derive(Clone, Debug)]
pub struct RandomAir {
    pub parts: Vec<Part>,
    /// Logarithms of the lengths of the preprocessed columns.
    pub preprocessed: Vec<u32>,
    seed: u64,
}

/// The smallest that `SimdBackend` proves.
const LOG_LEAST: u32 = 4;
const LOG_MOST: u32 = 6;

impl Sum {
    fn draw(draw: &mut Draw, degree: u32, factors: &[Factor]) -> Self {
        let product = |draw: &mut Draw, degree: u32| {
            let factors = (0..degree).map(|_| draw.one_of(factors)).collect();
            (draw.number(1..=P - 1), factors)
        };
        // One of the full degree, and others.
        let mut products = vec![product(draw, degree)];
        for _ in 0..draw.number(0..=2) {
            let degree = draw.number(1..=degree);
            products.push(product(draw, degree));
        }
        Self { constant: draw.number(0..=P - 1), products }
    }

    fn value<F>(&self, constant: impl Fn(u32) -> F, factor: impl Fn(Factor) -> F) -> F
    where
        F: std::ops::Add<Output = F> + std::ops::Mul<Output = F>,
    {
        self.products.iter().fold(constant(self.constant), |sum, (coefficient, factors)| {
            sum + factors.iter().fold(constant(*coefficient), |product, &of| product * factor(of))
        })
    }
}

/// The row that is `offset` rows of the trace away. Rows are in bit-reversed order of the circle domain,
/// which has the even points of the trace's coset in its first half and the odd ones, backwards, in its
/// second.
fn row_away(row: usize, log_rows: u32, offset: isize) -> usize {
    let rows = 1usize << log_rows;
    let natural = bit_reverse_index(row, log_rows);
    let in_coset = if natural < rows / 2 { 2 * natural } else { 2 * (rows - 1 - natural) + 1 };
    let there = (in_coset as isize + offset).rem_euclid(rows as isize) as usize;
    bit_reverse_index(if there.is_multiple_of(2) { there / 2 } else { rows - 1 - there / 2 }, log_rows)
}

impl Part {
    fn draw(draw: &mut Draw, log_rows: u32, preprocessed: &[u32], interacts: bool) -> Self {
        let own = preprocessed.iter().positions(|&log| log == log_rows).collect_vec();
        let preprocessed = own.into_iter().filter(|_| !draw.one_in(3)).collect_vec();
        let mut factors = (0..preprocessed.len()).map(Factor::Preprocessed).collect_vec();
        let (mut offsets, mut rules) = (Vec::new(), Vec::new());
        let free = draw.number(1..=3) as usize;
        for column in 0..free + draw.number(1..=4) as usize {
            if column >= free {
                let degree = draw.number(1..=3);
                rules.push((column, Sum::draw(draw, degree, &factors)));
            }
            let others = (0..draw.number(0..=2)).map(|_| draw.one_of(&[-2, -1, 1, 2])).unique().collect_vec();
            let all = [vec![0], others].concat();
            factors.extend((0..all.len()).map(|offset| Factor::Trace { column, offset }));
            offsets.push(all);
        }
        let mut part =
            Self { log_rows, preprocessed, offsets, rules, fractions: Vec::new(), batches: Vec::new() };
        if interacts {
            part.draw_fractions(draw, &factors);
        }
        part
    }

    /// Two fractions at most in a batch: more would be of a higher degree.
    fn draw_fractions(&mut self, draw: &mut Draw, factors: &[Factor]) {
        for _ in 0..draw.number(1..=5) {
            let degree = draw.number(1..=2);
            let multiplicity = Sum::draw(draw, degree, factors);
            let values = (0..draw.number(1..=3)).map(|_| draw.one_of(factors)).collect();
            self.fractions.push(Fraction { multiplicity, values });
        }
        let mut sizes: Vec<usize> = Vec::new();
        for _ in 0..self.fractions.len() {
            let room = sizes.iter().positions(|&size| size < 2).collect_vec();
            let batch = if room.is_empty() || draw.one_in(2) { sizes.len() } else { draw.one_of(&room) };
            if batch == sizes.len() {
                sizes.push(0);
            }
            sizes[batch] += 1;
            self.batches.push(batch);
        }
    }

    /// The values of a row, from columns of the host.
    fn factor_at(
        &self,
        row: usize,
        preprocessed: &[Vec<BaseField>],
        trace: &[Vec<BaseField>],
        of: Factor,
    ) -> BaseField {
        match of {
            Factor::Trace { column, offset } => {
                trace[column][row_away(row, self.log_rows, self.offsets[column][offset])]
            }
            Factor::Preprocessed(number) => preprocessed[self.preprocessed[number]][row],
        }
    }

    fn trace(&self, draw: &mut Draw, preprocessed: &[Vec<BaseField>]) -> Vec<Vec<BaseField>> {
        let mut trace: Vec<Vec<BaseField>> = Vec::new();
        let mut rules = self.rules.iter().peekable();
        for column in 0..self.offsets.len() {
            let rule = rules.next_if(|(computed, _)| *computed == column);
            let values = (0..1usize << self.log_rows).map(|row| match rule {
                Some((_, sum)) => {
                    sum.value(BaseField::from, |of| self.factor_at(row, preprocessed, &trace, of))
                }
                // Zeros, and the largest element, more often than by chance.
                None => match draw.number(0..=7) {
                    0 => BaseField::zero(),
                    1 => BaseField::from(P - 1),
                    _ => BaseField::from(draw.number(0..=P - 1)),
                },
            });
            let values = values.collect();
            trace.push(values);
        }
        trace
    }

    /// The interaction trace by stwo's own generator, and the claimed sum.
    pub fn interaction(
        &self,
        entries: &Entries,
        preprocessed: &[Vec<BaseField>],
        trace: &[Vec<BaseField>],
    ) -> (Vec<Simd>, SecureField) {
        let mut generator = LogupTraceGenerator::new(self.log_rows);
        for batch in 0..=self.batches.iter().max().copied().unwrap_or(0) {
            let fractions = self.fractions.iter().zip(&self.batches).filter(|(_, of)| **of == batch);
            let fractions = fractions.map(|(fraction, _)| fraction).collect_vec();
            let mut column = generator.new_col();
            for vector in 0..1usize << (self.log_rows - LOG_N_LANES) {
                let packed = |of: Factor| {
                    let lane = |lane| self.factor_at(vector * N_LANES + lane, preprocessed, trace, of);
                    PackedBaseField::from_array(std::array::from_fn(lane))
                };
                let constant = |value: u32| PackedBaseField::broadcast(BaseField::from(value));
                let mut sum = (PackedSecureField::zero(), PackedSecureField::one());
                for fraction in &fractions {
                    let numerator = PackedSecureField::from(fraction.multiplicity.value(constant, packed));
                    let values = fraction.values.iter().map(|&of| packed(of)).collect_vec();
                    let denominator: PackedSecureField = entries.combine(&values);
                    sum = (sum.0 * denominator + numerator * sum.1, sum.1 * denominator);
                }
                column.write_frac(vector, sum.0, sum.1);
            }
            column.finalize_col();
        }
        generator.finalize_last()
    }
}

pub struct RandomEval {
    pub part: Part,
    pub entries: Entries,
}

impl FrameworkEval for RandomEval {
    fn log_size(&self) -> u32 {
        self.part.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.part.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let ids = self.part.preprocessed.iter().map(|number| PreProcessedColumnId { id: number.to_string() });
        let preprocessed = ids.map(|id| eval.get_preprocessed_column(id)).collect_vec();
        let mut mask = |offsets: &[isize]| match *offsets {
            [a] => eval.next_interaction_mask(ORIGINAL_TRACE_IDX, [a]).to_vec(),
            [a, b] => eval.next_interaction_mask(ORIGINAL_TRACE_IDX, [a, b]).to_vec(),
            [a, b, c] => eval.next_interaction_mask(ORIGINAL_TRACE_IDX, [a, b, c]).to_vec(),
            _ => unreachable!("a column is read at its own row and two others at most"),
        };
        let trace = self.part.offsets.iter().map(|offsets| mask(offsets)).collect_vec();
        let factor = |of: Factor| match of {
            Factor::Trace { column, offset } => trace[column][offset].clone(),
            Factor::Preprocessed(number) => preprocessed[number].clone(),
        };
        let constant = |value: u32| E::F::from(BaseField::from(value));
        for (column, sum) in &self.part.rules {
            eval.add_constraint(trace[*column][0].clone() - sum.value(constant, factor));
        }
        for fraction in &self.part.fractions {
            let multiplicity = E::EF::from(fraction.multiplicity.value(constant, factor));
            let values = fraction.values.iter().map(|&of| factor(of)).collect_vec();
            eval.add_to_relation(RelationEntry::new(&self.entries, multiplicity, &values));
        }
        if !self.part.fractions.is_empty() {
            eval.finalize_logup_batched(&self.part.batches);
        }
        eval
    }
}

impl RandomAir {
    pub fn draw(seed: u64) -> Self {
        let draw = &mut Draw::new(seed, "air");
        let sizes = (0..draw.number(1..=3)).map(|_| draw.number(LOG_LEAST..=LOG_MOST)).collect_vec();
        let largest = sizes.iter().copied().max().unwrap_or(LOG_LEAST);
        // With some as long as the trace at least, or none: stwo verifies no others.
        let mut preprocessed = Vec::new();
        if !draw.one_in(3) {
            preprocessed.push(largest + draw.number(0..=1));
            preprocessed.extend((0..draw.number(0..=3)).map(|_| draw.one_of(&sizes)));
        }
        let interacts = !draw.one_in(3);
        let parts = sizes.iter().map(|&log| Part::draw(draw, log, &preprocessed, interacts)).collect();
        Self { parts, preprocessed, seed }
    }

    pub fn interacts(&self) -> bool {
        self.parts.iter().any(|part| !part.fractions.is_empty())
    }

    /// Preprocessed columns, and the trace of each component.
    pub fn columns(&self) -> (Vec<Vec<BaseField>>, Vec<Vec<Vec<BaseField>>>) {
        let draw = &mut Draw::new(self.seed, "values");
        let mut column = |log: &u32| (0..1 << log).map(|_| BaseField::from(draw.number(0..=P - 1))).collect();
        let preprocessed: Vec<Vec<BaseField>> = self.preprocessed.iter().map(&mut column).collect();
        let draw = &mut Draw::new(self.seed, "trace");
        let traces = self.parts.iter().map(|part| part.trace(draw, &preprocessed)).collect();
        (preprocessed, traces)
    }
}
