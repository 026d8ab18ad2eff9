//! Softmax over full, causal and ragged rows.

use crate::bound::Bound;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ring::Ring;
use crate::tensor::{Share, Wire};

use super::exponential::NegativeExponential;
use super::maximum::row_maxima;
use super::reciprocal::Reciprocal;

/// Rows of public lengths, one after the other without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    lengths: Vec<usize>,
}

impl Rows {
    /// Rows of these lengths, each at least one.
    pub fn ragged(lengths: Vec<usize>) -> Result<Self> {
        if lengths.is_empty() || lengths.contains(&0) {
            return Err(Error::Shape { gate: "rows", what: "a row without elements".into() });
        }
        Ok(Self { lengths })
    }

    /// `rows` rows of `width`.
    pub fn full(rows: usize, width: usize) -> Result<Self> {
        Self::ragged(vec![width; rows])
    }

    /// The lower triangle of `heads` square matrices: row i has i + 1 elements.
    pub fn causal(heads: usize, rows: usize) -> Result<Self> {
        Self::ragged((0..heads).flat_map(|_| 1..=rows).collect())
    }

    /// Length of each row.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Elements of all rows.
    pub fn elements(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Elements of the longest row.
    pub fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    /// The row of each element.
    pub fn row_of(&self) -> Vec<usize> {
        let rows = self.lengths.iter().enumerate();
        rows.flat_map(|(row, &length)| std::iter::repeat_n(row, length)).collect()
    }

    /// Where these rows' elements are in a matrix of rows of `width`.
    pub fn places_in(&self, width: usize) -> Vec<usize> {
        let rows = self.lengths.iter().enumerate();
        rows.flat_map(|(row, &length)| row * width..row * width + length).collect()
    }
}

/// p_j = e^(x_j − max x) / Σ_k e^(x_k − max x) over every row, with f fractional bits.
///
/// A tree of maxima, [`NegativeExponential`], a sum, [`Reciprocal`], a product with it, a rounding. Past the maxima everything
/// runs in rings just wide enough for probabilities, not in the model's.
#[derive(Debug, Clone)]
pub struct Softmax {
    rows: Rows,
    fraction: u32,
    exponential: NegativeExponential,
    reciprocal: Reciprocal,
}

impl Softmax {
    /// The softmax of `rows` with `fraction` fractional bits.
    pub fn new(rows: Rows, fraction: u32) -> Result<Self> {
        let exponential = NegativeExponential::new(fraction)?;
        let reciprocal = Reciprocal::new(fraction, rows.longest() as u64)?;
        Ok(Self { rows, fraction, exponential, reciprocal })
    }

    /// The rows.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Probabilities of every element, in the ring `out`.
    pub async fn apply(&self, engine: &Engine, x: &Wire, out: Ring) -> Result<Share> {
        // Differences of two values need one bit more than the values.
        let bits = (x.bound().signed_bits() + 1).max(self.fraction + 6);
        let x = if bits < x.ring().bits() { x.narrow(bits)? } else { x.clone() };
        let maxima = row_maxima(engine, &x, &self.rows).await?;
        let row_of = self.rows.row_of();
        let below = maxima.gather(&row_of)?.minus(&x)?;
        let range = x.bound().hi() - x.bound().lo();
        let below = engine.claim("a distance from the maximum", below, Bound::proved(0, range))?;

        let longest = self.rows.longest() as u64;
        let sum_bits = self.fraction + (u64::BITS - longest.leading_zeros()) + 1;
        let ring = Ring::new(sum_bits.max(2 * self.fraction + 2))?;
        let powers = engine.open(self.exponential.apply(engine, &below, ring).await?).await?;
        let sums = self.row_sums(&powers)?;
        // The largest element of a row contributes exactly one.
        let one = 1i128 << self.fraction;
        let sums =
            engine.claim("a sum of exponentials", sums, Bound::proved(one, one * i128::from(longest)))?;
        let shares = self.reciprocal.apply(engine, &sums, ring).await?;
        let products = engine.scale_rows(&powers, &shares, &row_of, None)?;
        let rounded = engine.offset_share(&products, one / 2)?;
        engine.gap_truncate(&engine.open(rounded).await?, self.fraction, out).await
    }

    fn row_sums(&self, x: &Wire) -> Result<Wire> {
        let mut start = 0;
        let mut words = Vec::new();
        for &length in self.rows.lengths() {
            if !x.words.is_empty() {
                let row = &x.words[start..start + length];
                words.push(x.ring().reduce(row.iter().fold(0, |sum, &word| sum.wrapping_add(word))));
            }
            start += length;
        }
        let bound = x.bound().summed(self.rows.longest()).or_zero().in_ring("row sums", x.ring())?;
        Ok(Wire::new(x.ring(), self.rows.lengths().len(), words, bound))
    }
}
