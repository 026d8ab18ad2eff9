//! What the performance gate times: a candidate and the baseline it is held against.

use std::collections::BTreeMap;

use gatework_gpu::Stream;
use serde::{Deserialize, Serialize};

use crate::case::{Case, RunError, Work};
use crate::evidence::Evidence;
use crate::roofline::Arithmetic;
use crate::stats::Expectation;

/// Queues one run on a stream. Its inputs lie on the device already.
pub type Queue = Box<dyn FnMut(&Stream) -> Result<(), RunError>>;

/// Prepares a run. It is not timed.
pub type Prepare = Box<dyn FnMut() -> Result<(), RunError>>;

/// One of the two that are timed.
pub struct Side {
    /// A short name: `device-to-device copy`.
    pub name: String,
    pub(crate) queue: Queue,
    pub(crate) prepare: Option<Prepare>,
}

impl Side {
    /// What `queue` queues. Its error is the runtime's or an engine's own.
    pub fn new<E: Into<RunError>>(
        name: impl Into<String>,
        mut queue: impl FnMut(&Stream) -> Result<(), E> + 'static,
    ) -> Self {
        let queue = move |stream: &Stream| queue(stream).map_err(Into::into);
        Self { name: name.into(), queue: Box::new(queue), prepare: None }
    }

    /// With something to do before every run that is not timed.
    pub fn prepared_by<E: Into<RunError>>(
        self,
        mut prepare: impl FnMut() -> Result<(), E> + 'static,
    ) -> Self {
        Self { prepare: Some(Box::new(move || prepare().map_err(Into::into))), ..self }
    }

    /// Runs it once, to the end.
    pub fn run(&mut self, stream: &Stream) -> Result<(), RunError> {
        if let Some(prepare) = &mut self.prepare {
            prepare()?;
        }
        (self.queue)(stream)?;
        Ok(stream.synchronize()?)
    }
}

/// How a run is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Timing {
    /// Device time of a replayed graph that holds so many runs.
    Graph {
        /// Runs in the graph.
        repeats: u32,
    },
    /// Device time around so many runs, each launched by the host while the device is still busy with earlier
    /// work.
    Launches {
        /// Runs between the two events.
        count: u32,
    },
    /// Host time from the first call until the stream is idle.
    Wall,
}

impl Timing {
    /// Runs in one sample.
    pub(crate) fn runs(self) -> u32 {
        match self {
            Self::Graph { repeats: runs } | Self::Launches { count: runs } => runs.max(1),
            Self::Wall => 1,
        }
    }
}

/// How much of the inputs may lie in the level-2 cache when a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// What the run before left there.
    Warm,
    /// Nothing: the workload is bound by memory. Data of several times the cache evicts itself; smaller data
    /// is evicted before every sample.
    Cold,
}

/// A promise about counts that grow while the benchmark runs, as hits and requests of a pool.
pub struct Rate {
    /// The name of the rate: `pool hits`.
    pub name: String,
    /// The least share that keeps the promise.
    pub at_least: f64,
    /// How often it happened so far, and how often it could have.
    pub(crate) counts: Box<dyn Fn() -> (u64, u64)>,
}

/// The same operation for another program to run, see [`crate::peers`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerRequest {
    /// The operation by the name that peers know it by.
    pub operation: String,
    /// Sizes by name.
    pub shape: BTreeMap<String, u64>,
}

/// A benchmark, ready to run: inputs on the device, kernels loaded.
pub struct Bench {
    pub(crate) work: Work,
    pub(crate) candidate: Side,
    pub(crate) baseline: Side,
    pub(crate) timing: Timing,
    pub(crate) cache: Cache,
    pub(crate) arithmetic: Option<Arithmetic>,
    /// Bytes that cross the link between host and device.
    pub(crate) link_bytes: u64,
    pub(crate) expectation: Option<Expectation>,
    pub(crate) rates: Vec<Rate>,
    pub(crate) peers: Vec<PeerRequest>,
    pub(crate) evidence: Option<Evidence>,
    pub(crate) recorded: Option<Expectation>,
}

impl Bench {
    /// A candidate that does `work`, against a baseline; as single launches, with a warm cache.
    pub fn new(work: Work, candidate: Side, baseline: Side) -> Self {
        Self {
            work,
            candidate,
            baseline,
            timing: Timing::Launches { count: 1 },
            cache: Cache::Warm,
            arithmetic: None,
            link_bytes: 0,
            expectation: None,
            rates: Vec::new(),
            peers: Vec::new(),
            evidence: None,
            recorded: None,
        }
    }

    /// Timed in another way.
    pub fn timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// Bound by memory: nothing of the inputs is in the cache when a run begins.
    pub fn cold(self) -> Self {
        Self { cache: Cache::Cold, ..self }
    }

    /// With the units that do its operations, for the roofline.
    pub fn arithmetic(self, arithmetic: Arithmetic) -> Self {
        Self { arithmetic: Some(arithmetic), ..self }
    }

    /// With bytes that a run must bring from the host to the device: the floor is then their time over the
    /// link, as it was measured in the same run, for wall times too.
    pub fn over_link(self, bytes: u64) -> Self {
        Self { link_bytes: bytes, ..self }
    }

    /// With the promise that the candidate takes at most `at_most` times the baseline's time.
    pub fn expect_at_most(self, at_most: f64, why: impl Into<String>) -> Self {
        Self { expectation: Some(Expectation { at_most, why: why.into() }), ..self }
    }

    /// With the promise that the candidate takes at most `at_most` times its fastest recorded time on a
    /// device of the same name. For a candidate that nothing but itself could be the baseline of.
    pub fn expect_recorded(self, at_most: f64, why: impl Into<String>) -> Self {
        Self { recorded: Some(Expectation { at_most, why: why.into() }), ..self }
    }

    /// With what shows that the candidate did its work. The performance gate refuses a benchmark without.
    pub fn shown_by(self, evidence: Evidence) -> Self {
        Self { evidence: Some(evidence), ..self }
    }

    /// With a promise about counts; `counts` returns how often it happened so far, and how often it could
    /// have.
    pub fn expect_rate(
        mut self,
        name: impl Into<String>,
        at_least: f64,
        counts: impl Fn() -> (u64, u64) + 'static,
    ) -> Self {
        self.rates.push(Rate { name: name.into(), at_least, counts: Box::new(counts) });
        self
    }

    /// With an operation of the same shape for peers.
    pub fn peer(mut self, operation: impl Into<String>, case: &Case) -> Self {
        self.peers.push(PeerRequest { operation: operation.into(), shape: case.dimensions.clone() });
        self
    }

    /// Runs the candidate once on spoiled outputs; an error says what is wrong with what it left, or that
    /// nothing shows it.
    pub fn try_out(mut self, stream: &Stream) -> Result<(), RunError> {
        let Some(evidence) = &mut self.evidence else {
            return Err("nothing shows what the candidate computed".into());
        };
        // Once before, because a first run may set up what is spoiled.
        self.candidate.run(stream)?;
        evidence.spoil(stream)?;
        self.candidate.run(stream)?;
        evidence.refusal(stream, 1)?.map_or(Ok(()), |why| Err(why.into()))
    }

    /// The candidate alone, for a profiler, or to be held against another.
    pub fn into_candidate(self) -> Side {
        self.candidate
    }

    /// The same benchmark with another baseline and no promise about time.
    pub fn against(self, baseline: Side) -> Self {
        Self { baseline, expectation: None, recorded: None, ..self }
    }
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bench({} against {}, {:?})", self.candidate.name, self.baseline.name, self.timing)
    }
}
