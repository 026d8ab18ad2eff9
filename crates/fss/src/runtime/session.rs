//! Running circuits in their roles.

use std::cell::RefCell;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::backend::{Backend, CpuBackend};
use crate::bound::Bound;
use crate::engine::{Engine, PartyRole, Role};
use crate::error::{Error, Result};
use crate::key::{DealtSection, FixedPoint, KeyStream, SharedBytes};
use crate::party::Party;
use crate::random::Randomness;
use crate::ring::{Ring, packed_bytes};
use crate::secret::Secret;
use crate::tally::Cost;
use crate::tensor::Wire;

use super::{Channel, Limits, MemoryChannel, Plan, Request};

/// A computation over an [`Engine`], the same in every role.
pub trait Circuit {
    /// What a role gets out of it.
    type Output;

    /// Runs it.
    fn run(&self, engine: &Engine) -> impl Future<Output = Result<Self::Output>>;

    /// The number format that its keys must have been dealt for, if it has one.
    fn format(&self) -> Option<FixedPoint> {
        None
    }

    /// Fails for keys of another number format.
    fn fits(&self, keys: FixedPoint) -> Result<()> {
        match self.format() {
            Some(circuit) if circuit != keys => Err(Error::Format { keys, circuit }),
            _ => Ok(()),
        }
    }
}

impl<T, F: AsyncFn(&Engine) -> Result<T>> Circuit for F {
    type Output = T;

    fn run(&self, engine: &Engine) -> impl Future<Output = Result<T>> {
        self(engine)
    }
}

/// A circuit's inputs in the order in which it asks for them. A party gives only its own.
pub type Inputs = Vec<Option<Vec<u64>>>;

/// What a circuit gave in a role that needs no peer, and what it cost.
#[derive(Debug, Clone)]
pub struct Local<T> {
    /// Its output.
    pub output: T,
    /// What was counted.
    pub cost: Cost,
}

/// Runs a circuit where nothing has to be sent: what is opened is what was put in.
fn run_alone<C: Circuit>(engine: &Engine, circuit: &C) -> Result<Local<C::Output>> {
    run_stepwise(engine, circuit, |_| Ok(()))
}

/// The same, with something done after every step.
fn run_stepwise<C: Circuit>(
    engine: &Engine,
    circuit: &C,
    mut after: impl FnMut(&Engine) -> Result<()>,
) -> Result<Local<C::Output>> {
    let mut task = pin!(circuit.run(engine));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let step = task.as_mut().poll(&mut context);
        after(engine)?;
        if let Poll::Ready(output) = step {
            return Ok(Local { output: output?, cost: engine.cost() });
        }
        let requests = engine.mailbox.take_outgoing();
        if requests.is_empty() {
            return Err(Error::Stuck);
        }
        engine.count(|cost| cost.rounds += 1);
        engine.mailbox.deliver(requests.into_iter().map(|request| request.words).collect());
    }
}

/// The integer specification: runs a circuit on plain inputs. A value outside its proved bound is an error.
pub fn run_clear<C: Circuit>(circuit: &C, inputs: Inputs) -> Result<Local<C::Output>> {
    run_alone(&Engine::new(Role::Clear, inputs), circuit)
}

/// What a circuit costs, from its shapes alone.
pub fn estimate<C: Circuit>(circuit: &C) -> Result<Cost> {
    Ok(rehearse(circuit)?.cost)
}

/// The same, with the shapes that come out.
pub(crate) fn rehearse<C: Circuit>(circuit: &C) -> Result<Local<C::Output>> {
    run_alone(&Engine::new(Role::Estimate, Vec::new()), circuit)
}

/// The shape of a wire that a gate is given, with the range that is proved for its values.
#[derive(Debug, Clone)]
pub struct WireShape {
    /// Its ring.
    pub ring: Ring,
    /// Its elements.
    pub len: usize,
    /// Where its values lie.
    pub range: RangeInclusive<i64>,
}

/// What a gate costs on wires of given shapes, without what brings them there. The result is not opened unless the gate does it.
///
/// ```
/// use gatework_fss::{Engine, Ring, Wire, WireShape, estimate_gate};
/// let wire = WireShape { ring: Ring::new(64)?, len: 1000, range: i64::MIN..=i64::MAX };
/// let cost = estimate_gate(&[wire], async |engine: &Engine, wires: &[Wire]| engine.signs(&wires[0], &[0]))?;
/// // 57 correction words of 16 bytes a comparison; 56 blocks for its walk, one for its root, and masks of one bit each.
/// assert_eq!(cost.key_bytes, [1000 * 57 * 16; 2]);
/// assert_eq!(cost.prg_blocks, [1000 * (56 + 1) + 8; 2]);
/// # Ok::<(), gatework_fss::Error>(())
/// ```
pub fn estimate_gate<T>(
    wires: &[WireShape],
    gate: impl AsyncFn(&Engine, &[Wire]) -> Result<T>,
) -> Result<Cost> {
    let wire = |shape: &WireShape| {
        if shape.range.is_empty() {
            return Err(Error::Shape { gate: "a wire", what: format!("{:?} holds no value", shape.range) });
        }
        let bound = Bound::proved((*shape.range.start()).into(), (*shape.range.end()).into());
        Ok(Wire::new(shape.ring, shape.len, Vec::new(), bound.in_ring("a wire", shape.ring)?))
    };
    let wires = wires.iter().map(wire).collect::<Result<Vec<_>>>()?;
    // Wires without words exist for the estimate alone, so a range that nobody proved can do no harm.
    estimate(&async |engine: &Engine| gate(engine, &wires).await)
}

/// What the dealer made.
pub struct Dealt<T> {
    /// Each party's stream.
    pub streams: [KeyStream; 2],
    /// What each circuit gave the dealer, and what it cost.
    pub outputs: Vec<Local<T>>,
}

impl<T> Dealt<T> {
    /// The costs of the circuits, as a plan takes them.
    pub fn costs(&self) -> Vec<Cost> {
        self.outputs.iter().map(|local| local.cost).collect()
    }
}

/// Where one party's key material goes while it is dealt.
pub(crate) trait KeySink {
    /// Appends key material, which is secret.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
}

/// A buffer that has room for all of it: one that grew would leave secrets behind.
impl KeySink for Secret<u8> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.make_room(bytes.len());
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// Makes keys section by section.
pub(crate) struct Dealer<'a> {
    randomness: &'a mut Randomness,
    pub(crate) public_key: u128,
}

impl<'a> Dealer<'a> {
    /// A dealer with a public key that no other has.
    pub(crate) fn new(randomness: &'a mut Randomness) -> Self {
        let public_key = randomness.block();
        Self { randomness, public_key }
    }

    /// Both parties' seeds of a section.
    pub(crate) fn seeds(&mut self) -> [u128; 2] {
        [self.randomness.block(), self.randomness.block()]
    }

    /// Writes a circuit's key material, as long as `planned` says, while it is made.
    pub(crate) fn section<C: Circuit>(
        &self,
        circuit: &C,
        planned: &Cost,
        seeds: [u128; 2],
        mut sinks: [&mut dyn KeySink; 2],
    ) -> Result<Local<C::Output>> {
        let section = DealtSection::new(seeds, self.public_key);
        let engine = Engine::new(Role::Dealer(Box::new(RefCell::new(section))), Vec::new());
        let mut written = [0u64; 2];
        let local = run_stepwise(&engine, circuit, |engine| {
            let Role::Dealer(section) = &engine.role else { return Ok(()) };
            let bytes = &mut section.borrow_mut().bytes;
            for ((bytes, sink), written) in bytes.iter_mut().zip(&mut sinks).zip(&mut written) {
                *written += bytes.len() as u64;
                sink.write(bytes)?;
                bytes.wipe();
            }
            Ok(())
        })?;
        for party in Party::BOTH.map(Party::index) {
            on_plan(0, "key bytes", written[party], planned.key_bytes[party])?;
        }
        Ok(local)
    }
}

/// Deals keys for circuits, one section each.
pub fn deal<C: Circuit>(
    randomness: &mut Randomness,
    format: FixedPoint,
    circuits: &[C],
) -> Result<Dealt<C::Output>> {
    let _span = tracing::info_span!("deal", circuits = circuits.len()).entered();
    let mut dealer = Dealer::new(randomness);
    let mut sections = [Vec::new(), Vec::new()];
    let mut outputs = Vec::new();
    for circuit in circuits {
        circuit.fits(format)?;
        let (planned, seeds) = (estimate(circuit)?, dealer.seeds());
        let room = |party: usize| Secret::with_capacity(planned.key_bytes[party] as usize);
        let [mut zero, mut one] = [0, 1].map(room);
        outputs.push(dealer.section(circuit, &planned, seeds, [&mut zero, &mut one])?);
        for (party, bytes) in [zero, one].into_iter().enumerate() {
            sections[party].push((seeds[party], SharedBytes::new(bytes)));
        }
    }
    let [zero, one] = sections;
    let stream = |party: Party, sections| KeyStream::in_memory(party, format, dealer.public_key, sections);
    Ok(Dealt { streams: [stream(Party::Zero, zero), stream(Party::One, one)], outputs })
}

fn on_plan(job: usize, unit: &'static str, found: u64, planned: u64) -> Result<()> {
    if found == planned { Ok(()) } else { Err(Error::OffPlan { job: job.to_string(), unit, found, planned }) }
}

struct Task<'a, T> {
    job: usize,
    engine: Rc<Engine>,
    future: Pin<Box<dyn Future<Output = Result<T>> + 'a>>,
    /// What it waits for.
    requests: Vec<Request>,
    output: Option<T>,
    /// Bytes sent, as counted on the channel.
    sent: u64,
}

/// A super-batch under way.
struct Batch<'a, T> {
    tasks: Vec<Task<'a, T>>,
    phase: u32,
    /// The deal's.
    tag: u64,
}

/// Bytes in front of a message: super-batch, phase, and the number of words under the tag of the deal.
pub(crate) const MESSAGE_HEADER: usize = 16;

/// What both streams of a deal have in common and no other deal has: a constant under its public key, which is fresh for each.
fn deal_tag(keys: &KeyStream) -> u64 {
    let mut block = [0];
    keys.tree_hash().cipher.encrypt(&mut block);
    block[0] as u64
}

/// The tag is mixed into the number of words, which the receiver knows, so that it costs no byte.
fn message_header(tag: u64, batch: usize, phase: u32, words: usize) -> [u8; MESSAGE_HEADER] {
    let mut header = [0; MESSAGE_HEADER];
    header[..4].copy_from_slice(&(batch as u32).to_le_bytes());
    header[4..8].copy_from_slice(&phase.to_le_bytes());
    header[8..].copy_from_slice(&(words as u64 ^ tag).to_le_bytes());
    header
}

/// Evaluates circuits as one of the parties, super-batch by super-batch as planned.
///
/// All opens of a super-batch's phase are one message. While it is under way the other super-batches are evaluated.
/// Ends with an error as soon as anything differs from the plan: bytes read, bytes sent, or the peer's messages, the first of which
/// shows whether its key stream is from the same deal. The keys are used up either way.
pub fn evaluate<C: Circuit>(
    party: Party,
    keys: KeyStream,
    backend: &Arc<dyn Backend>,
    channel: &mut dyn Channel,
    plan: &Plan,
    jobs: Vec<(&C, Inputs)>,
) -> Result<Vec<Local<C::Output>>> {
    if keys.party() != party {
        return Err(Error::WrongParty { found: keys.party(), expected: party });
    }
    on_plan(0, "jobs", jobs.len() as u64, plan.jobs() as u64)?;
    on_plan(0, "sections", keys.sections() as u64, plan.jobs() as u64)?;
    let (tag, format) = (deal_tag(&keys), keys.format());
    let mut tasks = Vec::with_capacity(jobs.len());
    for (job, ((circuit, inputs), section)) in jobs.into_iter().zip(keys.into_sections()).enumerate() {
        circuit.fits(format)?;
        let role = PartyRole { party, keys: RefCell::new(section.read(party)), backend: backend.clone() };
        let engine = Rc::new(Engine::new(Role::Party(Box::new(role)), inputs));
        let own = engine.clone();
        let future = Box::pin(async move { circuit.run(&own).await });
        tasks.push(Some(Task { job, engine, future, requests: Vec::new(), output: None, sent: 0 }));
    }
    let mut batches: Vec<Batch<'_, C::Output>> = plan
        .batches()
        .iter()
        .map(|batch| batch.iter().filter_map(|&job| tasks[job].take()).collect())
        .map(|tasks| Batch { tasks, phase: 0, tag })
        .collect();
    let mut live: Vec<usize> = Vec::new();
    for (index, batch) in batches.iter_mut().enumerate() {
        if batch.advance(index, party, backend.as_ref(), channel)? {
            live.push(index);
        }
    }
    while !live.is_empty() {
        let mut still = Vec::with_capacity(live.len());
        for index in live {
            let batch = &mut batches[index];
            batch.receive(index, party, backend.as_ref(), channel)?;
            if batch.advance(index, party, backend.as_ref(), channel)? {
                still.push(index);
            }
        }
        live = still;
    }
    let tasks = batches.into_iter().flat_map(|batch| batch.tasks);
    tasks.map(|task| task.finish(party, plan)).collect()
}

impl<T> Batch<'_, T> {
    /// Evaluates until every task waits or is done, and sends what they want opened. Whether there was any.
    fn advance(
        &mut self,
        index: usize,
        party: Party,
        backend: &dyn Backend,
        channel: &mut dyn Channel,
    ) -> Result<bool> {
        let _span = tracing::debug_span!("evaluate", batch = index, phase = self.phase).entered();
        let mut context = Context::from_waker(Waker::noop());
        let mut message = message_header(self.tag, index, self.phase, 0).to_vec();
        let mut waiting = false;
        let mut words = 0;
        for task in self.tasks.iter_mut().filter(|task| task.output.is_none()) {
            if let Poll::Ready(output) = task.future.as_mut().poll(&mut context) {
                task.output = Some(output?);
                continue;
            }
            task.requests = task.engine.mailbox.take_outgoing();
            if task.requests.is_empty() {
                return Err(Error::Stuck);
            }
            task.engine.count(|cost| cost.rounds += 1);
            waiting = true;
            for request in task.requests.iter().filter(|request| request.sent_by(party)) {
                let packed = backend.pack(&request.words, request.ring)?;
                task.sent += packed.len() as u64;
                words += request.len;
                message.extend_from_slice(&packed);
            }
        }
        if waiting {
            message[..MESSAGE_HEADER].copy_from_slice(&message_header(self.tag, index, self.phase, words));
            channel.send(message)?;
        }
        Ok(waiting)
    }

    /// Waits for the peer's message of this phase and gives every task what it opened.
    fn receive(
        &mut self,
        index: usize,
        party: Party,
        backend: &dyn Backend,
        channel: &mut dyn Channel,
    ) -> Result<()> {
        let peer = party.peer();
        let message = {
            let _span = tracing::debug_span!("wait", batch = index, phase = self.phase).entered();
            channel.receive()?
        };
        let size = |request: &Request| packed_bytes(request.len, request.ring.bits());
        let requests = self.tasks.iter().flat_map(|task| &task.requests);
        let requests = requests.filter(|request| request.sent_by(peer));
        let (expected, words) =
            requests.fold((0, 0), |(bytes, words), request| (bytes + size(request), words + request.len));
        let header = message_header(self.tag, index, self.phase, words);
        let as_long = message.len() == MESSAGE_HEADER + expected;
        if as_long && message[..8] == header[..8] && message[8..MESSAGE_HEADER] != header[8..] {
            return Err(Error::OutOfStep { what: "the two key streams were not dealt together".into() });
        }
        if !as_long || message[..MESSAGE_HEADER] != header {
            let what = format!(
                "super-batch {index}, phase {}: {expected} bytes were expected, a message of {} bytes came that begins {:?}",
                self.phase,
                message.len(),
                &message[..message.len().min(MESSAGE_HEADER)]
            );
            return Err(Error::OutOfStep { what });
        }
        let mut rest = &message[MESSAGE_HEADER..];
        for task in &mut self.tasks {
            let mut opened = Vec::with_capacity(task.requests.len());
            for request in std::mem::take(&mut task.requests) {
                let from_peer = request.sent_by(peer);
                let mut words = request.words;
                #[cfg(test)]
                let own = words.to_vec();
                if from_peer {
                    let (theirs, after) = rest.split_at(packed_bytes(request.len, request.ring.bits()));
                    rest = after;
                    words.resize(request.len, 0);
                    backend.open(&mut words, theirs, request.ring)?;
                }
                #[cfg(test)]
                crate::testing::record_opened(request.ring, request.from, own, &words);
                opened.push(words);
            }
            if !opened.is_empty() {
                task.engine.mailbox.deliver(opened);
            }
        }
        self.phase += 1;
        Ok(())
    }
}

impl<T> Task<'_, T> {
    /// The output, if all went as planned.
    fn finish(self, party: Party, plan: &Plan) -> Result<Local<T>> {
        let cost = self.engine.cost();
        let planned = plan.cost(self.job).copied().unwrap_or_default();
        if let Role::Party(role) = &self.engine.role {
            let keys = role.keys.borrow();
            on_plan(self.job, "unread key bytes", keys.left(), 0)?;
            on_plan(self.job, "key bytes", keys.used(), planned.key_bytes[party.index()])?;
        }
        on_plan(self.job, "bytes sent", self.sent, planned.sent_bytes[party.index()])?;
        on_plan(self.job, "rounds", cost.rounds, planned.rounds)?;
        on_plan(
            self.job,
            "generator calls",
            cost.prg_blocks[party.index()],
            planned.prg_blocks[party.index()],
        )?;
        let output = self.output.ok_or(Error::Stuck)?;
        Ok(Local { output, cost })
    }
}

/// Deals keys from the operating system's randomness and runs one circuit as both parties, in two threads.
pub fn run_in_process<C>(format: FixedPoint, circuit: C, inputs: [Inputs; 2]) -> Result<[Local<C::Output>; 2]>
where
    C: Circuit<Output: Send> + Sync,
{
    let circuits = [circuit];
    let dealt = deal(&mut Randomness::from_os()?, format, &circuits)?;
    let plan = Plan::new(Limits::default(), &dealt.costs())?;
    let run = |keys: KeyStream, mut channel: MemoryChannel, inputs: Inputs| {
        let party = keys.party();
        let backend: Arc<dyn Backend> = Arc::new(CpuBackend::new(keys.tree_hash()));
        let outputs = evaluate(party, keys, &backend, &mut channel, &plan, vec![(&circuits[0], inputs)])?;
        outputs.into_iter().next().ok_or(Error::Stuck)
    };
    let [zero, one] = MemoryChannel::pair();
    let [zero_inputs, one_inputs] = inputs;
    let [zero_keys, one_keys] = dealt.streams;
    let (zero, one) = std::thread::scope(|scope| {
        let peer = scope.spawn(|| run(one_keys, one, one_inputs));
        (run(zero_keys, zero, zero_inputs), peer.join().unwrap_or(Err(Error::Closed)))
    });
    // The first error is the cause; the other party's is that the channel closed.
    match (zero, one) {
        (Ok(zero), Ok(one)) => Ok([zero, one]),
        (Err(Error::Closed), Err(cause)) | (Err(cause), _) | (_, Err(cause)) => Err(cause),
    }
}
