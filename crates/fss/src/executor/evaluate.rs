//! A party.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::backend::{Backend, Download, Handle, Words};
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, KeysAhead, Request, Role};
use crate::key::KeyStream;
use crate::party::Party;
use crate::ring::packed_bytes;

use super::plan::on_plan;
use super::script::Lookout;
use super::stages::timed;
use super::{Channel, Circuit, Inputs, Local, Moment, OpenKeys, Plan, Stages};

struct Task<'a, T> {
    job: usize,
    evaluator: Rc<Evaluator>,
    future: Pin<Box<dyn Future<Output = Result<T>> + 'a>>,
    /// Where the backend makes keys ready ahead.
    lookout: Option<Lookout>,
    /// What it waits for.
    requests: Vec<Request>,
    output: Option<T>,
    /// Bytes sent, as counted on the channel.
    sent: u64,
}

/// A super-batch under way.
struct Batch<'a, T> {
    index: usize,
    tasks: Vec<Task<'a, T>>,
    phase: u32,
    /// The deal's.
    tag: u64,
    /// The message of this phase, on its way from the backend.
    outgoing: Option<Box<dyn Download>>,
}

/// Bytes in front of a message: super-batch, phase, and the number of words under the tag of the deal.
pub const MESSAGE_HEADER: usize = 16;

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
/// All opens of a super-batch's phase are one message. While it is under way the other super-batches are
/// evaluated. Ends with an error as soon as anything differs from the plan: bytes read, bytes sent, or the
/// peer's messages, the first of which shows whether its key stream is from the same deal. The keys are used
/// up either way.
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
    Ok(evaluate_with(OpenKeys::new(keys, backend)?, channel, plan, jobs)?.outputs)
}

/// The outputs of an evaluation, and where its time went.
pub struct Evaluated<T> {
    /// This party's share of each circuit's output.
    pub outputs: Vec<Local<T>>,
    /// Time by stage.
    pub stages: Stages,
    /// The same, whenever the first circuit was about to go on: at its start and after each of its rounds.
    /// The last is at the end.
    pub moments: Vec<Moment>,
}

/// The same, with keys that the backend has begun to read.
pub fn evaluate_with<C: Circuit>(
    keys: OpenKeys,
    channel: &mut dyn Channel,
    plan: &Plan,
    jobs: Vec<(&C, Inputs)>,
) -> Result<Evaluated<C::Output>> {
    on_plan(0, "jobs", jobs.len() as u64, plan.jobs() as u64)?;
    on_plan(0, "sections", keys.sections.len() as u64, plan.jobs() as u64)?;
    let OpenKeys { party, format, backend, sections, tag, .. } = keys;
    let backend = &backend;
    let words_ahead = backend.words_ahead().map(|words| words / jobs.len().max(1));
    let mut tasks = Vec::with_capacity(jobs.len());
    for (job, ((circuit, inputs), section)) in jobs.into_iter().zip(sections).enumerate() {
        circuit.fits(format)?;
        let role = Role::Party(party, RefCell::new(KeysAhead::new(section)));
        let evaluator = Rc::new(Evaluator::new(role, backend.clone(), inputs));
        let own = evaluator.clone();
        let future = Box::pin(async move { circuit.run(&own).await });
        let lookout = Lookout::new(words_ahead, plan.script(job), circuit)?;
        let requests = Vec::new();
        tasks.push(Some(Task { job, evaluator, future, lookout, requests, output: None, sent: 0 }));
    }
    let batches = plan.batches().iter().enumerate().map(|(index, batch)| Batch {
        index,
        tasks: batch.iter().filter_map(|&job| tasks[job].take()).collect(),
        phase: 0,
        tag,
        outgoing: None,
    });
    let mut batches: Vec<Batch<'_, C::Output>> = batches.collect();
    let mut peer = Peer { party, backend, channel, stages: Stages::default(), moments: Vec::new() };
    let mut live: Vec<usize> = Vec::new();
    for batch in &mut batches {
        if batch.advance(&mut peer)? {
            live.push(batch.index);
        }
    }
    send_what_is_there(&mut batches, &live, &mut peer)?;
    while !live.is_empty() {
        let mut still = Vec::with_capacity(live.len());
        // Messages leave in the order in which the peer expects them, all before this party waits for one.
        for &index in &live {
            batches[index].send(&mut peer)?;
        }
        for index in live {
            let batch = &mut batches[index];
            batch.look_ahead(&mut peer)?;
            batch.receive(&mut peer)?;
            if batch.advance(&mut peer)? {
                still.push(index);
            }
            send_what_is_there(&mut batches, &still, &mut peer)?;
        }
        live = still;
    }
    peer.note_moment();
    let tasks = batches.into_iter().flat_map(|batch| batch.tasks);
    let outputs = tasks.map(|task| task.finish(party, plan)).collect::<Result<_>>()?;
    Ok(Evaluated { outputs, stages: peer.stages, moments: peer.moments })
}

/// Sends messages that need not wait for the other super-batches. The peer expects them in this order, so
/// that none leaves before another.
fn send_what_is_there<T>(batches: &mut [Batch<'_, T>], order: &[usize], peer: &mut Peer<'_>) -> Result<()> {
    for &index in order {
        let batch = &mut batches[index];
        if batch.outgoing.as_ref().is_some_and(|packed| !packed.ready()) {
            break;
        }
        batch.send(peer)?;
    }
    Ok(())
}

/// Who a party is, where it computes and whom it talks to.
struct Peer<'a> {
    party: Party,
    backend: &'a Arc<dyn Backend>,
    channel: &'a mut dyn Channel,
    stages: Stages,
    moments: Vec<Moment>,
}

impl Peer<'_> {
    fn note_moment(&mut self) {
        self.moments.push(Moment { at: Instant::now(), stages: self.stages });
    }
}

impl<T> Batch<'_, T> {
    /// Evaluates until every task waits or is done, and starts the message with what they want opened.
    /// Whether there is one.
    fn advance(&mut self, peer: &mut Peer<'_>) -> Result<bool> {
        let _span = tracing::debug_span!("evaluate", batch = self.index, phase = self.phase).entered();
        let mut context = Context::from_waker(Waker::noop());
        let (mut parts, mut words) = (Vec::new(), 0);
        let mut waiting = false;
        for task in self.tasks.iter_mut().filter(|task| task.output.is_none()) {
            if self.phase == 0 {
                timed(&mut peer.stages.ahead, || task.look_ahead())?;
            }
            if task.job == 0 {
                peer.note_moment();
            }
            let polled = timed(&mut peer.stages.gates, || task.future.as_mut().poll(&mut context));
            if let Poll::Ready(output) = polled {
                task.output = Some(output?);
                continue;
            }
            task.requests = task.evaluator.mailbox.take_outgoing();
            if task.requests.is_empty() {
                return Err(Error::Stuck);
            }
            task.evaluator.count(|cost| cost.rounds += 1);
            waiting = true;
            for request in task.requests.iter().filter(|request| request.sent_by(peer.party)) {
                let part = request.part(true);
                task.sent += packed_bytes(part.len, part.ring.bits()) as u64;
                words += part.len;
                parts.push(part);
            }
        }
        if waiting {
            let header = message_header(self.tag, self.index, self.phase, words);
            let packed = timed(&mut peer.stages.gates, || peer.backend.pack(&header, &parts))?;
            self.outgoing = Some(packed);
        }
        Ok(waiting)
    }

    /// Sends the message that was started, if it has not left yet.
    fn send(&mut self, peer: &mut Peer<'_>) -> Result<()> {
        match self.outgoing.take() {
            Some(packed) => {
                let message = timed(&mut peer.stages.messages, || packed.take())?;
                timed(&mut peer.stages.sending, || peer.channel.send(message))
            }
            None => Ok(()),
        }
    }

    /// Makes the keys of the next phase ready.
    fn look_ahead(&mut self, peer: &mut Peer<'_>) -> Result<()> {
        let mut waiting = self.tasks.iter_mut().filter(|task| task.output.is_none());
        timed(&mut peer.stages.ahead, || waiting.try_for_each(Task::look_ahead))
    }

    /// Waits for the peer's message of this phase and gives every task what it opened.
    fn receive(&mut self, peer: &mut Peer<'_>) -> Result<()> {
        let message = {
            let _span = tracing::debug_span!("wait", batch = self.index, phase = self.phase).entered();
            timed(&mut peer.stages.waiting, || peer.channel.receive())?
        };
        let sender = peer.party.peer();
        self.expect_message(&message, sender)?;
        let requests = self.tasks.iter().flat_map(|task| &task.requests);
        let parts = requests.map(|request| request.part(request.sent_by(sender))).collect();
        let opened =
            timed(&mut peer.stages.opening, || peer.backend.open(parts, &message[MESSAGE_HEADER..]))?;
        peer.channel.give_back(message);
        let mut opened = opened.into_iter();
        for task in &mut self.tasks {
            let requests = std::mem::take(&mut task.requests);
            if requests.is_empty() {
                continue;
            }
            let words =
                |(request, handle): (Request, Handle)| Words::new(peer.backend, request.words.len(), handle);
            task.evaluator.mailbox.deliver(requests.into_iter().zip(opened.by_ref()).map(words).collect());
        }
        self.phase += 1;
        Ok(())
    }

    /// Fails unless a message is the one that belongs here.
    fn expect_message(&self, message: &[u8], sender: Party) -> Result<()> {
        let requests = self.tasks.iter().flat_map(|task| &task.requests);
        let lengths = requests.filter(|request| request.sent_by(sender)).map(|request| {
            let len = request.words.len();
            (packed_bytes(len, request.ring.bits()), len)
        });
        let (expected, words) = lengths.fold((0, 0), |sums, next| (sums.0 + next.0, sums.1 + next.1));
        let header = message_header(self.tag, self.index, self.phase, words);
        let as_long = message.len() == MESSAGE_HEADER + expected;
        if as_long && message[..8] == header[..8] && message[8..MESSAGE_HEADER] != header[8..] {
            return Err(Error::OutOfStep { what: "the two key streams were not dealt together".into() });
        }
        if !as_long || message[..MESSAGE_HEADER] != header {
            let what = format!(
                "super-batch {}, phase {}: {expected} bytes were expected, a message of {} bytes came that begins {:?}",
                self.index,
                self.phase,
                message.len(),
                &message[..message.len().min(MESSAGE_HEADER)]
            );
            return Err(Error::OutOfStep { what });
        }
        Ok(())
    }
}

impl<T> Task<'_, T> {
    /// Tells the keys what one more round asks for.
    fn look_ahead(&mut self) -> Result<()> {
        self.lookout.as_mut().map_or(Ok(()), |lookout| lookout.look_ahead(&self.evaluator))
    }

    /// The output, if all went as planned.
    fn finish(self, party: Party, plan: &Plan) -> Result<Local<T>> {
        let cost = self.evaluator.cost();
        let planned = plan.cost(self.job).copied().unwrap_or_default();
        if let Role::Party(_, keys) = &self.evaluator.role {
            let keys = keys.borrow();
            on_plan(self.job, "keys that no gate asked for", keys.not_asked_for(), 0)?;
            let keys = keys.keys();
            on_plan(self.job, "unread key bytes", keys.left(), 0)?;
            on_plan(self.job, "key bytes", keys.used(), planned.key_bytes[party.index()])?;
            on_plan(self.job, "generator calls", keys.calls(), planned.prg_blocks[party.index()])?;
        }
        on_plan(self.job, "bytes sent", self.sent, planned.sent_bytes[party.index()])?;
        on_plan(self.job, "rounds", cost.rounds, planned.rounds)?;
        let output = self.output.ok_or(Error::Stuck)?;
        Ok(Local { output, cost })
    }
}
