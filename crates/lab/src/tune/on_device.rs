//! Configurations of a real workload on a real device.

use std::time::Duration;

use gatework_gpu::{Device, compile};

use super::evaluation::Evaluator;
use crate::case::{Case, RunError};
use crate::gates::{Gates, check_case};
use crate::measure::{PerformanceOptions, Station};
use crate::outcome::{Gate, Outcome};
use crate::record::BenchRecord;
use crate::record::tuning::{HeldOut, Rejection, Score};
use crate::space::{Configuration, Space};
use crate::stats::Interval;
use crate::workload::{Tunable, Workload};
use crate::{Error, Result};

/// Pairs that a configuration is timed with. The winner is judged with as many as a benchmark takes.
const TRAINING_SAMPLES: usize = 100;
/// Seeds that only the winner is checked with: no gate ever gets there from zero.
const HELD_OUT_SEEDS: std::ops::Range<u64> = 1_000_000..1_000_002;

/// Takes configurations through the gates of one device.
pub struct DeviceEvaluator<'a> {
    tunable: &'a dyn Tunable,
    device: Device,
    space: Space,
    gates: Gates,
    training: Station,
    judging: Station,
}

impl<'a> DeviceEvaluator<'a> {
    /// An evaluator on a device whose times mean something.
    pub fn new(tunable: &'a dyn Tunable, device: Device) -> Result<Self> {
        if device.is_emulated() {
            return Err(Error::NoTiming { device: device.properties().id.clone() });
        }
        let options = PerformanceOptions { samples: TRAINING_SAMPLES, ..PerformanceOptions::default() };
        Ok(Self {
            tunable,
            space: tunable.space(),
            gates: Gates::new(device.clone()).seeds(0..1),
            device,
            training: Station::new(options),
            judging: Station::new(PerformanceOptions {
                longest: Duration::from_secs(30),
                ..Default::default()
            }),
        })
    }

    fn configured(&self, configuration: &Configuration) -> Box<dyn Workload> {
        self.tunable.configured(configuration)
    }

    /// The cases' benchmarks of one workload, or of two against each other.
    fn measure(
        &self,
        station: &Station,
        cases: &[Case],
        candidate: &dyn Workload,
        opponent: Option<&dyn Workload>,
    ) -> Result<Vec<BenchRecord>, Rejection> {
        let bench = |case: &Case| {
            let bench = candidate.bench(&self.device, case)?;
            let Some(opponent) = opponent else { return Ok(bench) };
            let other = opponent.bench(&self.device, case)?;
            Ok(bench.zip(other).map(|(bench, other)| bench.against(other.into_candidate())))
        };
        let measured = station.measure(candidate.name(), &self.device, cases, &bench, &());
        let record = measured.map_err(|error: RunError| rejected(Gate::Performance, error))?;
        if record.cases.is_empty() {
            return Err(rejected(Gate::Performance, "the workload has no benchmark for these cases"));
        }
        Ok(record.cases)
    }
}

impl Evaluator for DeviceEvaluator<'_> {
    fn identify(&mut self, configuration: &Configuration) -> Result<String, Rejection> {
        let architecture = &self.device.properties().architecture;
        let mut hasher = blake3::Hasher::new();
        for spec in self.configured(configuration).kernels() {
            let binary =
                compile(&spec.source, architecture).map_err(|error| rejected(Gate::Compile, error))?;
            hasher.update(binary.hash.as_bytes());
        }
        hasher.update(self.space.launch_settings(configuration).as_bytes());
        Ok(hasher.finalize().to_hex().to_string())
    }

    fn check(&mut self, configuration: &Configuration) -> Result<(), Rejection> {
        let record = self.gates.gate(self.configured(configuration).as_ref(), &());
        let stopped = record.gates.iter().find(|gate| gate.outcome.is_failed());
        match (stopped, record.verdict) {
            (Some(gate), verdict) => Err(rejected(gate.gate, verdict)),
            (None, Outcome::Passed) => Ok(()),
            (None, verdict) => Err(rejected(Gate::Correctness, verdict)),
        }
    }

    fn time(&mut self, configuration: &Configuration) -> Result<Score, Rejection> {
        let cases = self.tunable.training_cases(self.device.properties().kind);
        let workload = self.configured(configuration);
        let benches = self.measure(&self.training, &cases, workload.as_ref(), None)?;
        score(&benches).ok_or_else(|| rejected(Gate::Performance, "its times are no numbers"))
    }

    fn judge(&mut self, winner: &Configuration, default: &Configuration) -> Result<Vec<HeldOut>, Rejection> {
        let cases = self.tunable.held_out_cases(self.device.properties().kind);
        let (winner, default) = (self.configured(winner), self.configured(default));
        for (case, seed) in cases.iter().flat_map(|case| HELD_OUT_SEEDS.map(move |seed| (case, seed))) {
            let outcome = check_case(winner.as_ref(), &self.device, case, seed).outcome;
            if !outcome.is_passed() {
                return Err(rejected(Gate::Correctness, outcome));
            }
        }
        let benches = self.measure(&self.judging, &cases, winner.as_ref(), Some(default.as_ref()))?;
        let held_out =
            |bench: BenchRecord| HeldOut { case: bench.case, ratio: bench.ratio, verdict: bench.verdict };
        Ok(benches.into_iter().map(held_out).collect())
    }
}

fn rejected(gate: Gate, why: impl std::fmt::Display) -> Rejection {
    Rejection { gate: gate.to_string(), why: why.to_string() }
}

/// The geometric mean of the ratios to the baseline; none if one is unknown.
fn score(benches: &[BenchRecord]) -> Option<Score> {
    let cases: Vec<(String, Interval)> =
        benches.iter().map(|bench| Some((bench.case.clone(), bench.ratio?))).collect::<Option<_>>()?;
    let logarithms: f64 = cases.iter().map(|(_, ratio)| ratio.estimate.ln()).sum();
    let ratio = (logarithms / cases.len() as f64).exp();
    ratio.is_finite().then_some(Score { ratio, cases })
}
