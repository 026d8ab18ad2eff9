//! Times of one thing, and what they come to.

use serde::{Deserialize, Serialize, Serializer};

/// Times in nanoseconds, in the order they were taken.
///
/// A record keeps every one, to a tenth of a nanosecond, so that later comparisons need no assumption about
/// them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Samples {
    nanoseconds: Vec<f64>,
}

impl Serialize for Samples {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.nanoseconds.iter().map(|value| (value * 10.0).round() / 10.0))
    }
}

impl From<Vec<f64>> for Samples {
    fn from(nanoseconds: Vec<f64>) -> Self {
        Self { nanoseconds }
    }
}

impl Samples {
    /// Adds one.
    pub fn push(&mut self, nanoseconds: f64) {
        self.nanoseconds.push(nanoseconds);
    }

    /// All of them.
    pub fn values(&self) -> &[f64] {
        &self.nanoseconds
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.nanoseconds.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nanoseconds.is_empty()
    }

    /// Median, quantiles and spread; none of no samples.
    pub fn summary(&self) -> Option<Summary> {
        let sorted = sorted(&self.nanoseconds)?;
        let median = quantile_of_sorted(&sorted, 0.5);
        let deviations: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
        let deviation = self::median(&deviations)?;
        Some(Summary {
            samples: sorted.len(),
            minimum_ns: sorted[0],
            median_ns: median,
            p90_ns: quantile_of_sorted(&sorted, 0.9),
            p99_ns: quantile_of_sorted(&sorted, 0.99),
            deviation_ns: deviation,
            relative_spread: if median > 0.0 { NORMAL_DEVIATION * deviation / median } else { 0.0 },
        })
    }
}

/// The standard deviation of a normal distribution, in median absolute deviations.
const NORMAL_DEVIATION: f64 = 1.482_602_218_505_602;

/// Quantiles of samples. There is no mean: one outlier decides it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many.
    pub samples: usize,
    /// The least.
    pub minimum_ns: f64,
    /// Half are below.
    pub median_ns: f64,
    /// Nine in ten are below.
    pub p90_ns: f64,
    /// 99 in a hundred are below.
    pub p99_ns: f64,
    /// Median absolute deviation from the median.
    pub deviation_ns: f64,
    /// The same over the median, scaled so that it is the relative standard deviation of normal noise.
    pub relative_spread: f64,
}

/// The median; none of nothing, and none if a value is no number.
///
/// ```
/// use gatework_lab::stats::median;
/// assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
/// assert_eq!(median(&[]), None);
/// ```
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which the fraction `q` lies, linear between neighbours.
///
/// ```
/// use gatework_lab::stats::quantile;
/// assert_eq!(quantile(&[10.0, 20.0, 30.0, 40.0, 50.0], 0.9), Some(46.0));
/// ```
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    Some(quantile_of_sorted(&sorted(values)?, q))
}

/// The values in order; none of nothing, and none if one is no number.
pub(super) fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let place = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_consecutive_numbers_has_a_closed_form() {
        let summary = Samples::from((0..=1000).map(f64::from).collect::<Vec<_>>()).summary().unwrap();
        assert_eq!((summary.minimum_ns, summary.median_ns), (0.0, 500.0));
        assert_eq!((summary.p90_ns, summary.p99_ns), (900.0, 990.0));
        // |x - 500| of 0..=1000 is 0 once and every number from 1 to 500 twice: its median is 250.
        assert_eq!(summary.deviation_ns, 250.0);
        assert!((summary.relative_spread - NORMAL_DEVIATION / 2.0).abs() < 1e-12);
    }

    #[test]
    fn one_outlier_moves_neither_median_nor_spread() {
        let mut samples = Samples::from(vec![100.0; 99]);
        samples.push(1e9);
        let summary = samples.summary().unwrap();
        assert_eq!((summary.median_ns, summary.relative_spread), (100.0, 0.0));
    }

    #[test]
    fn what_is_no_number_has_no_median() {
        assert_eq!(median(&[1.0, f64::NAN]), None);
        assert_eq!(Samples::default().summary(), None);
    }

    #[test]
    fn samples_are_stored_to_a_tenth_of_a_nanosecond() {
        let samples = Samples::from(vec![1234.5678, 7.0]);
        assert_eq!(serde_json::to_string(&samples).unwrap(), "[1234.6,7.0]");
    }
}
