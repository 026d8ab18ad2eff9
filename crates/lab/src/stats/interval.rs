//! Intervals of medians and of their ratios, from order statistics.

use serde::{Deserialize, Serialize};

use super::samples::{median, sorted};

/// How sure an interval is unless told otherwise.
pub const CONFIDENCE: f64 = 0.99;

/// Where a quantity lies, with at least the stated confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The best single guess.
    pub estimate: f64,
    /// Not below this.
    pub low: f64,
    /// Not above this.
    pub high: f64,
    /// How often such an interval holds the true value, at least.
    pub confidence: f64,
}

impl Interval {
    /// Half its width, as a part of the estimate.
    pub fn relative_half_width(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.estimate
    }

    /// The interval of a quantity that is this one divided by `divisor`.
    pub fn over(self, divisor: f64) -> Self {
        let Self { estimate, low, high, confidence } = self;
        Self { estimate: estimate / divisor, low: low / divisor, high: high / divisor, confidence }
    }
}

/// The interval of the median of independent values, none if there are too few for that confidence (8 for 99
/// %).
///
/// For any distribution, the number of values below its median is binomial (n, 1/2). So the median lies
/// between the k-th smallest and the k-th largest value unless fewer than k values fell on one side of it; k
/// is the largest for which that is rare enough.
///
/// ```
/// use gatework_lab::stats::median_interval;
/// let values: Vec<f64> = (1..=100).map(f64::from).collect();
/// let interval = median_interval(&values, 0.95).unwrap();
/// assert_eq!((interval.low, interval.high), (40.0, 61.0)); // as in every table of it
/// ```
pub fn median_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    let sorted = sorted(values)?;
    let rank = symmetric_rank(sorted.len(), confidence)?;
    Some(Interval {
        estimate: median(&sorted)?,
        low: sorted[rank - 1],
        high: sorted[sorted.len() - rank],
        confidence,
    })
}

/// The interval of candidate / baseline from pairs that were taken one right after the other.
pub fn paired_ratio(baseline: &[f64], candidate: &[f64], confidence: f64) -> Option<Interval> {
    let ratios: Vec<f64> =
        candidate.iter().zip(baseline).map(|(candidate, baseline)| candidate / baseline).collect();
    median_interval(&ratios, confidence)
}

/// The interval of median(candidate) / median(baseline) for samples of two separate runs.
///
/// Each median gets an interval that fails half as often, and the ratio's reaches from corner to corner: it
/// is wider than need be and never too narrow.
pub fn ratio_of_medians(baseline: &[f64], candidate: &[f64], confidence: f64) -> Option<Interval> {
    let each = 1.0 - (1.0 - confidence) / 2.0;
    let (baseline, candidate) = (median_interval(baseline, each)?, median_interval(candidate, each)?);
    (baseline.low > 0.0).then(|| Interval {
        estimate: candidate.estimate / baseline.estimate,
        low: candidate.low / baseline.high,
        high: candidate.high / baseline.low,
        confidence,
    })
}

/// The largest k with P(Binomial(n, 1/2) < k) <= (1 - confidence) / 2, from 1; none if there is no such k.
fn symmetric_rank(n: usize, confidence: f64) -> Option<usize> {
    let allowed = (1.0 - confidence) / 2.0;
    // In logarithms, because 2^-n is no number any more for long runs.
    let mut log_probability = -(n as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    let mut rank = 0;
    for k in 0..n / 2 {
        below += log_probability.exp();
        if below > allowed {
            break;
        }
        rank = k + 1;
        log_probability += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    (rank > 0).then_some(rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_sign_tests_tables() {
        assert_eq!(symmetric_rank(7, 0.99), None);
        assert_eq!(symmetric_rank(8, 0.99), Some(1));
        assert_eq!(symmetric_rank(20, 0.95), Some(6));
        assert_eq!(symmetric_rank(50, 0.99), Some(16));
        assert_eq!(symmetric_rank(100, 0.95), Some(40));
        assert_eq!(symmetric_rank(100, 0.99), Some(37));
    }

    #[test]
    fn ranks_of_long_runs_follow_the_normal_law() {
        // k = n/2 - z sqrt(n)/2 for large n, with z = 2.5758 at 99 %.
        let rank = symmetric_rank(100_000, 0.99).unwrap() as f64;
        let normal = 50_000.0 - 2.575_829 * 100_000_f64.sqrt() / 2.0;
        assert!((rank - normal).abs() < 2.0, "{rank} {normal}");
    }

    #[test]
    fn a_shared_drift_cancels_in_pairs_and_widens_separate_runs() {
        let drifting =
            |scale: f64| (0..100).map(|i| scale * (1.0 + f64::from(i) / 100.0)).collect::<Vec<_>>();
        let paired = paired_ratio(&drifting(1.0), &drifting(1.1), CONFIDENCE).unwrap();
        assert!((paired.low - 1.1).abs() < 1e-9 && (paired.high - 1.1).abs() < 1e-9);
        let separate = ratio_of_medians(&drifting(1.0), &drifting(1.1), CONFIDENCE).unwrap();
        assert!(separate.low < 1.0 && separate.high > 1.2);
    }

    #[test]
    fn a_ratio_to_a_constant_keeps_its_relative_width() {
        let interval = Interval { estimate: 2.0, low: 1.9, high: 2.1, confidence: 0.99 };
        let halved = interval.over(2.0);
        assert_eq!((halved.estimate, halved.low, halved.high), (1.0, 0.95, 1.05));
        assert!((halved.relative_half_width() - interval.relative_half_width()).abs() < 1e-12);
    }
}
