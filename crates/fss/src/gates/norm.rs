//! LayerNorm and RMSNorm.

use crate::bound::{Bound, GapProof};
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, join};
use crate::formula::View;
use crate::ops::Weights;
use crate::tensor::{MaskShare, Share, Wire};

use super::floating::FloatingTable;

const GATE: &str = "a normalisation";

/// Wider rows would need a factor 1 / d of more bits than there are.
const LARGEST_WIDTH: usize = 1 << 30;

/// x γ / √(Σ x² / d + ε) over rows of d, with secret γ.
///
/// Sums of squares, [`FloatingTable`], a product with it, a truncation; then the product with γ and its
/// truncation. The product with γ is one with a [`Quotient`](crate::ops::Quotient), which is never opened.
/// Nine rounds with the opening of the result.
///
/// A row's deviation may be as large as the ring allows, and its reciprocal small: the table keeps it with g
/// bits more than numbers have, which the truncation of the product takes away again. They are as many as
/// make it at least one for the largest deviation, whose reciprocal is then as exact as the table's index
/// allows.
#[derive(Debug, Clone)]
pub struct RmsNorm {
    width: usize,
    fraction: u32,
    /// g: bits of the reciprocal deviation below those of numbers.
    guard: u32,
    /// d ε with 2 f fractional bits, at least one.
    epsilon: i128,
    /// log2 below which a row's sum of squares is proved to be.
    sum_bits: u32,
    table: FloatingTable,
}

/// (x − μ) γ / √(Σ (x − μ)² / d + ε) + β over rows of d, with secret γ and β: [`RmsNorm`] of centred rows.
///
/// The sums of squares are opened beside the means, which makes ten rounds with the opening of the result.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    norm: RmsNorm,
}

impl RmsNorm {
    /// Rows of `width` numbers with `fraction` fractional bits, whose sums of squares stay below 2^`sum_bits`
    /// as integers.
    pub fn new(width: usize, fraction: u32, epsilon: f64, sum_bits: u32) -> Result<Self> {
        let scaled = (epsilon * width as f64 * (1u128 << (2 * fraction.min(30))) as f64).round();
        if !(1.0..1e18).contains(&scaled) {
            let what = format!("width {width}, epsilon {epsilon}, {fraction} fractional bits");
            return Err(Error::Unsupported { gate: "a normalisation", what });
        }
        Self::with_units(width, fraction, scaled as u64, sum_bits)
    }

    /// The same with d ε as an integer of 2 f fractional bits, at least one.
    pub fn with_units(width: usize, fraction: u32, epsilon: u64, sum_bits: u32) -> Result<Self> {
        if width == 0 || width > LARGEST_WIDTH || epsilon == 0 || fraction > 20 {
            let what = format!("width {width}, {epsilon} units of epsilon, {fraction} fractional bits");
            return Err(Error::Unsupported { gate: "a normalisation", what });
        }
        let epsilon = i128::from(epsilon);
        let least = 127 - epsilon.leading_zeros();
        let guard = guard_bits(width, fraction, sum_bits);
        // 2^(f+g) / √(u / (d 2^2f)) for u with 2 f fractional bits.
        let (unit, width_root) = ((1u64 << fraction) as f64, (width as f64).sqrt());
        let guarded = (1u64 << (fraction + guard)) as f64;
        let table = FloatingTable::known(
            "norm",
            [width as u64, u64::from(guard) << 32 | u64::from(fraction)],
            [least, sum_bits.saturating_add(1)],
            |u| guarded * width_root * unit / u.sqrt(),
        )?;
        if table.mantissa_bits() == 0 {
            let what = format!("sums of squares below 2^{sum_bits}: its table would have no mantissa");
            return Err(Error::Unsupported { gate: "a normalisation", what });
        }
        Ok(Self { width, fraction, guard, epsilon, sum_bits, table })
    }

    /// Where results before γ lie: |x| / √(Σ x² / d) ≤ √d, and what the table adds.
    fn normal_bound(&self, magnitude: i128, shift: u32) -> Bound {
        let root = ((self.width as f64).sqrt() * (1u64 << self.fraction) as f64).ceil() as i128;
        let product = (root << shift) + (root << shift >> (self.table.mantissa_bits() - 1)) + magnitude;
        Bound::proved(-product, product)
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The norm of every row, in the ring of `x`.
    pub async fn apply(&self, evaluator: &Evaluator, x: &Wire, gamma: &Weights) -> Result<Share> {
        self.apply_within(evaluator, x, gamma, None).await
    }

    /// The same with a tighter proof of the sums of squares than the elements' intervals give, if there is
    /// one.
    pub async fn apply_within(
        &self,
        evaluator: &Evaluator,
        x: &Wire,
        gamma: &Weights,
        squares: Option<Bound>,
    ) -> Result<Share> {
        self.expect_weights(x, gamma)?;
        let mask = evaluator.mask_share(x)?;
        let sums = self.with_epsilon(evaluator, evaluator.square_sums(x, &mask, self.width, squares)?)?;
        let sums = evaluator.open(sums).await?;
        self.scaled(evaluator, x, &sums, gamma).await
    }

    fn expect_weights(&self, x: &Wire, gamma: &Weights) -> Result<()> {
        if gamma.wire().len() != self.width || gamma.wire().ring() != x.ring() {
            return Err(Error::Shape { gate: GATE, what: format!("{x:?} and weights {:?}", gamma.wire()) });
        }
        Ok(())
    }

    /// Sums of squares and d ε.
    fn with_epsilon(&self, evaluator: &Evaluator, sums: Share) -> Result<Share> {
        let bound = sums.bound();
        if bound.lo() < 0 || bound.hi() >= 1 << self.sum_bits {
            let room = format!("sums of squares below 2^{}", self.sum_bits);
            return Err(Error::NotProved { gate: GATE, lo: bound.lo(), hi: bound.hi(), room });
        }
        evaluator.offset_share(&sums, self.epsilon)
    }

    /// x γ / √(u / d) of rows whose sums of squares and d ε are u.
    async fn scaled(&self, evaluator: &Evaluator, x: &Wire, sums: &Wire, gamma: &Weights) -> Result<Share> {
        let scales = self.table.apply(evaluator, sums).await?;
        let shift = self.fraction + self.guard;
        let normal = self.normal_bound(x.bound().magnitude(), shift);
        let scaled =
            evaluator.open(evaluator.scale_rows(x, &scales, &View::Each(self.width), Some(normal))?).await?;
        let ring = x.ring();
        let product = if GapProof::of(&scaled.bound(), ring).is_some() {
            let quotient = evaluator.quotient(&scaled, shift).await?;
            evaluator.quotient_product(&quotient, gamma, &View::Cycle(self.width), ring)?
        } else {
            let scaled = evaluator.open(evaluator.faithful_truncate(&scaled, shift, ring).await?).await?;
            let (gammas, gamma_masks) = self.spread(gamma, x.len())?;
            evaluator.product(&scaled, &evaluator.mask_share(&scaled)?, &gammas, &gamma_masks)?
        };
        evaluator.truncate(&evaluator.open(product).await?, self.fraction, ring).await
    }

    /// The weights of one row, for every row.
    fn spread(&self, weights: &Weights, len: usize) -> Result<(Wire, MaskShare)> {
        let rows = len / self.width;
        Ok((weights.wire().repeat_all(rows)?, weights.mask().repeat_all(rows)?))
    }
}

/// ⌊log2 σ⌋ of the largest deviation σ that sums of squares below 2^`sum_bits` allow, or fewer, so that a
/// product
/// |x| 2^(f+g) / σ ≤ √d 2^(2f+g) stays below 2^`sum_bits`, as the squares do.
fn guard_bits(width: usize, fraction: u32, sum_bits: u32) -> u32 {
    let root = usize::BITS - width.leading_zeros();
    // Twice each logarithm, since roots have halves of them.
    let sum_bits = sum_bits.min(u64::BITS);
    let largest_deviation = sum_bits.saturating_sub(root + 2 * fraction) / 2;
    largest_deviation.min(sum_bits.saturating_sub(root.div_ceil(2) + 2 * fraction + 1))
}

impl LayerNorm {
    /// As [`RmsNorm::new`]; the sums of squares are those of centred rows.
    pub fn new(width: usize, fraction: u32, epsilon: f64, sum_bits: u32) -> Result<Self> {
        Ok(Self { norm: RmsNorm::new(width, fraction, epsilon, sum_bits)? })
    }

    /// As [`RmsNorm::with_units`].
    pub fn with_units(width: usize, fraction: u32, epsilon: u64, sum_bits: u32) -> Result<Self> {
        Ok(Self { norm: RmsNorm::with_units(width, fraction, epsilon, sum_bits)? })
    }

    /// The norm of every row, in the ring of `x`.
    pub async fn apply(
        &self,
        evaluator: &Evaluator,
        x: &Wire,
        gamma: &Weights,
        beta: &Weights,
    ) -> Result<Share> {
        self.apply_within(evaluator, x, gamma, beta, None).await
    }

    /// As [`RmsNorm::apply_within`].
    pub async fn apply_within(
        &self,
        evaluator: &Evaluator,
        x: &Wire,
        gamma: &Weights,
        beta: &Weights,
        squares: Option<Bound>,
    ) -> Result<Share> {
        let (width, ring) = (self.norm.width, x.ring());
        // The mean as a product with 2^t / d, t such that the factor has as many bits as there are fractional
        // ones.
        let shift = self.norm.fraction + (usize::BITS - (width - 1).leading_zeros());
        let factor = ((1u64 << shift) as f64 / width as f64).round() as i64;
        let sums = x.row_sums(width)?.times(factor)?;
        let normal = if GapProof::of(&sums.bound(), ring).is_some() {
            self.norm.expect_weights(x, gamma)?;
            let mean = evaluator.quotient(&sums, shift).await?;
            let mask = evaluator.mask_share(x)?;
            let sums = evaluator.centred_square_sums(x, &mask, &mean, squares)?;
            let sums = self.norm.with_epsilon(evaluator, sums)?;
            let means = evaluator.quotient_share(&mean, ring)?;
            let (sums, means) = join(evaluator.open(sums), evaluator.open(means)).await?;
            let centred = x.minus(&means.repeat_each(width)?)?;
            self.norm.scaled(evaluator, &centred, &sums, gamma).await?
        } else {
            let means = evaluator.open(evaluator.faithful_truncate(&sums, shift, ring).await?).await?;
            let centred = x.minus(&means.repeat_each(width)?)?;
            self.norm.apply_within(evaluator, &centred, gamma, squares).await?
        };
        let (betas, _) = self.norm.spread(beta, x.len())?;
        evaluator.add_wire(&normal, &betas)
    }
}
