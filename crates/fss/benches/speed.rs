//! One core, one party: how fast comparisons and activations are evaluated, and how fast they are dealt.
//!
//! `cargo bench -p gatework-fss [-- JOB… --results DIR]`. A party's evaluation is timed whole: reading and
//! deriving its keys, walking, looking up, packing and opening, for every round. The peer's messages are
//! recorded beforehand and played back, so that nothing is waited for. Printed are the median, the fastest
//! run and the 90th percentile, an operation each.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use fss_rs::dcf::{BoundState, CmpFn, Dcf as _, DcfImpl};
use fss_rs::group::Group as _;
use fss_rs::group::byte::ByteGroup;
use fss_rs::prg::Aes128MatyasMeyerOseasPrg;
use gatework_fss::backend::Backend;
use gatework_fss::executor::{Channel, Circuit, Dealt, Inputs, Limits, MemoryChannel, Plan, deal, evaluate};
use gatework_fss::gates::{Activation, Rows, Softmax};
use gatework_fss::{CpuBackend, Evaluator, FixedPoint, Message, Party, Randomness, Result, Ring};
use gatework_lab::measure::{HostBench, HostRecord, PerformanceOptions, Station};
use gatework_lab::{Case, RunError, Store, Work};

/// A channel that keeps what it received.
struct Recorder {
    inner: MemoryChannel,
    received: Vec<Vec<u8>>,
}

impl Channel for Recorder {
    fn send(&mut self, message: Message) -> Result<()> {
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
    fn send(&mut self, message: Message) -> Result<()> {
        black_box(&message[..]);
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

impl<C: Circuit<Output: Send> + Sync + 'static> Prepared<C>
where
    C::Output: Sync,
{
    fn new(circuit: C, inputs: [Inputs; 2]) -> Result<Rc<Self>> {
        let circuits = [circuit];
        let dealt = deal(&mut Randomness::from_os()?, FixedPoint::new(50, 12)?, &circuits)?;
        let plan = Plan::new(Limits::default(), &dealt.costs());
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
        Ok(Rc::new(Self { circuits, dealt, plan, backend, inputs, messages }))
    }

    /// One party's evaluation, from its keys and the peer's messages; both are copied before each run.
    fn evaluation(self: &Rc<Self>, name: &str, count: usize) -> HostBench {
        let (prepared, ready) = (self.clone(), Rc::new(RefCell::new(None)));
        let (timed, next) = (self.clone(), ready.clone());
        let bench = HostBench::new(name, operations(count), move || {
            let (keys, mut channel, inputs) = ready.take().ok_or("nothing was prepared")?;
            let jobs = vec![(&timed.circuits[0], inputs)];
            black_box(evaluate(TIMED, keys, &timed.backend, &mut channel, &timed.plan, jobs)?);
            Ok(())
        });
        bench.prepared_by(move || {
            let keys = prepared.dealt.streams[TIMED.index()].insecure_copy_for_measurements()?;
            let channel = Playback(prepared.messages.clone().into());
            next.replace(Some((keys, channel, prepared.inputs.clone())));
            Ok(())
        })
    }

    /// The dealer's work, for both parties.
    fn dealing(self: &Rc<Self>, name: &str, count: usize) -> HostBench {
        let prepared = self.clone();
        HostBench::new(name, operations(count), move || {
            let mut randomness = Randomness::from_os()?;
            black_box(deal(&mut randomness, FixedPoint::new(50, 12)?, &prepared.circuits)?);
            Ok(())
        })
    }
}

fn operations(count: usize) -> Work {
    Work { operations: count as u64, bytes: 0 }
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

    fn evaluation(self, name: &str) -> HostBench {
        HostBench::new(name, operations(self.keys.len()), move || {
            for (key, point) in self.keys.iter().zip(&self.points) {
                let mut output = ByteGroup::zero();
                self.dcf.eval(false, key, &[point], &mut [&mut output]);
                black_box(&output);
            }
            Ok(())
        })
    }
}

fn words(count: usize, bits: u32, shift: u32) -> Vec<u64> {
    let ring = Ring::new(bits).expect("a ring");
    let value = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64) >> shift;
    (0..count as u64).map(|i| ring.encode(value(i).into())).collect()
}

fn main() -> std::result::Result<(), RunError> {
    const COMPARISONS: usize = 1 << 11;
    const ACTIVATIONS: usize = 1 << 12;
    const PEER_COMPARISONS: usize = 1 << 11;
    // Everything here is of one core.
    let single = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    single.expect("no pool of threads before this one");
    let full = Ring::new(64)?;
    let compare = Prepared::new(
        async move |evaluator: &Evaluator| {
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
        async move |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, ring, ACTIVATIONS, -(1 << 36)..=(1 << 36) - 1).await?;
            evaluator.open(gelu.apply(evaluator, &x).await?).await
        },
        [vec![None], vec![Some(words(ACTIVATIONS, 50, 48))]],
    )?;
    let truncate = Prepared::new(
        async move |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, ring, COMPARISONS, -(1 << 47)..=(1 << 47) - 1).await?;
            evaluator.open(evaluator.gap_truncate(&x, 12, ring).await?).await
        },
        [vec![None], vec![Some(words(COMPARISONS, 50, 18))]],
    )?;
    let (rows, width) = (64, 128);
    let softmax = Softmax::new(Rows::full(rows, width)?, 12)?;
    let soften = Prepared::new(
        async move |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, ring, rows * width, -(1 << 36)..=(1 << 36) - 1).await?;
            evaluator.open(softmax.apply(evaluator, &x, ring).await?).await
        },
        [vec![None], vec![Some(words(rows * width, 50, 48))]],
    )?;
    let peer = PeerComparison::new(PEER_COMPARISONS);
    run(vec![
        ("compare", compare.evaluation("64-bit comparison, evaluated by one party", COMPARISONS)),
        ("compare-fss-rs", peer.evaluation("64-bit DCF of fss-rs 0.6.0, evaluated")),
        ("gelu", activate.evaluation("GELU at 50 bits, all stages of one party", ACTIVATIONS)),
        ("truncate", truncate.evaluation("gap truncation at 50 bits, one party", COMPARISONS)),
        ("softmax", soften.evaluation("softmax of 128 at 50 bits, an element", rows * width)),
        ("compare-dealt", compare.dealing("64-bit comparison, dealt to both", COMPARISONS)),
        ("gelu-dealt", activate.dealing("GELU at 50 bits, dealt to both", ACTIVATIONS)),
    ])
}

/// Times the jobs that the command names, or all of them, and appends a record to the folder after
/// `--results`.
fn run(jobs: Vec<(&str, HostBench)>) -> std::result::Result<(), RunError> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (mut wanted, mut results) = (Vec::new(), None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--results" => results = Some(arguments.next().ok_or("--results needs a folder")?),
            name => wanted.push(name.to_owned()),
        }
    }
    let names: Vec<&str> = jobs.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = wanted.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("there is no job called '{unknown}': {}", names.join(", ")).into());
    }
    let station = Station::new(PerformanceOptions { samples: 400, ..PerformanceOptions::default() });
    let mut timed = Vec::new();
    for (name, job) in jobs {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let record = station.measure_on_host(&Case::new(name), job, &())?;
        let each = |ns: f64| ns / record.work.operations as f64;
        println!(
            "{:<44}{:9.1} ns  ({:.1} to {:.1})  {:8.3} M/s",
            record.name,
            each(record.summary.median_ns),
            each(record.summary.minimum_ns),
            each(record.summary.p90_ns),
            1e3 / each(record.summary.median_ns)
        );
        timed.push(record);
    }
    if let Some(folder) = results {
        let record =
            HostRecord::record("fss/cpu", "cargo bench -p gatework-fss, one core, one party", &timed);
        let file = Store::open(&folder)?.append(&record)?;
        println!("recorded in {} as {}", file.display(), record.id());
    }
    Ok(())
}
