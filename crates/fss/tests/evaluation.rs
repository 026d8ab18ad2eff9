//! Super-batches, messages and everything that can go wrong between two parties.

use std::sync::{Arc, Mutex};
use std::thread;

use gatework_fss::backend::{Backend, MatmulShape};
use gatework_fss::executor::{
    Channel, Circuit, Dealt, Inputs, Limits, Local, MemoryChannel, Plan, deal, evaluate, run_clear,
};
use gatework_fss::gates::Activation;
use gatework_fss::ops::Weights;
use gatework_fss::{
    CpuBackend, Error, Evaluator, FixedPoint, KeyStream, Message, Party, Randomness, Result, Ring,
};

const RING_BITS: u32 = 40;

fn format() -> FixedPoint {
    FixedPoint::new(RING_BITS, 12).unwrap()
}

/// GELU of `len` numbers of party 1, revealed to party 0.
struct Job {
    len: usize,
    gelu: Activation,
}

impl Job {
    fn new(len: usize) -> Self {
        Self { len, gelu: Activation::gelu(12).unwrap() }
    }

    fn words(&self) -> Vec<u64> {
        let ring = format().ring;
        (0..self.len as i128).map(|i| ring.encode(i * 977 % 60_000 - 30_000)).collect()
    }
}

impl Circuit for Job {
    type Output = Option<Vec<u64>>;

    async fn run(&self, evaluator: &Evaluator) -> Result<Self::Output> {
        let x = evaluator.input(Party::One, format().ring, self.len, -(1 << 20)..=1 << 20).await?;
        let y = evaluator.open(self.gelu.apply(evaluator, &x).await?).await?;
        evaluator.reveal(&y, Party::Zero)
    }
}

fn dealt(jobs: &[Job]) -> Dealt<Option<Vec<u64>>> {
    deal(&mut Randomness::from_os().unwrap(), format(), jobs).unwrap()
}

fn party(
    party: Party,
    keys: &KeyStream,
    channel: &mut dyn Channel,
    plan: &Plan,
    jobs: &[Job],
) -> Result<Vec<Local<Option<Vec<u64>>>>> {
    let backend: Arc<dyn Backend> = Arc::new(CpuBackend);
    let inputs = |job: &Job| -> Inputs { vec![(party == Party::One).then(|| job.words())] };
    let keys = keys.insecure_copy_for_measurements()?;
    evaluate(party, keys, &backend, channel, plan, jobs.iter().map(|job| (job, inputs(job))).collect())
}

/// What happened on a channel, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Sent,
    Received,
}

/// The number of a message, and what becomes of it.
type Alteration = (usize, fn(&mut Vec<u8>));

struct Watched {
    inner: MemoryChannel,
    events: Arc<Mutex<Vec<Event>>>,
    /// Alters the message of this number before it is sent.
    alter: Option<Alteration>,
    sent: usize,
}

impl Watched {
    fn new(inner: MemoryChannel) -> Self {
        Self { inner, events: Arc::default(), alter: None, sent: 0 }
    }
}

impl Channel for Watched {
    fn send(&mut self, message: Message) -> Result<()> {
        let mut message = message.into_vec();
        if let Some((number, alter)) = self.alter
            && number == self.sent
        {
            alter(&mut message);
        }
        self.sent += 1;
        self.events.lock().unwrap().push(Event::Sent);
        self.inner.send(message.into())
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let message = self.inner.receive()?;
        self.events.lock().unwrap().push(Event::Received);
        Ok(message)
    }
}

type Outcome = Result<Vec<Local<Option<Vec<u64>>>>>;

/// Runs both parties; party 1's channel may alter a message.
fn both(jobs: &[Job], limits: Limits, alter: Option<Alteration>) -> ([Outcome; 2], Vec<Event>) {
    let dealt = dealt(jobs);
    let plan = Plan::new(limits, &dealt.costs());
    let [zero, one] = MemoryChannel::pair().map(Watched::new);
    let events = zero.events.clone();
    let outcomes = thread::scope(|scope| {
        let run = |who: Party, mut channel: Watched| {
            let (keys, plan) = (&dealt.streams[who.index()], &plan);
            scope.spawn(move || party(who, keys, &mut channel, plan, jobs))
        };
        let zero = run(Party::Zero, zero);
        let one = run(Party::One, Watched { alter, ..one });
        [zero, one].map(|party| party.join().unwrap())
    });
    let events = events.lock().unwrap().clone();
    (outcomes, events)
}

/// What both parties say to keys, a plan and jobs that may not fit together.
fn outcomes(dealt: &Dealt<Option<Vec<u64>>>, plan: &Plan, jobs: &[Job]) -> [Outcome; 2] {
    let [zero, one] = MemoryChannel::pair();
    thread::scope(|scope| {
        let run = |who: Party, mut channel: MemoryChannel| {
            let keys = &dealt.streams[who.index()];
            scope.spawn(move || party(who, keys, &mut channel, plan, jobs))
        };
        [run(Party::Zero, zero), run(Party::One, one)].map(|party| party.join().unwrap())
    })
}

#[test]
fn many_jobs_in_super_batches_give_what_each_gives_alone() {
    let jobs: Vec<Job> = [1, 100, 33, 64, 5].map(Job::new).into();
    for jobs_in_batch in [1, 2, 5] {
        let limits = Limits { jobs: jobs_in_batch, ..Limits::default() };
        let ([zero, one], events) = both(&jobs, limits, None);
        for (local, job) in zero.unwrap().into_iter().zip(&jobs) {
            let clear = run_clear(job, vec![Some(job.words())]).unwrap();
            assert_eq!((local.output, local.cost), (clear.output, clear.cost));
        }
        assert!(one.unwrap().iter().all(|local| local.output.is_none()));
        // Five phases of one message for each super-batch, however many jobs it has.
        let batches = jobs.len().div_ceil(jobs_in_batch as usize);
        assert_eq!(events.iter().filter(|event| **event == Event::Sent).count(), 5 * batches);
    }
}

#[test]
fn a_super_batch_is_evaluated_while_another_waits() {
    let jobs: Vec<Job> = [10, 20, 30].map(Job::new).into();
    let limits = Limits { jobs: 1, ..Limits::default() };
    let (_, events) = both(&jobs, limits, None);
    // Three messages are out before the first reply is waited for, and from then on there are always two
    // under way.
    assert_eq!(events[..3], [Event::Sent; 3]);
    let mut under_way = 0i32;
    for (index, event) in events.iter().enumerate() {
        under_way += if *event == Event::Sent { 1 } else { -1 };
        assert!(under_way >= 2 || index > events.len() - 6 || index < 2, "{events:?}");
    }
    let single = both(&jobs[..1], limits, None).1;
    assert_eq!(single[..4], [Event::Sent, Event::Received, Event::Sent, Event::Received]);
}

#[test]
fn messages_that_do_not_belong_are_refused() {
    let jobs = [Job::new(50)];
    let alterations: [fn(&mut Vec<u8>); 4] = [
        |message| message.push(0),
        |message| message.truncate(20),
        |message| message[0] ^= 1,
        |message| message[4] ^= 1,
    ];
    for alter in alterations {
        let ([zero, one], _) = both(&jobs, Limits::default(), Some((2, alter)));
        assert!(matches!(zero, Err(Error::OutOfStep { .. })), "{:?}", zero.err());
        assert!(matches!(one, Err(Error::Closed)), "{:?}", one.err());
    }
}

#[test]
fn a_peer_that_goes_away_is_an_error() {
    let jobs = [Job::new(5)];
    let dealt = dealt(&jobs);
    let plan = Plan::new(Limits::default(), &dealt.costs());
    let [mut zero, one] = MemoryChannel::pair();
    drop(one);
    let outcome = party(Party::Zero, &dealt.streams[0], &mut zero, &plan, &jobs);
    assert!(matches!(outcome, Err(Error::Closed)));
}

#[test]
fn keys_of_the_other_party_or_of_another_circuit_are_refused() {
    let jobs = [Job::new(5)];
    let dealt = dealt(&jobs);
    let plan = Plan::new(Limits::default(), &dealt.costs());
    let refused = |keys: &KeyStream, jobs: &[Job]| {
        let [mut zero, _] = MemoryChannel::pair();
        party(Party::Zero, keys, &mut zero, &plan, jobs).err()
    };
    let swapped = refused(&dealt.streams[1], &jobs);
    assert_eq!(swapped.unwrap().to_string(), "the key stream is for party 1, this process is party 0");
    let two = [Job::new(5), Job::new(5)];
    assert!(matches!(refused(&dealt.streams[0], &two), Some(Error::OffPlan { unit: "jobs", .. })));
    // A larger circuit runs out of key.
    let larger = [Job::new(500)];
    let larger_plan = Plan::new(Limits::default(), &[gatework_fss::executor::estimate(&larger[0]).unwrap()]);
    for outcome in outcomes(&dealt, &larger_plan, &larger) {
        assert!(matches!(outcome, Err(Error::Key { .. } | Error::Closed)));
    }
}

#[test]
fn keys_of_two_deals_are_refused() {
    let jobs = [Job::new(50)];
    let (Dealt { streams: [zero, _], outputs }, Dealt { streams: [_, one], .. }) =
        (dealt(&jobs), dealt(&jobs));
    // Of one circuit, so that everything but the deal fits: lengths, costs and the plan.
    let plan = Plan::new(Limits::default(), &dealt(&jobs).costs());
    for outcome in outcomes(&Dealt { streams: [zero, one], outputs }, &plan, &jobs) {
        let error = outcome.expect_err("streams of two deals");
        assert!(matches!(error, Error::OutOfStep { .. }), "{error}");
        assert!(error.to_string().contains("not dealt together"), "{error}");
    }
}

#[test]
fn a_plan_of_another_cost_fails_closed() {
    let jobs = [Job::new(50)];
    let dealt = dealt(&jobs);
    let mut cost = dealt.costs()[0];
    cost.key_bytes[0] += 1;
    let plan = Plan::new(Limits::default(), &[cost]);
    let [zero, one] = outcomes(&dealt, &plan, &jobs);
    assert!(matches!(zero, Err(Error::OffPlan { unit: "key bytes", .. })));
    assert!(one.is_ok());
}

const INNER: usize = 6;
const COLUMNS: usize = 4;

/// Masks party 0's weights, once.
struct Setup;

impl Circuit for Setup {
    type Output = Weights;

    async fn run(&self, evaluator: &Evaluator) -> Result<Weights> {
        evaluator.weights(Party::Zero, format().ring, INNER * COLUMNS, -4096..=4096).await
    }
}

/// One row of party 1's times the weights, as a role has them.
struct Inference(Weights);

impl Circuit for Inference {
    type Output = Option<Vec<u64>>;

    async fn run(&self, evaluator: &Evaluator) -> Result<Self::Output> {
        let x = evaluator.input(Party::One, format().ring, INNER, -4096..=4096).await?;
        let mask = evaluator.mask_share(&x)?;
        let shape = MatmulShape { batch: 1, rows: 1, inner: INNER, columns: COLUMNS };
        let product = evaluator.matmul(&x, &mask, self.0.wire(), self.0.mask(), shape)?;
        evaluator.reveal(&evaluator.open(product).await?, Party::One)
    }
}

/// Runs one circuit as both parties, each with what it has.
fn run_both<C: Circuit<Output: Send> + Sync>(
    dealt: &Dealt<C::Output>,
    circuits: [&C; 2],
    inputs: [Inputs; 2],
) -> [C::Output; 2]
where
    C::Output: Sync,
{
    let plan = Plan::new(Limits::default(), &dealt.costs());
    let [zero, one] = MemoryChannel::pair();
    let [zero_inputs, one_inputs] = inputs;
    let run = |who: Party, mut channel: MemoryChannel, inputs: Inputs| {
        let keys = dealt.streams[who.index()].insecure_copy_for_measurements().unwrap();
        let backend: Arc<dyn Backend> = Arc::new(CpuBackend);
        let jobs = vec![(circuits[who.index()], inputs)];
        evaluate(who, keys, &backend, &mut channel, &plan, jobs).unwrap().remove(0).output
    };
    thread::scope(|scope| {
        let peer = scope.spawn(|| run(Party::One, one, one_inputs));
        let zero = run(Party::Zero, zero, zero_inputs);
        [zero, peer.join().unwrap()]
    })
}

#[test]
fn weights_are_masked_once_and_used_in_several_inferences() {
    let ring = format().ring;
    let encode = |values: &[i64]| values.iter().map(|&value| ring.encode(value.into())).collect::<Vec<_>>();
    let weights: Vec<i64> = (0..(INNER * COLUMNS) as i64).map(|i| i * 131 % 900 - 400).collect();
    let setup = deal(&mut Randomness::from_os().unwrap(), format(), &[Setup]).unwrap();
    let held = run_both(&setup, [&Setup, &Setup], [vec![Some(encode(&weights))], vec![None]]).map(Inference);
    let [dealer] = <[_; 1]>::try_from(setup.outputs)
        .ok()
        .map(|outputs| outputs.map(|local| Inference(local.output)))
        .unwrap();
    for inference in 0..3i64 {
        let row: Vec<i64> = (0..INNER as i64).map(|i| (i + inference) * 77 - 200).collect();
        let dealt =
            deal(&mut Randomness::from_os().unwrap(), format(), std::slice::from_ref(&dealer)).unwrap();
        let inputs = [vec![None], vec![Some(encode(&row))]];
        let [_, found] = run_both(&dealt, held.each_ref(), inputs);
        let cell = |column: usize| (0..INNER).map(|k| row[k] * weights[k * COLUMNS + column]).sum::<i64>();
        assert_eq!(found.unwrap(), encode(&(0..COLUMNS).map(cell).collect::<Vec<_>>()));
    }
}

#[test]
fn a_ring_of_the_wrong_size_is_an_error_not_a_panic() {
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, Ring::new(20)?, 4, 0..=9).await?;
        let y = evaluator.input(Party::One, Ring::new(21)?, 4, 0..=9).await?;
        x.plus(&y)
    };
    let outcome = run_clear(&circuit, vec![Some(vec![1; 4]), Some(vec![1; 4])]);
    assert!(matches!(outcome, Err(Error::Shape { .. })));
}
