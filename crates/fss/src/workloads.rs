//! What the lab may gate: `fss/*`, two parties in one process against plain code.
//!
//! They have no kernels: the CPU is the only backend so far. Keys are dealt from the operating system's randomness, so that two runs
//! of a case share nothing but their answer.

use gatework_gpu::{Device, Kind};
use gatework_lab::{
    Case, Control, ErrorBudget, Inputs as Random, KernelSpec, Outputs, RunError, Work, Workload,
};

use crate::executor::{estimate, run_clear, run_in_process};
use crate::gates::{Activation, Rows, Softmax, relu};
use crate::table::Table;
use crate::{Cost, Evaluator, FixedPoint, Party, Result, Ring, Share, Wire, reference};

const FRACTION: u32 = 12;

/// All of them.
pub fn workloads() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(Job(Compare)),
        Box::new(Job(Lut)),
        Box::new(Job(Trunc)),
        Box::new(Job(Gelu)),
        Box::new(Job(SoftmaxRows)),
        Box::new(Job(Relu)),
    ]
}

/// A gate of one input, its plain counterpart, and its own ways to be wrong.
trait Gate: Send + Sync {
    fn name(&self) -> &str;
    fn summary(&self) -> &str;
    /// Bits of the ring, and elements.
    fn sizes(&self) -> Vec<(u32, usize)>;
    /// Real inputs, and how far from zero their integers may be.
    fn inputs(&self, ring: Ring, len: usize, seed: u64) -> (Vec<i64>, i64);
    fn apply(&self, evaluator: &Evaluator, x: &Wire) -> impl Future<Output = Result<Share>>;
    /// The plainest code that is right.
    fn plain(&self, ring: Ring, x: &[i64]) -> Vec<u64>;
    /// A mistake that this gate invites.
    fn mistaken(&self, ring: Ring, x: &[i64], right: &[u64]) -> (&'static str, Vec<u64>);
}

struct Job<G>(G);

/// Normally distributed fixed-point numbers.
fn normal(len: usize, seed: u64, deviation: f64, limit: i64) -> Vec<i64> {
    let number = |x: f32| ((f64::from(x) * deviation * 4096.0).round() as i64).clamp(-limit, limit);
    Random::new(seed).normal(len).into_iter().map(number).collect()
}

fn encode(ring: Ring, values: impl IntoIterator<Item = i64>) -> Vec<u64> {
    values.into_iter().map(|value| ring.encode(value.into())).collect()
}

impl<G: Gate> Job<G> {
    fn ring(case: &Case) -> std::result::Result<Ring, crate::Error> {
        Ring::new(case.dimension("bits") as u32)
    }

    fn sizes_of(case: &Case) -> (Option<Ring>, usize) {
        (Self::ring(case).ok(), case.dimension("elements"))
    }

    fn circuit(
        &self,
        ring: Ring,
        len: usize,
        limit: i64,
    ) -> impl AsyncFn(&Evaluator) -> Result<Option<Vec<u64>>> + Sync {
        async move |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, ring, len, -limit..=limit).await?;
            let opened = evaluator.open(self.0.apply(evaluator, &x).await?).await?;
            evaluator.reveal(&opened, Party::Zero)
        }
    }

    fn cost(&self, case: &Case) -> Cost {
        let (ring, len) = Self::sizes_of(case);
        let circuit = |ring| {
            let (_, limit) = self.0.inputs(ring, len, 0);
            estimate(&self.circuit(ring, len, limit)).ok()
        };
        ring.and_then(circuit).unwrap_or_default()
    }
}

impl<G: Gate> Workload for Job<G> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn summary(&self) -> &str {
        self.0.summary()
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        Vec::new()
    }

    fn cases(&self, _: Kind) -> Vec<Case> {
        let case = |(bits, len): (u32, usize)| {
            Case::new(format!("{len}x{bits}")).with("bits", bits as usize).with("elements", len)
        };
        self.0.sizes().into_iter().map(case).collect()
    }

    fn run(&self, _: &Device, case: &Case, seed: u64) -> std::result::Result<Outputs, RunError> {
        let (ring, len) = (Self::ring(case)?, case.dimension("elements"));
        let (values, limit) = self.0.inputs(ring, len, seed);
        let circuit = self.circuit(ring, len, limit);
        let words = encode(ring, values);
        let format = FixedPoint::new(ring.bits(), FRACTION.min(ring.bits() - 1))?;
        let clear = run_clear(&circuit, vec![Some(words.clone())])?;
        let [zero, _] = run_in_process(format, &circuit, [vec![None], vec![Some(words)]])?;
        if zero.output != clear.output || zero.cost != clear.cost {
            return Err("two parties do not give what the clear evaluator gives, or at another cost".into());
        }
        Ok(Outputs::new().with("y", zero.output.unwrap_or_default()))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let (ring, len) = Self::sizes_of(case);
        let words = ring.map(|ring| self.0.plain(ring, &self.0.inputs(ring, len, seed).0));
        Outputs::new().with("y", words.unwrap_or_default())
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let (ring, len) = Self::sizes_of(case);
        let mut controls = vec![
            Control::zeros(reference),
            Control::unwritten_tail(reference, 1),
            Control::one_off(reference, "y", len / 2, 1.0),
        ];
        if let Some(ring) = ring {
            let values = self.0.inputs(ring, len, seed).0;
            let (name, words) = self.0.mistaken(ring, &values, &self.0.plain(ring, &values));
            controls.push(Control::new(name, Outputs::new().with("y", words)));
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        let cost = self.cost(case);
        Work { operations: cost.prg_blocks[0], bytes: cost.larger_key_bytes() + cost.traffic_bytes() }
    }
}

struct Compare;

impl Gate for Compare {
    fn name(&self) -> &str {
        "fss/compare"
    }
    fn summary(&self) -> &str {
        "1[x < 0] of masked x: one point function, one walk"
    }
    fn sizes(&self) -> Vec<(u32, usize)> {
        vec![(10, 257), (37, 100), (64, 1000)]
    }
    fn inputs(&self, ring: Ring, len: usize, seed: u64) -> (Vec<i64>, i64) {
        let limit = i64::MAX >> (64 - ring.bits());
        let spread = limit as f64 / 3.0 / 4096.0;
        let mut values = normal(len, seed, spread, limit);
        values[..3].copy_from_slice(&[0, -1, limit]);
        (values, limit)
    }
    async fn apply(&self, evaluator: &Evaluator, x: &Wire) -> Result<Share> {
        Ok(evaluator.signs(x, &[0])?.remove(0))
    }
    fn plain(&self, _: Ring, x: &[i64]) -> Vec<u64> {
        x.iter().map(|&x| u64::from(x < 0)).collect()
    }
    fn mistaken(&self, _: Ring, _: &[i64], right: &[u64]) -> (&'static str, Vec<u64>) {
        ("complement", right.iter().map(|bit| bit ^ 1).collect())
    }
}

struct Lut;

impl Lut {
    fn value(index: u64) -> i64 {
        (index as i64 * 977) % 2003 - 1001
    }
}

impl Gate for Lut {
    fn name(&self) -> &str {
        "fss/lut"
    }
    fn summary(&self) -> &str {
        "T[x] of the low bits of masked x: whole domains of 9 and 12 bits"
    }
    fn sizes(&self) -> Vec<(u32, usize)> {
        vec![(9, 300), (12, 200)]
    }
    fn inputs(&self, ring: Ring, len: usize, seed: u64) -> (Vec<i64>, i64) {
        let limit = i64::MAX >> (64 - ring.bits());
        (normal(len, seed, limit as f64 / 2.0 / 4096.0, limit), limit)
    }
    async fn apply(&self, evaluator: &Evaluator, x: &Wire) -> Result<Share> {
        let bits = x.ring().bits();
        let table = Table::new(bits, Self::value)?;
        let found = evaluator.lookup(&x.low_bits(bits)?, &table, Ring::new(50)?).await?;
        evaluator.looked_up(&found)
    }
    fn plain(&self, ring: Ring, x: &[i64]) -> Vec<u64> {
        let word = |x: &i64| Self::value(ring.encode((*x).into())) as u64 & ((1 << 50) - 1);
        x.iter().map(word).collect()
    }
    fn mistaken(&self, ring: Ring, x: &[i64], _: &[u64]) -> (&'static str, Vec<u64>) {
        let next: Vec<i64> = x.iter().map(|x| x + 1).collect();
        ("the neighbouring entry", self.plain(ring, &next))
    }
}

struct Trunc;

impl Gate for Trunc {
    fn name(&self) -> &str {
        "fss/trunc"
    }
    fn summary(&self) -> &str {
        "floor(x / 2^12): with a gap where it is proved, faithful elsewhere, both here"
    }
    fn sizes(&self) -> Vec<(u32, usize)> {
        vec![(37, 200), (50, 500)]
    }
    fn inputs(&self, ring: Ring, len: usize, seed: u64) -> (Vec<i64>, i64) {
        let limit = (1 << (ring.bits() - 2)) - 1;
        (normal(len, seed, limit as f64 / 3.0 / 4096.0, limit), limit)
    }
    async fn apply(&self, evaluator: &Evaluator, x: &Wire) -> Result<Share> {
        let gap = evaluator.gap_truncate(x, FRACTION, x.ring()).await?;
        let faithful = evaluator.faithful_truncate(x, FRACTION, x.ring()).await?;
        Share::concat(&[&gap, &faithful])
    }
    fn plain(&self, ring: Ring, x: &[i64]) -> Vec<u64> {
        encode(ring, x.iter().chain(x).map(|x| x >> FRACTION))
    }
    fn mistaken(&self, ring: Ring, x: &[i64], _: &[u64]) -> (&'static str, Vec<u64>) {
        ("rounded towards zero", encode(ring, x.iter().chain(x).map(|x| x / 4096)))
    }
}

struct Gelu;

impl Gate for Gelu {
    fn name(&self) -> &str {
        "fss/gelu"
    }
    fn summary(&self) -> &str {
        "GELU by one comparison key, one short truncation and one table"
    }
    fn sizes(&self) -> Vec<(u32, usize)> {
        vec![(37, 100), (50, 1000)]
    }
    fn inputs(&self, _: Ring, len: usize, seed: u64) -> (Vec<i64>, i64) {
        let limit = 1 << 22;
        (normal(len, seed, 3.0, limit), limit)
    }
    async fn apply(&self, evaluator: &Evaluator, x: &Wire) -> Result<Share> {
        Activation::gelu(FRACTION)?.apply(evaluator, x).await
    }
    /// max(x, 0) less the middle of what is missing over a run of 64 neighbours, within ±4.
    fn plain(&self, ring: Ring, x: &[i64]) -> Vec<u64> {
        let missing = |x: i64| (x.max(0) as f64) - reference::gelu(x as f64 / 4096.0) * 4096.0;
        let value = |&x: &i64| {
            if !(-4 << FRACTION..4 << FRACTION).contains(&x) {
                return x.max(0);
            }
            let first = x >> 6 << 6;
            let run: Vec<f64> = (first..first + 64).map(missing).collect();
            let (lo, hi) = run.iter().fold((f64::MAX, f64::MIN), |(lo, hi), &x| (lo.min(x), hi.max(x)));
            x.max(0) - ((lo + hi) / 2.0).round() as i64
        };
        encode(ring, x.iter().map(value))
    }
    fn mistaken(&self, ring: Ring, x: &[i64], _: &[u64]) -> (&'static str, Vec<u64>) {
        ("ReLU", encode(ring, x.iter().map(|&x| x.max(0))))
    }
}

struct SoftmaxRows;

/// Elements of a row.
const ROW: usize = 16;

impl SoftmaxRows {
    /// e^−x with 12 fractional bits, as two factors of 14 bits.
    fn exponential(x: i64) -> i64 {
        let factor = |steps: i64| (reference::exp(-(steps as f64) / 4096.0) * 16384.0).round() as i64;
        if x >= 16 << FRACTION { 0 } else { (factor(x >> 8 << 8) * factor(x & 255) + (1 << 15)) >> 16 }
    }
}

impl Gate for SoftmaxRows {
    fn name(&self) -> &str {
        "fss/softmax"
    }
    fn summary(&self) -> &str {
        "softmax of rows of 16: maxima, exponentials, reciprocals, products"
    }
    fn sizes(&self) -> Vec<(u32, usize)> {
        vec![(37, 4 * ROW), (50, 16 * ROW)]
    }
    fn inputs(&self, _: Ring, len: usize, seed: u64) -> (Vec<i64>, i64) {
        let limit = 1 << 20;
        (normal(len, seed, 2.0, limit), limit)
    }
    async fn apply(&self, evaluator: &Evaluator, x: &Wire) -> Result<Share> {
        let rows = Rows::full(x.len() / ROW, ROW)?;
        Softmax::new(rows, FRACTION)?.apply(evaluator, x, x.ring()).await
    }
    fn plain(&self, ring: Ring, x: &[i64]) -> Vec<u64> {
        let row = |row: &[i64]| {
            let largest = row.iter().copied().max().unwrap_or(0);
            let powers: Vec<i64> = row.iter().map(|x| Self::exponential(largest - x)).collect();
            // Sums up to 16 have 17 bits, of which the table sees all but the last.
            let first = powers.iter().sum::<i64>() >> 1 << 1;
            let exact = |x: i64| 16_777_216.0 / x as f64;
            let reciprocal = ((exact(first) + exact(first + 1)) / 2.0).round() as i64;
            powers.into_iter().map(|power| (power * reciprocal + 2048) >> FRACTION).collect::<Vec<_>>()
        };
        encode(ring, x.chunks(ROW).flat_map(row))
    }
    fn mistaken(&self, ring: Ring, x: &[i64], _: &[u64]) -> (&'static str, Vec<u64>) {
        let turned: Vec<i64> = x.iter().map(|x| -x).collect();
        ("softmin", self.plain(ring, &turned))
    }
}

struct Relu;

impl Gate for Relu {
    fn name(&self) -> &str {
        "fss/relu"
    }
    fn summary(&self) -> &str {
        "max(x, 0): a comparison of as many bits as the bound leaves, and a selection"
    }
    fn sizes(&self) -> Vec<(u32, usize)> {
        vec![(50, 500)]
    }
    fn inputs(&self, _: Ring, len: usize, seed: u64) -> (Vec<i64>, i64) {
        let limit = 1 << 15;
        (normal(len, seed, 1.0, limit), limit)
    }
    async fn apply(&self, evaluator: &Evaluator, x: &Wire) -> Result<Share> {
        relu(evaluator, x).await
    }
    fn plain(&self, ring: Ring, x: &[i64]) -> Vec<u64> {
        encode(ring, x.iter().map(|&x| x.max(0)))
    }
    fn mistaken(&self, ring: Ring, x: &[i64], _: &[u64]) -> (&'static str, Vec<u64>) {
        ("identity", encode(ring, x.iter().copied()))
    }
}
