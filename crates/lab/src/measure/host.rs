//! Timing on the CPU: host time of a job, turn by turn with peers that do the same.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use gatework_gpu::Observer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::station::Station;
use super::turns::{self, PeerTurn};
use crate::bench::PeerRequest;
use crate::case::{Case, RunError, Work};
use crate::record::{DeviceRecord, MeasuredRecord, PeerRecord, Record};
use crate::stats::{Samples, Summary};

/// Fewest samples, however long they take: fewer have no median worth the name.
const LEAST_SAMPLES: usize = 5;
/// A turn of either side, at least: what is short is sampled several times before the other's turn.
const TURN: Duration = Duration::from_millis(50);
/// The untimed part of a turn: the other side has used the caches, and a system takes some milliseconds to
/// spread threads that wake up over the cores again.
const WARM_UP: Duration = Duration::from_millis(50);
/// Left between turns, because the threads of either side may spin for a while when their work is done.
const PAUSE: Duration = Duration::from_millis(20);
/// Most samples of a turn.
const MOST_OF_TURN: f64 = 100.0;

/// One step of a job: its run, or what makes the next one possible.
type Step = Box<dyn FnMut() -> Result<(), RunError>>;

/// A job on the CPU, its inputs in memory.
pub struct HostBench {
    name: String,
    work: Work,
    prepare: Step,
    run: Step,
    peers: Vec<PeerRequest>,
}

impl HostBench {
    /// A job called `name`, of which one `run` must do `work`.
    pub fn new(
        name: impl Into<String>,
        work: Work,
        run: impl FnMut() -> Result<(), RunError> + 'static,
    ) -> Self {
        let (prepare, run) = (Box::new(|| Ok(())), Box::new(run));
        Self { name: name.into(), work, prepare, run, peers: Vec::new() }
    }

    /// With something that is done before every run and is not timed.
    pub fn prepared_by(self, prepare: impl FnMut() -> Result<(), RunError> + 'static) -> Self {
        Self { prepare: Box::new(prepare), ..self }
    }

    /// With peers that do the same in turn.
    pub fn peers(self, peers: Vec<PeerRequest>) -> Self {
        Self { peers, ..self }
    }

    /// The requests to peers.
    pub fn requests(&self) -> &[PeerRequest] {
        &self.peers
    }
}

impl std::fmt::Debug for HostBench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostBench({})", self.name)
    }
}

/// The times of a job on the CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    /// The case's name.
    pub case: String,
    /// Sizes by name.
    pub dimensions: BTreeMap<String, u64>,
    /// Bytes and operations of one run.
    pub work: Work,
    /// The name of the job.
    pub name: String,
    /// Quantiles of its samples.
    pub summary: Summary,
    /// All of them, in the order they were taken.
    pub samples_ns: Samples,
    /// Other programs that did the same in the same run.
    pub peers: Vec<PeerRecord>,
}

impl HostRecord {
    /// The figures of one row of a record: the sizes of the case, and times and rates with their units.
    pub fn row(&self) -> Map<String, Value> {
        let mut row = Map::new();
        row.insert("case".to_owned(), self.case.clone().into());
        row.insert("name".to_owned(), self.name.clone().into());
        row.extend(self.dimensions.iter().map(|(name, &size)| (name.clone(), size.into())));
        let seconds = self.summary.median_ns * 1e-9;
        row.insert("samples".to_owned(), self.summary.samples.into());
        row.insert("median_ms".to_owned(), (1e3 * seconds).into());
        row.insert("operations_per_second".to_owned(), (self.work.operations as f64 / seconds).into());
        row.insert("bytes_per_second".to_owned(), (self.work.bytes as f64 / seconds).into());
        for peer in &self.peers {
            if let PeerRecord::Measured { operation, summary, .. } = peer {
                row.insert(format!("{operation}_ms"), (1e-6 * summary.median_ns).into());
            }
        }
        row
    }

    /// The record of jobs on this machine's CPU, which `origin` timed.
    pub fn record(name: &str, origin: impl Into<String>, jobs: &[Self]) -> Record {
        let measured = MeasuredRecord { origin: origin.into(), rows: jobs.iter().map(Self::row).collect() };
        Record::of_figures(name, Some(DeviceRecord::of_host()), measured)
    }
}

impl Station {
    /// Times a job on the CPU: at least five samples, then until the time or the number of samples is
    /// reached.
    pub fn measure_on_host(
        &self,
        case: &Case,
        bench: HostBench,
        observer: &dyn Observer,
    ) -> Result<HostRecord, RunError> {
        let stage = observer.stage(&case.name);
        let HostBench { name, work, mut prepare, mut run, peers } = bench;
        let mut slots = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        turns::start(&mut slots, &self.options.peers, &peers);
        let mut others: Vec<PeerTurn<'_>> =
            slots.iter_mut().filter_map(|slot| PeerTurn::each(slot, &peers)).collect();
        let mut sample = || -> Result<Duration, RunError> {
            prepare()?;
            let start = Instant::now();
            run()?;
            Ok(start.elapsed())
        };
        let warm_up = sample()?;
        let of_turn =
            (TURN.as_secs_f64() / warm_up.as_secs_f64().max(1e-9)).clamp(1.0, MOST_OF_TURN) as usize;
        let mut samples = Samples::default();
        let started = Instant::now();
        while samples.len() < LEAST_SAMPLES
            || (samples.len() < self.options.samples && started.elapsed() < self.options.longest)
        {
            if !others.is_empty() {
                thread::sleep(PAUSE);
                let awake = Instant::now();
                while awake.elapsed() < WARM_UP {
                    sample()?;
                }
            }
            for _ in 0..of_turn {
                samples.push(sample()?.as_secs_f64() * 1e9);
            }
            for peer in &mut others {
                thread::sleep(PAUSE);
                peer.take(of_turn);
            }
            stage.counted("samples", samples.len() as u64, None);
        }
        let summary = samples.summary().ok_or("the machine's clock gave no numbers")?;
        let peers = others.into_iter().map(|turn| turn.record(&samples)).collect();
        let (case, dimensions) = (case.name.clone(), case.dimensions.clone());
        Ok(HostRecord { case, dimensions, work, name, summary, samples_ns: samples, peers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::PerformanceOptions;

    #[test]
    fn a_job_on_the_cpu_leaves_a_record_of_the_machine() {
        let options = PerformanceOptions { samples: 5, longest: Duration::ZERO, ..Default::default() };
        let sleep = |milliseconds| {
            move || {
                thread::sleep(Duration::from_millis(milliseconds));
                Ok(())
            }
        };
        let bench =
            HostBench::new("sleep", Work { operations: 10, bytes: 20 }, sleep(1)).prepared_by(sleep(40));
        let case = Case::new("short").with("n", 3);
        let job = Station::new(options).measure_on_host(&case, bench, &()).unwrap();
        let record = HostRecord::record("test/sleep", "a test", &[job]);
        let row = &record.measured.as_ref().unwrap().rows[0];
        assert_eq!((row["case"].as_str(), row["n"].as_u64()), (Some("short"), Some(3)));
        // What prepares a run is not timed.
        assert!((1.0..40.0).contains(&row["median_ms"].as_f64().unwrap()));
        assert_eq!(record.device.as_ref().unwrap().id, "cpu");
        assert!(!record.slug().is_empty() && record.slug() != "no-device");
        let back: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        let back = &back.measured.as_ref().unwrap().rows[0];
        assert!(back.keys().eq(row.keys()));
        // Text does not keep the last bit of every fraction.
        for (name, value) in row {
            match (value.as_f64(), back[name].as_f64()) {
                (Some(wrote), Some(read)) => assert!((wrote / read - 1.0).abs() < 1e-12, "{name}"),
                _ => assert_eq!(*value, back[name]),
            }
        }
    }
}
