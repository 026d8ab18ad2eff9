//! Times one side of a benchmark.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gatework_gpu::{Error, Graph, GraphKernel, Stream};

use super::shield::Shield;
use crate::bench::{Cache, Prepare, Queue, Side, Timing};
use crate::case::RunError;

type Result<T> = std::result::Result<T, RunError>;

/// Data this many times the level-2 cache leaves nothing of a run's beginning for the next run.
const EVICTS_ITSELF: u64 = 4;

/// What goes before the timed part of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lead {
    /// The shield, then one run that is not timed: the cache holds what a run leaves, and the device is busy.
    ShieldAndRun,
    /// The shield alone: it empties the cache.
    Shield,
    /// Nothing: the host's own time counts.
    Idle,
}

impl Lead {
    /// What a benchmark asks for that moves `bytes` on a device with a cache of `l2_bytes`.
    pub(super) fn of(timing: Timing, cache: Cache, bytes: u64, l2_bytes: u64) -> Self {
        match (timing, cache) {
            (Timing::Wall, _) => Self::Idle,
            (_, Cache::Cold) if bytes < EVICTS_ITSELF * l2_bytes => Self::Shield,
            _ => Self::ShieldAndRun,
        }
    }
}

/// One side, ready to be timed again and again.
pub(super) struct Timer {
    body: Body,
    prepare: Option<Prepare>,
    timing: Timing,
    lead: Lead,
}

enum Body {
    Graph(Graph),
    Queue(Queue),
}

impl Timer {
    /// Captures the side's graph if it is timed as one.
    pub(super) fn new(mut side: Side, timing: Timing, lead: Lead, stream: &Stream) -> Result<Self> {
        if let Timing::Graph { .. } = timing {
            // Once outside the capture: what a first run loads cannot be captured.
            side.run(stream)?;
        }
        let Side { name, mut queue, prepare } = side;
        let body = match timing {
            Timing::Graph { .. } => {
                let runs = timing.runs();
                let broken = |error: RunError| match error.downcast() {
                    Ok(runtime) => *runtime,
                    Err(other) => Error::Capture { call: name.clone(), reason: other.to_string() },
                };
                Body::Graph(
                    stream.capture(|stream| (0..runs).try_for_each(|_| queue(stream)).map_err(broken))?,
                )
            }
            Timing::Launches { .. } | Timing::Wall => Body::Queue(queue),
        };
        Ok(Self { body, prepare, timing, lead })
    }

    /// One sample: nanoseconds of one run.
    pub(super) fn sample(&mut self, stream: &Stream, shield: &mut Shield) -> Result<f64> {
        if let Some(prepare) = &mut self.prepare {
            prepare()?;
        }
        match self.lead {
            Lead::Idle => self.host_time(stream),
            Lead::Shield => {
                shield.queue(stream)?;
                self.device_time(stream)
            }
            Lead::ShieldAndRun => {
                shield.queue(stream)?;
                self.queue(stream)?;
                self.device_time(stream)
            }
        }
    }

    /// The kernels of a side that is timed as a graph, by binary and name; none where a side is queued anew.
    pub(super) fn kernels(&self) -> Option<BTreeSet<(String, String)>> {
        let Body::Graph(graph) = &self.body else { return None };
        let identity = |node: &GraphKernel| (node.kernel().info().hash.clone(), node.name.clone());
        Some(graph.kernels().iter().map(identity).collect())
    }

    /// Runs of one sample, those before the timed part included.
    pub(super) fn runs_of_sample(&self) -> u32 {
        match (&self.body, self.lead) {
            (Body::Graph(_), Lead::ShieldAndRun) => 2 * self.timing.runs(),
            (Body::Queue(_), Lead::ShieldAndRun) => 1 + self.timing.runs(),
            _ => self.timing.runs(),
        }
    }

    fn device_time(&mut self, stream: &Stream) -> Result<f64> {
        let start = stream.record()?;
        match (&self.body, self.timing) {
            (Body::Queue(_), Timing::Launches { count }) => {
                (0..count.max(1)).try_for_each(|_| self.queue(stream))?;
            }
            _ => self.queue(stream)?,
        }
        let end = stream.record()?;
        end.synchronize()?;
        let elsewhere = left_elsewhere(stream)?;
        Ok((end.since(&start)? + elsewhere).as_secs_f64() * 1e9 / f64::from(self.timing.runs()))
    }

    fn host_time(&mut self, stream: &Stream) -> Result<f64> {
        stream.synchronize()?;
        let start = Instant::now();
        self.queue(stream)?;
        stream.synchronize()?;
        let elapsed = start.elapsed();
        Ok((elapsed + left_elsewhere(stream)?).as_secs_f64() * 1e9)
    }

    /// Queues the graph, or one run.
    fn queue(&mut self, stream: &Stream) -> Result<()> {
        match &mut self.body {
            Body::Graph(graph) => Ok(graph.launch(stream)?),
            Body::Queue(queue) => queue(stream),
        }
    }
}

/// A wait for an idle device takes less.
const IDLE: Duration = Duration::from_micros(100);

/// The time that other streams of the device still work after this one is done: what a run queues there is
/// part of it.
fn left_elsewhere(stream: &Stream) -> Result<Duration> {
    let done = Instant::now();
    stream.device().synchronize()?;
    Ok(Some(done.elapsed()).filter(|rest| *rest > IDLE).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_cold_data_is_evicted_and_large_data_evicts_itself() {
        let graph = Timing::Graph { repeats: 1 };
        assert_eq!(Lead::of(graph, Cache::Cold, 100, 50), Lead::Shield);
        assert_eq!(Lead::of(graph, Cache::Cold, 200, 50), Lead::ShieldAndRun);
        assert_eq!(Lead::of(graph, Cache::Warm, 100, 50), Lead::ShieldAndRun);
        assert_eq!(Lead::of(Timing::Wall, Cache::Cold, 100, 50), Lead::Idle);
    }
}
