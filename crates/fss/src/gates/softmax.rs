//! Softmax over full, causal and ragged rows.

use crate::bound::Bound;
use crate::error::Result;
use crate::evaluator::Evaluator;
use crate::formula::View;
use crate::ring::Ring;
use crate::tensor::{Share, Wire};

use super::exponential::NegativeExponential;
use super::maximum::row_maxima;
use super::reciprocal::Reciprocal;
use super::rows::Rows;

/// p_j = e^(x_j − max x) / Σ_k e^(x_k − max x) over every row, with f fractional bits.
///
/// A tree of maxima, [`NegativeExponential`], a sum, [`Reciprocal`], a product with it, a rounding. Past the
/// maxima everything runs in rings just wide enough for probabilities, not in the model's.
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
    pub async fn apply(&self, evaluator: &Evaluator, x: &Wire, out: Ring) -> Result<Share> {
        // Differences of two values need one bit more than the values.
        let bits = (x.bound().signed_bits() + 1).max(self.fraction + 6);
        let x = if bits < x.ring().bits() { x.narrow(bits)? } else { x.clone() };
        let maxima = row_maxima(evaluator, &x, &self.rows).await?;
        let row_of = self.rows.row_of()?;
        let below = maxima.gather(&row_of)?.minus(&x)?;
        let range = x.bound().hi() - x.bound().lo();
        let below = evaluator.claim("a distance from the maximum", below, Bound::proved(0, range))?;

        let longest = self.rows.longest() as u64;
        let sum_bits = self.fraction + (u64::BITS - longest.leading_zeros()) + 1;
        let ring = Ring::new(sum_bits.max(2 * self.fraction + 2))?;
        let powers = evaluator.open(self.exponential.apply(evaluator, &below, ring).await?).await?;
        let sums = powers.ragged_sums(self.rows.lengths())?;
        // The largest element of a row contributes exactly one.
        let one = 1i128 << self.fraction;
        let sums =
            evaluator.claim("a sum of exponentials", sums, Bound::proved(one, one * i128::from(longest)))?;
        let shares = self.reciprocal.apply(evaluator, &sums, ring).await?;
        let products = evaluator.scale_rows(&powers, &shares, &View::Places(row_of), None)?;
        let rounded = evaluator.offset_share(&products, one / 2)?;
        evaluator.gap_truncate(&evaluator.open(rounded).await?, self.fraction, out).await
    }
}
