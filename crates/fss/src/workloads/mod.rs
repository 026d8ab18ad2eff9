//! What the lab may gate: `fss/*`.
//!
//! Gates run as two parties in one process, both on the device, against plain code. Their keys are dealt from
//! the operating system's randomness, so that two runs of a case share nothing but their answer. Of the calls
//! that gates are made of, each alone is held against plain code too, and timed.

mod compare;
mod deal;
mod gates;
mod overlap;
mod parties;
mod prg;
mod primitive;
mod ring_gemm;

use std::sync::Arc;

use gatework_gpu::{Device, Kind};
use gatework_lab::{
    Bench, Case, Control, ErrorBudget, Inputs as Random, KernelSpec, Outputs, RunError, Work, Workload,
};

use crate::backend::Backend;
use crate::cuda::{CudaBackend, specs};
use crate::executor::{estimate, run_clear, run_in_process_on};
use crate::{Cost, Evaluator, FixedPoint, Party, Result, Ring, Share, Wire};

use self::primitive::Alone;

const FRACTION: u32 = 12;

/// All of them.
pub fn workloads() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(Alone(prg::Prg::default())),
        Box::new(Alone(compare::Compare::default())),
        Box::new(Alone(ring_gemm::RingGemm::IN_LIMBS)),
        Box::new(Alone(ring_gemm::RingGemm::IN_WORDS)),
        Box::new(Alone(overlap::Overlap)),
        Box::new(Alone(deal::Deal::default())),
        Box::new(Job(gates::Sign)),
        Box::new(Job(gates::Lut)),
        Box::new(Job(gates::Trunc)),
        Box::new(Job(gates::Gelu)),
        Box::new(Job(gates::SoftmaxRows)),
        Box::new(Job(gates::Relu)),
    ]
}

/// A gate of one input, its plain counterpart, and its own ways to be wrong.
trait Gate: Send + Sync + Copy + 'static {
    fn name(&self) -> &str;
    fn summary(&self) -> &str;
    /// Bits of the ring, and elements.
    fn sizes(&self) -> Vec<(u32, usize)>;
    /// The same of cases that are timed on a card.
    fn timed(&self) -> Vec<(u32, usize)> {
        Vec::new()
    }
    /// Real inputs, and how far from zero their integers may be.
    fn inputs(&self, ring: Ring, len: usize, seed: u64) -> (Vec<i64>, i64);
    fn apply(&self, evaluator: &Evaluator, x: &Wire) -> impl Future<Output = Result<Share>>;
    /// The plainest code that is right.
    fn plain(&self, ring: Ring, x: &[i64]) -> Vec<u64>;
    /// The kernels that it launches, but for those of calls that are workloads of their own.
    fn kernels(&self) -> Vec<KernelSpec> {
        specs::arithmetic()
    }
    /// A mistake that this gate invites.
    fn mistaken(&self, ring: Ring, x: &[i64], right: &[u64]) -> (&'static str, Vec<u64>);
}

struct Job<G>(G);

/// Normally distributed fixed-point numbers.
fn normal(len: usize, seed: u64, deviation: f64, limit: i64) -> Vec<i64> {
    let number = |x: f32| ((f64::from(x) * deviation * 4096.0).round() as i64).clamp(-limit, limit);
    Random::new(seed).normal(len).into_iter().map(number).collect()
}

fn case((bits, len): (u32, usize)) -> Case {
    Case::new(format!("{len}x{bits}")).with("bits", bits as usize).with("elements", len)
}

/// A circuit of one gate: party 1's numbers go in, party 0 learns what comes out.
fn circuit<G: Gate>(
    gate: &G,
    ring: Ring,
    len: usize,
    limit: i64,
) -> impl AsyncFn(&Evaluator) -> Result<Option<Vec<u64>>> + Sync {
    async move |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, len, -limit..=limit).await?;
        let opened = evaluator.open(gate.apply(evaluator, &x).await?).await?;
        evaluator.reveal(&opened, Party::Zero)
    }
}

fn format_of(ring: Ring) -> Result<FixedPoint> {
    FixedPoint::new(ring.bits(), FRACTION.min(ring.bits() - 1))
}

fn encode(ring: Ring, values: impl IntoIterator<Item = i64>) -> Vec<u64> {
    values.into_iter().map(|value| ring.encode(value.into())).collect()
}

impl<G: Gate> Job<G> {
    fn ring(case: &Case) -> std::result::Result<Ring, crate::Error> {
        Ring::new(case.dimension("bits") as u32)
    }

    fn sizes_of(case: &Case) -> (Option<Ring>, usize) {
        (Self::ring(case).ok(), case.dimension("elements"))
    }

    fn cost(&self, case: &Case) -> Cost {
        let (ring, len) = Self::sizes_of(case);
        let of_ring = |ring| {
            let (_, limit) = self.0.inputs(ring, len, 0);
            estimate(&circuit(&self.0, ring, len, limit)).ok()
        };
        ring.and_then(of_ring).unwrap_or_default()
    }
}

impl<G: Gate> Workload for Job<G> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn summary(&self) -> &str {
        self.0.summary()
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        self.0.kernels()
    }

    fn cases(&self, _: Kind) -> Vec<Case> {
        self.0.sizes().into_iter().map(case).collect()
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            Kind::Emulated => self.cases(kind).into_iter().take(self.0.timed().len().min(1)).collect(),
            Kind::Cuda => self.0.timed().into_iter().map(case).collect(),
        }
    }

    fn bench(&self, _: &Device, case: &Case) -> std::result::Result<Option<Bench>, RunError> {
        let (ring, len) = (Self::ring(case)?, case.dimension("elements"));
        let bench = parties::bench(self.0, ring, len, self.work(case));
        // Both parties' keys come from host memory over the one link.
        Ok(Some(bench.over_link(self.cost(case).all_key_bytes())))
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> std::result::Result<Outputs, RunError> {
        let (ring, len) = (Self::ring(case)?, case.dimension("elements"));
        let (values, limit) = self.0.inputs(ring, len, seed);
        let circuit = circuit(&self.0, ring, len, limit);
        let words = encode(ring, values);
        let format = format_of(ring)?;
        let clear = run_clear(&circuit, vec![Some(words.clone())])?;
        let backend = || CudaBackend::new(device).map(|backend| Arc::new(backend) as Arc<dyn Backend>);
        let backends = [backend()?, backend()?];
        let [zero, _] = run_in_process_on(backends, format, &circuit, [vec![None], vec![Some(words)]])?;
        if zero.output != clear.output || zero.cost != clear.cost {
            return Err("two parties do not give what the clear evaluator gives, or at another cost".into());
        }
        Ok(Outputs::new().with("y", zero.output.unwrap_or_default()))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let (ring, len) = Self::sizes_of(case);
        let words = ring.map(|ring| self.0.plain(ring, &self.0.inputs(ring, len, seed).0));
        Outputs::new().with("y", words.unwrap_or_default())
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let (ring, len) = Self::sizes_of(case);
        let mut controls = vec![
            Control::zeros(reference),
            Control::unwritten_tail(reference, 1),
            Control::one_off(reference, "y", len / 2, 1.0),
        ];
        if let Some(ring) = ring {
            let values = self.0.inputs(ring, len, seed).0;
            let (name, words) = self.0.mistaken(ring, &values, &self.0.plain(ring, &values));
            controls.push(Control::new(name, Outputs::new().with("y", words)));
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        let cost = self.cost(case);
        Work { operations: cost.prg_blocks[0], bytes: cost.larger_key_bytes() + cost.traffic_bytes() }
    }
}
