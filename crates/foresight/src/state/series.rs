//! The last values of something, and what they look like.

use serde::{Deserialize, Serialize};

/// The last so many values, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Series {
    capacity: usize,
    values: Vec<f64>,
}

/// A line through values, and what is left beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Line {
    pub(super) mean: f64,
    /// Per step.
    pub(super) slope: f64,
    /// The deviation of the rest.
    pub(super) deviation: f64,
    /// The correlation of the rest with itself one step later.
    pub(super) correlation: f64,
    /// The third standardised moment of the rest.
    pub(super) skewness: f64,
}

impl Series {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, values: Vec::with_capacity(capacity) }
    }

    pub(super) fn push(&mut self, value: f64) {
        if self.values.len() == self.capacity {
            self.values.remove(0);
        }
        self.values.push(value);
    }

    /// The newest; 0 before there is any.
    pub(super) fn last(&self) -> f64 {
        self.values.last().copied().unwrap_or(0.0)
    }

    pub(super) fn highest(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The least-squares line through the last `count`.
    pub(super) fn line(&self, count: usize) -> Line {
        let values = &self.values[self.values.len().saturating_sub(count)..];
        let n = values.len() as f64;
        if values.is_empty() {
            return Line::default();
        }
        let mean = values.iter().sum::<f64>() / n;
        let middle = (n - 1.0) / 2.0;
        let spread: f64 = (0..values.len()).map(|i| (i as f64 - middle).powi(2)).sum();
        let tilt: f64 = values.iter().enumerate().map(|(i, x)| (i as f64 - middle) * (x - mean)).sum();
        let slope = if spread > 0.0 { tilt / spread } else { 0.0 };
        let rest = |i: usize| values[i] - mean - slope * (i as f64 - middle);
        let (mut second, mut third, mut beside) = (0.0, 0.0, 0.0);
        for i in 0..values.len() {
            let here = rest(i);
            second += here * here;
            third += here * here * here;
            if i > 0 {
                beside += here * rest(i - 1);
            }
        }
        let deviation = (second / n).sqrt();
        let over = |sum: f64, scale: f64| if scale > 1e-24 { sum / scale } else { 0.0 };
        Line {
            mean,
            slope,
            deviation,
            correlation: over(beside, second),
            skewness: over(third / n, deviation.powi(3)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_what_is_beside_it() {
        let mut series = Series::new(16);
        for i in 0..40 {
            series.push(3.0 - 0.25 * f64::from(i) + if i % 2 == 0 { 0.1 } else { -0.1 });
        }
        let line = series.line(16);
        assert!((line.slope + 0.25).abs() < 0.01 && (line.deviation - 0.1).abs() < 0.01, "{line:?}");
        assert!(line.correlation < -0.8 && line.skewness.abs() < 0.1, "{line:?}");
        assert_eq!(Series::new(4).line(4), Line::default());
    }
}
