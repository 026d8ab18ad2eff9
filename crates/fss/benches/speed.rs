//! One core, one party: how fast comparisons and activations are evaluated, and how fast they are dealt.
//!
//! `cargo bench -p gatework-fss`. A party's evaluation is timed whole: reading and deriving its keys, walking, looking up, packing and
//! opening, for every round. The peer's messages are recorded beforehand and played back, so that nothing is waited for.
//! Candidates are timed in turns, and medians are printed with the fastest and the slowest run.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fss_rs::dcf::{BoundState, CmpFn, Dcf as _, DcfImpl};
use fss_rs::group::Group as _;
use fss_rs::group::byte::ByteGroup;
use fss_rs::prg::Aes128MatyasMeyerOseasPrg;
use gatework_fss::backend::Backend;
use gatework_fss::executor::{Channel, Circuit, Dealt, Inputs, Limits, MemoryChannel, Plan, deal, evaluate};
use gatework_fss::gates::{Activation, Rows, Softmax};
use gatework_fss::{CpuBackend, Evaluator, FixedPoint, Party, Randomness, Result, Ring};

const ROUNDS: usize = 41;

/// A channel that keeps what it received.
struct Recorder {
    inner: MemoryChannel,
    received: Vec<Vec<u8>>,
}

impl Channel for Recorder {
    fn send(&mut self, message: Vec<u8>) -> Result<()> {
        self.inner.send(message)
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let message = self.inner.receive()?;
        self.received.push(message.clone());
        Ok(message)
    }
}

/// A channel that plays back what was received before.
struct Playback(VecDeque<Vec<u8>>);

impl Channel for Playback {
    fn send(&mut self, message: Vec<u8>) -> Result<()> {
        black_box(message);
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        self.0.pop_front().ok_or(gatework_fss::Error::Closed)
    }
}

/// A circuit whose keys were dealt and whose peer has spoken.
struct Prepared<C: Circuit> {
    circuits: [C; 1],
    dealt: Dealt<C::Output>,
    plan: Plan,
    backend: Arc<dyn Backend>,
    inputs: Inputs,
    messages: Vec<Vec<u8>>,
}

const TIMED: Party = Party::Zero;

impl<C: Circuit<Output: Send> + Sync> Prepared<C>
where
    C::Output: Sync,
{
    fn new(circuit: C, inputs: [Inputs; 2]) -> Result<Self> {
        let circuits = [circuit];
        let dealt = deal(&mut Randomness::from_os()?, FixedPoint::new(50, 12)?, &circuits)?;
        let plan = Plan::new(Limits::default(), &dealt.costs())?;
        let backend: Arc<dyn Backend> = Arc::new(CpuBackend);
        let [zero, one] = MemoryChannel::pair();
        let run = |party: Party, inner: MemoryChannel, inputs: Inputs| {
            let mut channel = Recorder { inner, received: Vec::new() };
            let keys = dealt.streams[party.index()].insecure_copy_for_measurements()?;
            evaluate(party, keys, &backend, &mut channel, &plan, vec![(&circuits[0], inputs)])?;
            Ok::<_, gatework_fss::Error>(channel.received)
        };
        let [zero_inputs, one_inputs] = inputs.clone();
        let messages = thread::scope(|scope| {
            let peer = scope.spawn(|| run(Party::One, one, one_inputs));
            let messages = run(Party::Zero, zero, zero_inputs)?;
            peer.join().map_err(|_| gatework_fss::Error::Closed)??;
            Ok::<_, gatework_fss::Error>(messages)
        })?;
        let [inputs, _] = inputs;
        Ok(Self { circuits, dealt, plan, backend, inputs, messages })
    }

    fn evaluate(&self) -> Result<Duration> {
        let mut channel = Playback(self.messages.clone().into());
        let jobs = vec![(&self.circuits[0], self.inputs.clone())];
        let keys = self.dealt.streams[TIMED.index()].insecure_copy_for_measurements()?;
        let start = Instant::now();
        black_box(evaluate(TIMED, keys, &self.backend, &mut channel, &self.plan, jobs)?);
        Ok(start.elapsed())
    }

    fn deal(&self) -> Result<Duration> {
        let mut randomness = Randomness::from_os()?;
        let start = Instant::now();
        black_box(deal(&mut randomness, FixedPoint::new(50, 12)?, &self.circuits)?);
        Ok(start.elapsed())
    }
}

/// Median, least and most of some runs, each of `count` operations.
fn summary(mut runs: Vec<Duration>, count: usize) -> (f64, String) {
    runs.sort();
    let each = |run: Duration| run.as_secs_f64() * 1e9 / count as f64;
    let median = each(runs[runs.len() / 2]);
    let text = format!(
        "{median:9.1} ns  ({:.1} to {:.1})  {:8.3} M/s",
        each(runs[0]),
        each(runs[runs.len() - 1]),
        1e3 / median
    );
    (median, text)
}

/// `count` 64-bit comparisons by the DCF of `fss-rs`, each with a key of its own.
struct PeerComparison {
    dcf: DcfImpl<8, 16, Aes128MatyasMeyerOseasPrg<16, 2, 4>>,
    keys: Vec<fss_rs::Share<16, ByteGroup<16>>>,
    points: Vec<[u8; 8]>,
}

impl PeerComparison {
    fn new(count: usize) -> Self {
        let ciphers: [[u8; 16]; 4] = std::array::from_fn(|cipher| [cipher as u8 * 17 + 3; 16]);
        let dcf =
            DcfImpl::new(Aes128MatyasMeyerOseasPrg::new(&std::array::from_fn(|cipher| &ciphers[cipher])));
        let spread = |i: usize, by: u64| (i as u64 + 1).wrapping_mul(by);
        let key = |i: usize| {
            let roots =
                [0, 1].map(|party| u128::from(spread(i + party, 0x9e37_79b9_7f4a_7c15)).to_le_bytes());
            let alpha = spread(i, 0xd134_2543_de82_ef95).to_be_bytes();
            let function = CmpFn { alpha, beta: ByteGroup([1; 16]), bound: BoundState::LtAlpha };
            dcf.r#gen(&function, [&roots[0], &roots[1]])
        };
        let keys = (0..count).map(key).collect();
        let points = (0..count).map(|i| spread(i, 0x2545_f491_4f6c_dd1d).to_be_bytes()).collect();
        Self { dcf, keys, points }
    }

    fn evaluate(&self) -> Duration {
        let start = Instant::now();
        for (key, point) in self.keys.iter().zip(&self.points) {
            let mut output = ByteGroup::zero();
            self.dcf.eval(false, key, &[point], &mut [&mut output]);
            black_box(&output);
        }
        start.elapsed()
    }
}

fn words(count: usize, bits: u32, shift: u32) -> Vec<u64> {
    let ring = Ring::new(bits).expect("a ring");
    let value = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64) >> shift;
    (0..count as u64).map(|i| ring.encode(value(i).into())).collect()
}

fn main() -> Result<()> {
    const COMPARISONS: usize = 1 << 11;
    const ACTIVATIONS: usize = 1 << 12;
    const PEER_COMPARISONS: usize = 1 << 11;
    // Everything here is of one core.
    let single = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    single.expect("no pool of threads before this one");
    let full = Ring::new(64)?;
    let compare = Prepared::new(
        async |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, full, COMPARISONS, i64::MIN..=i64::MAX).await?;
            let sign = evaluator.signs(&x, &[0])?.remove(0);
            evaluator.open(sign).await
        },
        [vec![None], vec![Some(words(COMPARISONS, 64, 0))]],
    )?;
    let ring = Ring::new(50)?;
    let gelu = Activation::gelu(12)?;
    // What a truncation by 12 bits in a ring of 50 leaves is below 2^36.
    let activate = Prepared::new(
        async |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, ring, ACTIVATIONS, -(1 << 36)..=(1 << 36) - 1).await?;
            evaluator.open(gelu.apply(evaluator, &x).await?).await
        },
        [vec![None], vec![Some(words(ACTIVATIONS, 50, 48))]],
    )?;
    let truncate = Prepared::new(
        async |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, ring, COMPARISONS, -(1 << 47)..=(1 << 47) - 1).await?;
            evaluator.open(evaluator.gap_truncate(&x, 12, ring).await?).await
        },
        [vec![None], vec![Some(words(COMPARISONS, 50, 18))]],
    )?;
    let (rows, width) = (64, 128);
    let softmax = Softmax::new(Rows::full(rows, width)?, 12)?;
    let soften = Prepared::new(
        async |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, ring, rows * width, -(1 << 36)..=(1 << 36) - 1).await?;
            evaluator.open(softmax.apply(evaluator, &x, ring).await?).await
        },
        [vec![None], vec![Some(words(rows * width, 50, 48))]],
    )?;
    let peer = PeerComparison::new(PEER_COMPARISONS);

    let candidates: Vec<Candidate<'_>> = vec![
        Candidate::new(COMPARE, COMPARISONS, || compare.evaluate()),
        Candidate::new(PEER_COMPARE, PEER_COMPARISONS, || Ok(peer.evaluate())),
        Candidate::new("GELU at 50 bits, all stages of one party", ACTIVATIONS, || activate.evaluate()),
        Candidate::new("gap truncation at 50 bits, one party", COMPARISONS, || truncate.evaluate()),
        Candidate::new("softmax of 128 at 50 bits, an element", rows * width, || soften.evaluate()),
        Candidate::new("64-bit comparison, dealt to both", COMPARISONS, || compare.deal()),
        Candidate::new("GELU at 50 bits, dealt to both", ACTIVATIONS, || activate.deal()),
    ];
    report(candidates)
}

/// Something to time: `count` operations a run.
struct Candidate<'a> {
    name: &'static str,
    count: usize,
    run: Box<dyn Fn() -> Result<Duration> + 'a>,
    runs: Vec<Duration>,
}

impl<'a> Candidate<'a> {
    fn new(name: &'static str, count: usize, run: impl Fn() -> Result<Duration> + 'a) -> Self {
        Self { name, count, run: Box::new(run), runs: Vec::new() }
    }
}

const COMPARE: &str = "64-bit comparison, evaluated by one party";
const PEER_COMPARE: &str = "64-bit DCF of fss-rs 0.6.0, evaluated";

/// Times the candidates whose names contain an argument of the command, or all of them, in turns.
fn report(mut candidates: Vec<Candidate<'_>>) -> Result<()> {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    candidates
        .retain(|candidate| wanted.is_empty() || wanted.iter().any(|part| candidate.name.contains(part)));
    // The first rounds warm caches and clocks.
    for round in 0..ROUNDS + 2 {
        for candidate in &mut candidates {
            let run = (candidate.run)()?;
            if round >= 2 {
                candidate.runs.push(run);
            }
        }
    }
    let mut medians = Vec::new();
    for Candidate { name, count, runs, .. } in candidates {
        let (median, text) = summary(runs, count);
        println!("{name:<44}{text}");
        medians.push((name, median));
    }
    let median = |wanted| medians.iter().find(|(name, _)| *name == wanted).map(|(_, median)| median);
    if let (Some(ours), Some(theirs)) = (median(COMPARE), median(PEER_COMPARE)) {
        println!("fss-rs over ours, 64-bit comparison         {:9.1}", theirs / ours);
    }
    Ok(())
}
