//! Gates of one input, each with the plainest code for it.

use gatework_lab::KernelSpec;

use crate::cuda::specs;
use crate::gates::{Activation, Rows, Softmax, relu};
use crate::table::Table;
use crate::{Evaluator, Result, Ring, Share, Wire, reference};

use super::{FRACTION, Gate, encode, normal};

#[derive(Clone, Copy)]
pub(super) struct Sign;

impl Gate for Sign {
    fn name(&self) -> &str {
        "fss/sign"
    }
    fn summary(&self) -> &str {
        "1[x < 0] of masked x: one point function, one walk"
    }
    fn sizes(&self) -> Vec<(u32, usize)> {
        vec![(10, 257), (37, 100), (64, 67)]
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

#[derive(Clone, Copy)]
pub(super) struct Lut;

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
    fn kernels(&self) -> Vec<KernelSpec> {
        specs::arithmetic().into_iter().chain(specs::lookup()).collect()
    }
    fn sizes(&self) -> Vec<(u32, usize)> {
        vec![(9, 300), (12, 21)]
    }
    fn timed(&self) -> Vec<(u32, usize)> {
        vec![(9, 128 * 3072), (12, 128 * 128)]
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

#[derive(Clone, Copy)]
pub(super) struct Trunc;

impl Gate for Trunc {
    fn name(&self) -> &str {
        "fss/trunc"
    }
    fn summary(&self) -> &str {
        "floor(x / 2^12): with a gap where it is proved, faithful elsewhere, both here"
    }
    fn sizes(&self) -> Vec<(u32, usize)> {
        vec![(37, 50), (50, 101)]
    }
    fn timed(&self) -> Vec<(u32, usize)> {
        vec![(50, 128 * 768)]
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

#[derive(Clone, Copy)]
pub(super) struct Gelu;

impl Gate for Gelu {
    fn name(&self) -> &str {
        "fss/gelu"
    }
    fn summary(&self) -> &str {
        "GELU by one comparison key, one short truncation and one table"
    }
    fn sizes(&self) -> Vec<(u32, usize)> {
        vec![(37, 30), (50, 101)]
    }
    fn timed(&self) -> Vec<(u32, usize)> {
        vec![(50, 128 * 3072)]
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

#[derive(Clone, Copy)]
pub(super) struct SoftmaxRows;

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
        vec![(37, 2 * ROW), (50, 3 * ROW)]
    }
    fn timed(&self) -> Vec<(u32, usize)> {
        vec![(50, 12 * 128 * 128)]
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

#[derive(Clone, Copy)]
pub(super) struct Relu;

impl Gate for Relu {
    fn name(&self) -> &str {
        "fss/relu"
    }
    fn summary(&self) -> &str {
        "max(x, 0): a comparison of as many bits as the bound leaves, and a selection"
    }
    fn sizes(&self) -> Vec<(u32, usize)> {
        vec![(50, 101)]
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
