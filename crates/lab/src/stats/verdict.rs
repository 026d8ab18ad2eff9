//! What an interval of a ratio means.

use serde::{Deserialize, Serialize};

use super::interval::Interval;

/// Differences that do not count within one run, as a part of 1.
pub const WITHIN_RUN: f64 = 0.01;
/// Differences that do not count between two runs: a new process gets other pages, other clocks, another
/// temperature, and the samples of one run know nothing of that.
pub const BETWEEN_RUNS: f64 = 0.03;

/// How a candidate compares with its baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// The whole interval is below 1 by more than the band.
    Faster,
    /// The whole interval is within the band around 1.
    Same,
    /// The whole interval is above 1 by more than the band.
    Slower,
    /// The interval crosses an edge of the band: the samples do not tell.
    Ambiguous,
}

impl Verdict {
    /// What `ratio`, candidate over baseline, says when differences up to `band` do not count. Without an
    /// interval there were too few samples to tell.
    ///
    /// ```
    /// use gatework_lab::stats::{Interval, Verdict};
    /// let ratio = |low, high| Some(Interval { estimate: (low + high) / 2.0, low, high, confidence: 0.99 });
    /// assert_eq!(Verdict::of(ratio(1.02, 1.04), 0.01), Verdict::Slower);
    /// assert_eq!(Verdict::of(ratio(0.995, 1.005), 0.01), Verdict::Same);
    /// assert_eq!(Verdict::of(ratio(1.005, 1.02), 0.01), Verdict::Ambiguous);
    /// ```
    pub fn of(ratio: Option<Interval>, band: f64) -> Self {
        let Some(Interval { low, high, .. }) = ratio else { return Self::Ambiguous };
        let (faster, slower) = (1.0 - band, 1.0 + band);
        if low > slower {
            Self::Slower
        } else if high < faster {
            Self::Faster
        } else if low >= faster && high <= slower {
            Self::Same
        } else {
            Self::Ambiguous
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Faster => "FASTER",
            Self::Same => "SAME",
            Self::Slower => "SLOWER",
            Self::Ambiguous => "AMBIGUOUS",
        })
    }
}

/// A workload's promise: its candidate takes at most so many times the baseline's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// The largest ratio of candidate to baseline that keeps the promise.
    pub at_most: f64,
    /// Where the number comes from.
    pub why: String,
}

/// Whether a promise was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fulfilment {
    /// The whole interval is at or below the limit.
    Met,
    /// The whole interval is above it: slower than promised.
    Missed,
    /// The limit lies inside the interval.
    Undecided,
}

impl Expectation {
    /// Whether `ratio`, candidate over baseline, meets the promise.
    pub fn judge(&self, ratio: Option<Interval>) -> Fulfilment {
        match ratio {
            Some(Interval { low, .. }) if low > self.at_most => Fulfilment::Missed,
            Some(Interval { high, .. }) if high <= self.at_most => Fulfilment::Met,
            _ => Fulfilment::Undecided,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: f64, high: f64) -> Option<Interval> {
        Some(Interval { estimate: (low + high) / 2.0, low, high, confidence: 0.99 })
    }

    #[test]
    fn the_band_decides_and_its_edges_are_same() {
        assert_eq!(Verdict::of(interval(0.99, 1.01), 0.01), Verdict::Same);
        assert_eq!(Verdict::of(interval(0.90, 0.95), 0.01), Verdict::Faster);
        assert_eq!(Verdict::of(interval(0.95, 1.05), 0.01), Verdict::Ambiguous);
        assert_eq!(Verdict::of(interval(0.985, 0.995), 0.01), Verdict::Ambiguous);
        assert_eq!(Verdict::of(None, 0.01), Verdict::Ambiguous);
    }

    #[test]
    fn a_promise_is_missed_only_if_the_whole_interval_is_above_it() {
        let graph = Expectation { at_most: 0.4, why: String::new() };
        assert_eq!(graph.judge(interval(0.30, 0.40)), Fulfilment::Met);
        assert_eq!(graph.judge(interval(0.39, 0.41)), Fulfilment::Undecided);
        assert_eq!(graph.judge(interval(0.41, 0.45)), Fulfilment::Missed);
        assert_eq!(graph.judge(None), Fulfilment::Undecided);
    }

    #[test]
    fn verdicts_are_written_as_they_are_read() {
        assert_eq!(serde_json::to_string(&Verdict::Ambiguous).unwrap(), "\"AMBIGUOUS\"");
        assert_eq!(Verdict::Slower.to_string(), "SLOWER");
    }
}
