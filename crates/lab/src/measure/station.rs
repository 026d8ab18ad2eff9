//! Where benchmarks are run: one for a whole command, so that its peers and its copy bandwidth are measured
//! once.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use gatework_gpu::{Device, Observer, StageGuard, Stream};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::bandwidth;
use super::clocks::{throttling, under_load};
use super::recorded::RecordedTimes;
use super::rounds::{self, BLOCK, Pairs, Subject, Which};
use super::shield::Shield;
use super::timer::{Lead, Timer};
use super::turns::{self, PeerSlot, PeerTurn};
use crate::bench::{Bench, Rate, Timing};
use crate::case::{Case, RunError};
use crate::evidence::Evidence;
use crate::peers::PeerCommand;
use crate::record::{BenchRecord, CopyBandwidth, PerformanceRecord, RateRecord, SideRecord};
use crate::roofline::Roofline;
use crate::stats::{CONFIDENCE, LEAST_PAIRS, Samples, StopRule, Verdict, WITHIN_RUN, paired_ratio};

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
    /// Times of earlier records, for promises against them.
    pub recorded: RecordedTimes,
}

impl Default for PerformanceOptions {
    fn default() -> Self {
        Self {
            samples: 400,
            longest: Duration::from_secs(20),
            seed: 0,
            peers: Vec::new(),
            recorded: RecordedTimes::default(),
        }
    }
}

/// Runs benchmarks on one device.
pub struct Station {
    pub(super) options: PerformanceOptions,
    pub(super) peers: Mutex<Vec<PeerSlot>>,
    bandwidth: Mutex<Option<CopyBandwidth>>,
    /// Of the link to the host, once a benchmark has asked for it.
    link: Mutex<Option<f64>>,
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
        Self { options, peers: Mutex::default(), bandwidth: Mutex::default(), link: Mutex::default() }
    }

    /// Runs the benchmarks of one workload. `bench` makes that of a case; none means it has none. `observer`
    /// hears of each case, and how many pairs of samples it has.
    pub fn measure(
        &self,
        workload: &str,
        device: &Device,
        cases: &[Case],
        bench: &dyn Fn(&Case) -> Result<Option<Bench>, RunError>,
        observer: &dyn Observer,
    ) -> Result<PerformanceRecord, RunError> {
        let stream = &device.stream()?;
        device.disable_persisting_cache()?;
        let mut shield = Shield::new(device, stream)?;
        let copy_bandwidth = self.copy_bandwidth(device, stream, &mut shield)?;
        let clocks_before = under_load(device, stream, &mut shield)?;
        let mut setup = Setup { device, stream, shield, copy_bandwidth };
        let mut records = Vec::new();
        for case in cases {
            let stage = observer.stage(&case.name);
            if let Some(bench) = bench(case)? {
                records.push(self.run(&mut setup, workload, case, bench, &stage)?);
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

    fn link_bandwidth(&self, device: &Device, stream: &Stream) -> Result<f64, RunError> {
        let mut known = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some(bandwidth) => Ok(bandwidth),
            None => Ok(*known.insert(bandwidth::measure_link(device, stream)?)),
        }
    }

    fn run(
        &self,
        setup: &mut Setup<'_>,
        workload: &str,
        case: &Case,
        bench: Bench,
        stage: &StageGuard<'_>,
    ) -> Result<BenchRecord, RunError> {
        let Setup { device, stream, shield, copy_bandwidth } = setup;
        let Bench { work, candidate, baseline, timing, cache, arithmetic, link_bytes, .. } = bench;
        let Bench { expectation, recorded, rates, peers, evidence, .. } = bench;
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
            witness: evidence.map(Witness::new),
        };
        let contains_itself = contains(&subject.baseline, &subject.candidate);
        let rule = StopRule::new(self.options.samples, self.options.longest);
        let pairs = rounds::sample(&mut subject, &rule, expectation.as_ref(), self.options.seed)?;
        let rechecked = subject.witness.is_some();
        subject.recheck()?;
        let rates = subject.counters.iter().map(Counter::record).collect();
        let peers = subject.peers.into_iter().map(|turn| turn.record(&pairs.candidate)).collect();

        let Pairs { baseline, candidate, stopped } = pairs;
        let ratio = paired_ratio(baseline.values(), candidate.values(), CONFIDENCE);
        let [candidate_name, baseline_name] = names;
        let candidate = side(candidate_name, candidate)?;
        let median_ns = candidate.summary.median_ns;
        let recorded = recorded.map(|promise| {
            let place = (workload, case.name.as_str(), device.properties().name.as_str());
            self.options.recorded.judge(place, promise, candidate.samples_ns.values())
        });
        let peak = arithmetic.and_then(|arithmetic| arithmetic.peak(device.properties()));
        let on_device = Roofline::new(work, median_ns, copy_bandwidth.bytes_per_second, peak);
        let roofline = match timing {
            _ if link_bytes > 0 => {
                let bandwidth = self.link_bandwidth(device, stream)?;
                on_device.map(|roofline| roofline.over_link(link_bytes, bandwidth))
            }
            Timing::Wall => None,
            _ => on_device,
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
            recorded,
            contains_itself,
            rechecked,
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

/// Whether all that the candidate launches is also launched by the baseline, as far as graphs tell: it can
/// then never be the slower of the two, and a promise about it is worth nothing.
fn contains(baseline: &Timer, candidate: &Timer) -> bool {
    match (baseline.kernels(), candidate.kernels()) {
        (Some(baseline), Some(candidate)) => !candidate.is_empty() && candidate.is_subset(&baseline),
        _ => false,
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
    witness: Option<Witness>,
}

/// Evidence, and the sample at which it is taken.
struct Witness {
    evidence: Evidence,
    /// Samples of the candidate after the warm-up.
    taken: u64,
    /// Known to nobody before: a candidate that only works when it is looked at must work always.
    looks_at: u64,
    warm: bool,
}

impl Witness {
    fn new(evidence: Evidence) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let looks_at = ChaCha8Rng::seed_from_u64(now.as_nanos() as u64).random_range(0..LEAST_PAIRS as u64);
        Self { evidence, taken: 0, looks_at, warm: false }
    }

    /// Whether the next sample is the one that is looked at.
    fn looks(&mut self) -> bool {
        let looks = self.warm && self.taken == self.looks_at;
        self.taken += u64::from(self.warm);
        looks
    }
}

impl DeviceSubject<'_> {
    /// One sample of the candidate on spoiled outputs, which must then be right.
    fn seen_sample(&mut self) -> Result<f64, RunError> {
        let Some(witness) = &mut self.witness else { return self.candidate.sample(self.stream, self.shield) };
        witness.evidence.spoil(self.stream)?;
        let sample = self.candidate.sample(self.stream, self.shield)?;
        match witness.evidence.refusal(self.stream, self.candidate.runs_of_sample())? {
            Some(why) => Err(why.into()),
            None => Ok(sample),
        }
    }

    /// Looks once more after the last sample.
    fn recheck(&mut self) -> Result<(), RunError> {
        if self.witness.is_some() {
            self.seen_sample()?;
        }
        Ok(())
    }
}

impl Subject for DeviceSubject<'_> {
    type Error = RunError;

    fn sample(&mut self, which: Which) -> Result<f64, RunError> {
        match which {
            Which::Baseline => self.baseline.sample(self.stream, self.shield),
            Which::Candidate if self.witness.as_mut().is_some_and(Witness::looks) => self.seen_sample(),
            Which::Candidate => self.candidate.sample(self.stream, self.shield),
        }
    }

    fn warmed_up(&mut self) {
        if let Some(witness) = &mut self.witness {
            witness.warm = true;
        }
        self.counters.iter_mut().for_each(Counter::start);
    }

    fn between_blocks(&mut self, pairs: usize) -> Result<(), RunError> {
        self.stage.counted("pairs", pairs as u64, None);
        // A run may have set aside a part of the cache for itself.
        self.stream.device().disable_persisting_cache()?;
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
