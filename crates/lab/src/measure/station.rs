//! Where benchmarks are run: one for a whole command, so that its peers and its copy bandwidth are measured
//! once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gatework_gpu::{Device, Observer, StageGuard, Stream};

use super::bandwidth;
use super::clocks::{throttling, under_load};
use super::rounds::{self, BLOCK, Pairs, Subject, Which};
use super::shield::Shield;
use super::timer::{Lead, Timer};
use super::turns::{self, PeerSlot, PeerTurn};
use crate::bench::{Bench, Rate, Timing};
use crate::case::{Case, RunError};
use crate::peers::PeerCommand;
use crate::record::{BenchRecord, CopyBandwidth, PerformanceRecord, RateRecord, SideRecord};
use crate::roofline::Roofline;
use crate::stats::{CONFIDENCE, Samples, StopRule, Verdict, WITHIN_RUN, paired_ratio};

/// How benchmarks are run.
#[derive(Debug, Clone)]
pub struct PerformanceOptions {
    /// Most pairs of samples a benchmark; at least 100 are taken.
    pub samples: usize,
    /// Longest that a benchmark samples once it has 100 pairs.
    pub longest: Duration,
    /// The seed of the order within pairs.
    pub seed: u64,
    /// The programs that are measured beside.
    pub peers: Vec<PeerCommand>,
}

impl Default for PerformanceOptions {
    fn default() -> Self {
        Self { samples: 400, longest: Duration::from_secs(20), seed: 0, peers: Vec::new() }
    }
}

/// Runs benchmarks on one device.
pub struct Station {
    pub(super) options: PerformanceOptions,
    pub(super) peers: Mutex<Vec<PeerSlot>>,
    bandwidth: Mutex<Option<CopyBandwidth>>,
}

/// What all benchmarks of a workload share.
struct Setup<'a> {
    device: &'a Device,
    stream: &'a Stream,
    shield: Shield,
    copy_bandwidth: CopyBandwidth,
}

impl Station {
    /// A station; peers start with the first benchmark that asks for one.
    pub fn new(options: PerformanceOptions) -> Self {
        Self { options, peers: Mutex::default(), bandwidth: Mutex::default() }
    }

    /// Runs the benchmarks of one workload. `bench` makes that of a case; none means it has none. `observer`
    /// hears of each case, and how many pairs of samples it has.
    pub fn measure(
        &self,
        device: &Device,
        cases: &[Case],
        bench: &dyn Fn(&Case) -> Result<Option<Bench>, RunError>,
        observer: &dyn Observer,
    ) -> Result<PerformanceRecord, RunError> {
        let stream = &device.stream()?;
        let mut shield = Shield::new(device, stream)?;
        let copy_bandwidth = self.copy_bandwidth(device, stream, &mut shield)?;
        let clocks_before = under_load(device, stream, &mut shield)?;
        let mut setup = Setup { device, stream, shield, copy_bandwidth };
        let mut records = Vec::new();
        for case in cases {
            let stage = observer.stage(&case.name);
            if let Some(bench) = bench(case)? {
                records.push(self.run(&mut setup, case, bench, &stage)?);
            }
        }
        let clocks_after = under_load(device, stream, &mut setup.shield)?;
        let throttled = throttling([clocks_before, clocks_after], device.properties().max_clock_mhz);
        Ok(PerformanceRecord { copy_bandwidth, clocks_before, clocks_after, throttled, cases: records })
    }

    fn copy_bandwidth(
        &self,
        device: &Device,
        stream: &Stream,
        shield: &mut Shield,
    ) -> Result<CopyBandwidth, RunError> {
        let mut known = self.bandwidth.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some(bandwidth) => Ok(bandwidth),
            None => Ok(*known.insert(bandwidth::measure(device, stream, shield)?)),
        }
    }

    fn run(
        &self,
        setup: &mut Setup<'_>,
        case: &Case,
        bench: Bench,
        stage: &StageGuard<'_>,
    ) -> Result<BenchRecord, RunError> {
        let Setup { device, stream, shield, copy_bandwidth } = setup;
        let Bench { work, candidate, baseline, timing, cache, arithmetic, expectation, rates, peers } = bench;
        let lead = Lead::of(timing, cache, work.bytes, device.properties().l2_bytes);
        let names = [candidate.name.clone(), baseline.name.clone()];
        let mut slots = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        turns::start(&mut slots, &self.options.peers, &peers);
        let mut subject = DeviceSubject {
            candidate: Timer::new(candidate, timing, lead, stream)?,
            baseline: Timer::new(baseline, timing, lead, stream)?,
            stream,
            shield,
            counters: rates.into_iter().map(Counter::new).collect(),
            peers: slots.iter_mut().flat_map(|slot| PeerTurn::each(slot, &peers)).collect(),
            stage,
        };
        let rule = StopRule::new(self.options.samples, self.options.longest);
        let pairs = rounds::sample(&mut subject, &rule, expectation.as_ref(), self.options.seed)?;
        let rates = subject.counters.iter().map(Counter::record).collect();
        let peers = subject.peers.into_iter().map(|turn| turn.record(&pairs.candidate)).collect();

        let Pairs { baseline, candidate, stopped } = pairs;
        let ratio = paired_ratio(baseline.values(), candidate.values(), CONFIDENCE);
        let [candidate_name, baseline_name] = names;
        let candidate = side(candidate_name, candidate)?;
        let median_ns = candidate.summary.median_ns;
        let peak = arithmetic.and_then(|arithmetic| arithmetic.peak(device.properties()));
        let roofline = match timing {
            Timing::Wall => None,
            _ => Roofline::new(work, median_ns, copy_bandwidth.bytes_per_second, peak),
        };
        Ok(BenchRecord {
            case: case.name.clone(),
            dimensions: case.dimensions.clone(),
            work,
            timing,
            cache,
            seed: self.options.seed,
            stopped,
            baseline: side(baseline_name, baseline)?,
            candidate,
            ratio,
            verdict: Verdict::of(ratio, WITHIN_RUN),
            fulfilment: expectation.as_ref().map(|expectation| expectation.judge(ratio)),
            expectation,
            roofline,
            bytes_per_second: 1e9 * work.bytes as f64 / median_ns,
            operations_per_second: 1e9 * work.operations as f64 / median_ns,
            rates,
            peers,
        })
    }
}

impl std::fmt::Debug for Station {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Station").field("options", &self.options).finish_non_exhaustive()
    }
}

fn side(name: String, samples_ns: Samples) -> Result<SideRecord, RunError> {
    let summary = samples_ns.summary().ok_or("the device's timer gave no numbers")?;
    Ok(SideRecord { name, summary, samples_ns })
}

/// Both sides on the device, with everyone else who is measured between.
struct DeviceSubject<'a> {
    candidate: Timer,
    baseline: Timer,
    stream: &'a Stream,
    shield: &'a mut Shield,
    counters: Vec<Counter>,
    peers: Vec<PeerTurn<'a>>,
    stage: &'a StageGuard<'a>,
}

impl Subject for DeviceSubject<'_> {
    type Error = RunError;

    fn sample(&mut self, which: Which) -> Result<f64, RunError> {
        let timer = match which {
            Which::Baseline => &mut self.baseline,
            Which::Candidate => &mut self.candidate,
        };
        timer.sample(self.stream, self.shield)
    }

    fn warmed_up(&mut self) {
        self.counters.iter_mut().for_each(Counter::start);
    }

    fn between_blocks(&mut self, pairs: usize) -> Result<(), RunError> {
        self.stage.counted("pairs", pairs as u64, None);
        self.peers.iter_mut().for_each(|peer| peer.take(BLOCK));
        Ok(())
    }
}

/// A promise about counts, with where they stood after the warm-up.
struct Counter {
    rate: Rate,
    start: (u64, u64),
}

impl Counter {
    fn new(rate: Rate) -> Self {
        Self { rate, start: (0, 0) }
    }

    fn start(&mut self) {
        self.start = (self.rate.counts)();
    }

    fn record(&self) -> RateRecord {
        let (happened, possible) = (self.rate.counts)();
        let happened = happened.saturating_sub(self.start.0) as f64;
        let possible = possible.saturating_sub(self.start.1);
        RateRecord {
            name: self.rate.name.clone(),
            share: (possible > 0).then(|| happened / possible as f64),
            at_least: self.rate.at_least,
        }
    }
}
