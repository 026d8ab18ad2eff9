//! When there are enough samples.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::interval::{CONFIDENCE, Interval, paired_ratio};
use super::samples::Samples;
use super::verdict::{Expectation, Fulfilment, Verdict, WITHIN_RUN};

/// Fewest pairs, whatever the rule.
pub(crate) const LEAST_PAIRS: usize = 100;
/// Half-width of the interval at which more samples would change nothing.
const NARROW: f64 = 0.005;

/// How long to sample: at least 100 pairs; then until the ratio is known to half a percent and both the
/// verdict and the promise are decided, or the pairs or the time run out.
#[derive(Debug, Clone, Copy)]
pub struct StopRule {
    most_pairs: usize,
    longest: Duration,
}

/// Why sampling stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// The interval of the ratio is within half a percent and nothing is left undecided.
    Decided,
    /// As many pairs as were allowed.
    Pairs,
    /// As long as was allowed.
    Time,
}

impl StopRule {
    /// At most that many pairs (and at least 100), in at most that time once there are 100.
    pub fn new(most_pairs: usize, longest: Duration) -> Self {
        Self { most_pairs: most_pairs.max(LEAST_PAIRS), longest }
    }

    /// Whether to stop now, and why.
    pub fn stop(
        &self,
        baseline: &Samples,
        candidate: &Samples,
        expectation: Option<&Expectation>,
        elapsed: Duration,
    ) -> Option<Stop> {
        let pairs = baseline.len().min(candidate.len());
        if pairs < LEAST_PAIRS {
            return None;
        }
        if pairs >= self.most_pairs {
            return Some(Stop::Pairs);
        }
        if elapsed >= self.longest {
            return Some(Stop::Time);
        }
        let ratio = paired_ratio(baseline.values(), candidate.values(), CONFIDENCE)?;
        is_decided(ratio, expectation).then_some(Stop::Decided)
    }
}

fn is_decided(ratio: Interval, expectation: Option<&Expectation>) -> bool {
    ratio.relative_half_width() <= NARROW
        && Verdict::of(Some(ratio), WITHIN_RUN) != Verdict::Ambiguous
        && expectation.is_none_or(|promise| promise.judge(Some(ratio)) != Fulfilment::Undecided)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(count: usize, value: f64) -> Samples {
        vec![value; count].into()
    }

    fn stop(pairs: usize, ratio: f64, promise: Option<f64>, elapsed: u64) -> Option<Stop> {
        let expectation = promise.map(|at_most| Expectation { at_most, why: String::new() });
        StopRule::new(400, Duration::from_secs(10)).stop(
            &constant(pairs, 100.0),
            &constant(pairs, 100.0 * ratio),
            expectation.as_ref(),
            Duration::from_secs(elapsed),
        )
    }

    #[test]
    fn nothing_stops_before_a_hundred_pairs() {
        assert_eq!(stop(99, 2.0, None, 1000), None);
        assert_eq!(stop(100, 2.0, None, 0), Some(Stop::Decided));
    }

    #[test]
    fn what_is_undecided_goes_on_until_pairs_or_time_run_out() {
        assert_eq!(stop(100, 1.01 + 1e-9, Some(1.01 + 1e-9), 0), Some(Stop::Decided));
        let noisy: Samples =
            (0..200).map(|i| if i % 2 == 0 { 98.0 } else { 103.0 }).collect::<Vec<_>>().into();
        let rule = StopRule::new(400, Duration::from_secs(10));
        let at = |seconds| rule.stop(&constant(200, 100.0), &noisy, None, Duration::from_secs(seconds));
        assert_eq!((at(0), at(10)), (None, Some(Stop::Time)));
        assert_eq!(stop(400, 1.0, None, 0), Some(Stop::Pairs));
    }
}
