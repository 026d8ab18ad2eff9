//! What samples say, whatever the noise looks like: quantiles, intervals that assume no distribution, and
//! verdicts.
//!
//! The interval of a median lies between two order statistics. How often the true median falls between them
//! follows from the binomial distribution alone, so that heavy tails and outliers cost width and never
//! coverage. Baseline and candidate are sampled in pairs, one right after the other in random order, and the
//! ratio is taken pair by pair: a drift of the clocks moves both and cancels.

mod interval;
mod samples;
#[cfg(test)]
mod simulation;
mod stopping;
mod verdict;

pub use interval::{CONFIDENCE, Interval, median_interval, paired_ratio, ratio_of_medians};
pub use samples::{Samples, Summary, median, quantile};
pub(crate) use stopping::LEAST_PAIRS;
pub use stopping::{Stop, StopRule};
pub use verdict::{BETWEEN_RUNS, Expectation, Fulfilment, Verdict, WITHIN_RUN};
