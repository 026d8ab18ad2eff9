//! What the performance gate leaves in a record.

use std::collections::BTreeMap;

use gatework_gpu::Clocks;
use serde::{Deserialize, Serialize};

use crate::bench::{Cache, Timing};
use crate::case::Work;
use crate::roofline::Roofline;
use crate::stats::{Expectation, Fulfilment, Interval, Samples, Stop, Summary, Verdict};

/// Every timing of one gating, with the state of the machine around it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PerformanceRecord {
    /// The bandwidth of a device-to-device copy in the same run.
    pub copy_bandwidth: CopyBandwidth,
    /// Clocks and temperature under load, before the first sample.
    pub clocks_before: Option<Clocks>,
    /// Clocks and temperature under load, after the last.
    pub clocks_after: Option<Clocks>,
    /// How far below its highest clock the device ran, if it was far.
    pub throttled: Option<String>,
    /// One for each benchmark.
    pub cases: Vec<BenchRecord>,
}

/// A device-to-device copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CopyBandwidth {
    /// Bytes that were read and written, together.
    pub bytes: u64,
    /// Median time.
    pub median_ns: f64,
    /// Bytes read and written a second.
    pub bytes_per_second: f64,
}

/// One benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchRecord {
    /// The case's name.
    pub case: String,
    /// Sizes by name.
    pub dimensions: BTreeMap<String, u64>,
    /// Bytes and operations of one run.
    pub work: Work,
    /// How runs were timed.
    pub timing: Timing,
    /// How much of the inputs the cache held.
    pub cache: Cache,
    /// The seed of the order within pairs.
    pub seed: u64,
    /// Why sampling stopped.
    pub stopped: Stop,
    /// The times of the candidate.
    pub candidate: SideRecord,
    /// The times of the baseline.
    pub baseline: SideRecord,
    /// Candidate over baseline, pair by pair.
    pub ratio: Option<Interval>,
    /// The verdict on the ratio.
    pub verdict: Verdict,
    /// The workload's promise.
    pub expectation: Option<Expectation>,
    /// Whether the promise was kept.
    pub fulfilment: Option<Fulfilment>,
    /// The promise against the fastest recorded time, and whether it was met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedPromise>,
    /// Whether the baseline launches everything that the candidate does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contains_itself: bool,
    /// Whether the output of timed runs was spoiled, read again and found right. Records of before have no
    /// word on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rechecked: bool,
    /// The distance from the least time the machine allows; none for host time.
    pub roofline: Option<Roofline>,
    /// Work over the candidate's median, in bytes a second.
    pub bytes_per_second: f64,
    /// Work over the candidate's median, in operations a second.
    pub operations_per_second: f64,
    /// Promises about counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateRecord>,
    /// Other programs that did the same in the same run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerRecord>,
}

/// One side of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideRecord {
    /// Its name.
    pub name: String,
    /// Quantiles of its samples.
    pub summary: Summary,
    /// All of them, in the order they were taken; the n-th of both sides are a pair.
    pub samples_ns: Samples,
}

/// A promise against a time of an earlier record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedPromise {
    /// The record of the fastest time; none if the device has no record yet, and this is the first.
    pub record: Option<String>,
    /// How many times that time was promised at most, and why.
    pub expectation: Expectation,
    /// Candidate over record.
    pub ratio: Option<Interval>,
    /// Whether the promise was kept.
    pub fulfilment: Fulfilment,
}

/// A promise about counts, and whether it was met.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateRecord {
    /// The name of the rate.
    pub name: String,
    /// The share, over all samples, the warm-up not counted; none if there was nothing to count.
    pub share: Option<f64>,
    /// The least share that keeps the promise.
    pub at_least: f64,
}

impl RateRecord {
    /// Whether the promise was kept.
    pub fn is_met(&self) -> bool {
        self.share.is_some_and(|share| share >= self.at_least)
    }
}

/// Another program that did the same in the same run, or why it did not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum PeerRecord {
    /// It was measured.
    Measured {
        /// Its name.
        peer: String,
        /// Versions by the name of what has them.
        versions: BTreeMap<String, String>,
        /// The operation it was asked for.
        operation: String,
        /// Quantiles of its samples.
        summary: Summary,
        /// All of them.
        samples_ns: Samples,
        /// Candidate over peer.
        ratio: Option<Interval>,
        /// The verdict on the ratio.
        verdict: Verdict,
    },
    /// It was not.
    NotMeasured {
        /// Its name.
        peer: String,
        /// Why not, as a sentence.
        why: String,
    },
}

impl PeerRecord {
    /// The peer's name.
    pub fn peer(&self) -> &str {
        match self {
            Self::Measured { peer, .. } | Self::NotMeasured { peer, .. } => peer,
        }
    }
}
