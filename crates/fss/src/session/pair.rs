//! What both parties do alike.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Backend, CpuBackend};
use crate::disk::KeyFile;
use crate::error::{Error, Result};
use crate::graph::{ModelWeights, Network};
use crate::key::KeyStream;
use crate::model::PublicModel;
use crate::net::Link;
use crate::party::Party;
use crate::runtime::{Channel, Circuit, Inputs, Local, MESSAGE_HEADER, Plan, evaluate, rehearse};
use crate::tally::Cost;

use super::message::Message;
use super::plan::{Traffic, WHOLE, plan};
use super::roles::Summary;

/// What evaluations took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Frames and bytes, as they were counted on the link.
    pub traffic: Traffic,
    /// Bytes of keys that were read.
    pub key_bytes: u64,
    /// All in all.
    pub wall: Duration,
    /// Evaluating gates.
    pub evaluating: Duration,
    /// Waiting for the other party.
    pub waiting: Duration,
    /// Encrypting and writing, beside the others.
    pub sending: Duration,
}

impl Counted {
    fn add(&mut self, other: Self) {
        *self = Self {
            traffic: self.traffic.plus(other.traffic),
            key_bytes: self.key_bytes + other.key_bytes,
            wall: self.wall + other.wall,
            evaluating: self.evaluating + other.evaluating,
            waiting: self.waiting + other.waiting,
            sending: self.sending + other.sending,
        };
    }
}

/// How far an evaluation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounds {
    /// Rounds that are over.
    pub over: u64,
    /// All of them.
    pub all: u64,
}

/// A link that tells how far it is.
struct Watched<'a> {
    link: &'a mut Link,
    watch: &'a mut (dyn FnMut(Rounds) + Send),
    rounds: Rounds,
}

impl Channel for Watched<'_> {
    fn send(&mut self, message: Vec<u8>) -> Result<()> {
        self.link.send(message)
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let message = self.link.receive()?;
        self.rounds.over += 1;
        (self.watch)(self.rounds);
        Ok(message)
    }
}

/// One side of a session whose other side is known.
pub(super) struct Pair<'a> {
    model: &'a PublicModel,
    keys: KeyFile,
    pub(super) link: Link,
    whole: Network,
    /// Shapes alone, for plans.
    shapes: ModelWeights,
    weights: Option<ModelWeights>,
    networks: BTreeMap<usize, (Network, Cost)>,
    summary: Summary,
    pub(super) watch: Box<dyn FnMut(Rounds) + Send + 'a>,
}

impl<'a> Pair<'a> {
    pub(super) fn new(model: &'a PublicModel, keys: KeyFile, link: Link) -> Result<Self> {
        let whole = model.network(model.longest())?;
        let shapes = rehearse(&whole.set_up())?.output;
        let (weights, networks, summary) = (None, BTreeMap::new(), Summary::default());
        Ok(Self { model, keys, link, whole, shapes, weights, networks, summary, watch: Box::new(|_| ()) })
    }

    pub(super) fn model(&self) -> &'a PublicModel {
        self.model
    }

    pub(super) fn keys(&self) -> &KeyFile {
        &self.keys
    }

    pub(super) fn weight_count(&self) -> usize {
        self.whole.proved().graph().weights().len()
    }

    pub(super) fn send(&mut self, message: &Message) -> Result<()> {
        self.link.send(message.encode())
    }

    pub(super) fn receive(&mut self) -> Result<Message> {
        match Message::decode(&self.link.receive()?)? {
            Message::Refusal(why) => Err(Error::Refused { why }),
            message => Ok(message),
        }
    }

    /// Sends a request and waits for consent.
    pub(super) fn ask(&mut self, request: &Message) -> Result<()> {
        self.send(request)?;
        match self.receive()? {
            Message::Ready => Ok(()),
            other => Err(Error::Peer { what: format!("it answered {request} with {other}") }),
        }
    }

    /// Takes keys for an evaluation: from here on they are used.
    pub(super) fn spend(&mut self, sections: &[usize]) -> Result<KeyStream> {
        for &section in sections {
            let entries = self.keys.header().sections.get(section);
            let unknown =
                || Error::Peer { what: format!("it wants section {section}, which is no inference") };
            let entry = entries.filter(|entry| entry.tokens > 0).ok_or_else(unknown)?;
            self.network(entry.tokens as usize)?;
        }
        self.keys.spend(sections)
    }

    fn network(&mut self, tokens: usize) -> Result<()> {
        if !self.networks.contains_key(&tokens) {
            let network = self.model.network(tokens)?;
            let cost = rehearse(&network.inference(&self.shapes))?.cost;
            self.networks.insert(tokens, (network, cost));
        }
        Ok(())
    }

    pub(super) fn set_up(&mut self, inputs: Inputs) -> Result<()> {
        let keys = self.keys.set_up()?;
        let circuit = self.whole.set_up();
        let cost = rehearse(&circuit)?.cost;
        let plan = Plan::new(WHOLE, &[cost])?;
        let (mut outputs, counted) =
            run(&mut self.link, &mut self.watch, keys, &plan, &[cost], vec![(&circuit, inputs)])?;
        self.summary.set_up.add(counted);
        self.weights = outputs.pop().map(|local| local.output);
        Ok(())
    }

    /// Evaluates one inference a section. Only the client has results.
    pub(super) fn infer(
        &mut self,
        keys: KeyStream,
        sections: &[usize],
        inputs: Vec<Inputs>,
    ) -> Result<Vec<Option<Vec<u64>>>> {
        let early = || Error::Peer { what: "it wants an inference before the weights are there".into() };
        let weights = self.weights.as_ref().ok_or_else(early)?;
        let entries = &self.keys.header().sections;
        let chosen: Vec<&(Network, Cost)> =
            sections.iter().map(|&section| &self.networks[&(entries[section].tokens as usize)]).collect();
        let costs: Vec<Cost> = chosen.iter().map(|(_, cost)| *cost).collect();
        let circuits: Vec<_> = chosen.iter().map(|(network, _)| network.inference(weights)).collect();
        let jobs = circuits.iter().zip(inputs).collect();
        let (outputs, counted) = run(&mut self.link, &mut self.watch, keys, &plan(&costs)?, &costs, jobs)?;
        self.summary.inference.add(counted);
        self.summary.inferences += sections.len();
        Ok(outputs.into_iter().map(|local| local.output).collect())
    }

    pub(super) fn finish(self) -> Result<Summary> {
        self.link.flush()?;
        Ok(self.summary)
    }
}

/// Evaluates with what is counted on the link beside it, which must be what was predicted.
fn run<C: Circuit>(
    link: &mut Link,
    watch: &mut (dyn FnMut(Rounds) + Send),
    keys: KeyStream,
    plan: &Plan,
    costs: &[Cost],
    jobs: Vec<(&C, Inputs)>,
) -> Result<(Vec<Local<C::Output>>, Counted)> {
    let party = keys.party();
    let predicted = Traffic::of(plan, costs);
    let largest = costs.iter().map(|cost| cost.sent_bytes[party.peer().index()]).sum::<u64>();
    link.expect_at_most(largest + MESSAGE_HEADER as u64);
    let (start, bytes, frames, times) = (Instant::now(), link.bytes(), link.frames(), link.times());
    let key_bytes = keys.key_bytes();
    let backend: Arc<dyn Backend> = Arc::new(CpuBackend::new(keys.tree_hash()));
    let rounds = Rounds { over: 0, all: predicted.frames };
    let mut watched = Watched { link: &mut *link, watch, rounds };
    let outputs = evaluate(party, keys, &backend, &mut watched, plan, jobs)?;
    let (wall, later) = (start.elapsed(), link.times());
    let (waiting, sending) = (later.waiting - times.waiting, later.sending - times.sending);
    let moved = [link.bytes()[0] - bytes[0], link.bytes()[1] - bytes[1]];
    let by_party = match party {
        Party::Zero => moved,
        Party::One => [moved[1], moved[0]],
    };
    let traffic = Traffic { frames: link.frames()[0] - frames[0], bytes: by_party };
    if traffic != predicted {
        return Err(Error::OffPlan {
            job: "all".into(),
            unit: "bytes in frames",
            found: by_party.iter().sum(),
            planned: predicted.bytes.iter().sum(),
        });
    }
    let evaluating = wall.saturating_sub(waiting);
    Ok((outputs, Counted { traffic, key_bytes, wall, evaluating, waiting, sending }))
}
