//! What both parties do alike.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use gatework_fss::backend::{Backend, Promise};
use gatework_fss::executor::{
    Channel, Circuit, Evaluated, Inputs, MESSAGE_HEADER, OpenKeys, Plan, evaluate_with, rehearse,
};
use gatework_fss::secret::scrubbed;
use gatework_fss::{Cost, KeyStream, Party};
use gatework_gpu::{Observer, StageGuard};

use crate::circuit::{ModelWeights, Network};
use crate::disk::{HeldBytes, Keeping, KeyFile, Wiping};
use crate::error::{Error, Result};
use crate::model::PublicModel;
use crate::net::Link;

use super::device_plan::{DevicePlan, Planned, does_not_fit};
use super::lengths::Lengths;
use super::message::Message;
use super::parts::{PartTime, Parts};
use super::summary::{Counted, Summary};
use super::traffic::{Traffic, plan};

/// How the messages with the weights come to the client.
pub(super) enum Weighing {
    /// Over the link.
    Sent,
    /// Over the link, and are noted down.
    Noted(Vec<Vec<u8>>),
    /// They are there already: this side has them, from the first on.
    Here(VecDeque<Vec<u8>>),
    /// They are there already: this side does not send them.
    There,
}

/// A link that tells how far an evaluation is.
struct Watched<'a> {
    link: &'a mut Link,
    weighing: &'a mut Weighing,
    stage: StageGuard<'a>,
    rounds: u64,
    all: u64,
}

impl Channel for Watched<'_> {
    fn send(&mut self, message: gatework_fss::Message) -> gatework_fss::Result<()> {
        match self.weighing {
            Weighing::There => Ok(()),
            Weighing::Sent | Weighing::Noted(_) | Weighing::Here(_) => Channel::send(self.link, message),
        }
    }

    fn receive(&mut self) -> gatework_fss::Result<Vec<u8>> {
        let message = match self.weighing {
            Weighing::Here(kept) => {
                let missing = || Error::OutOfStep { what: "the weights that were kept are not all".into() };
                kept.pop_front().ok_or_else(missing)?
            }
            Weighing::Sent | Weighing::There => self.link.receive()?,
            Weighing::Noted(noted) => {
                let message = self.link.receive()?;
                noted.push(message.clone());
                message
            }
        };
        self.rounds += 1;
        self.stage.counted("rounds", self.rounds, Some(self.all));
        Ok(message)
    }

    fn give_back(&mut self, message: Vec<u8>) {
        self.link.give_back(message);
    }
}

/// One side of a session whose other side is known.
pub(super) struct Pair<'a> {
    model: &'a PublicModel,
    backend: Arc<dyn Backend>,
    /// Weights that are being written beside the keys, which must be done before those go.
    keeping: Option<Keeping>,
    keys: KeyFile,
    pub(super) link: Link,
    whole: Network,
    set_up: Cost,
    /// Shapes alone, for plans.
    shapes: ModelWeights,
    weights: Option<ModelWeights>,
    pub(super) lengths: Arc<Lengths>,
    networks: BTreeMap<usize, Planned>,
    summary: Summary,
    /// Of the last inference.
    parts: Vec<PartTime>,
    /// What this session has of a device's memory.
    promise: Option<Box<dyn Promise>>,
    /// Keys of an earlier inference, which take a while to go.
    wiping: Option<Wiping>,
    pub(super) observer: &'a dyn Observer,
}

impl<'a> Pair<'a> {
    pub(super) fn new(
        model: &'a PublicModel,
        backend: Arc<dyn Backend>,
        keys: KeyFile,
        link: Link,
        lengths: Arc<Lengths>,
    ) -> Result<Self> {
        let whole = model.network(model.longest())?;
        let set_up = rehearse(&whole.set_up())?;
        let (shapes, set_up) = (set_up.output, set_up.cost);
        expect(&link, keys.header().party, &[set_up]);
        Ok(Self {
            promise: backend.promise(),
            model,
            backend,
            keeping: None,
            keys,
            link,
            whole,
            set_up,
            shapes,
            weights: None,
            lengths,
            networks: BTreeMap::new(),
            summary: Summary::default(),
            parts: Vec::new(),
            wiping: None,
            observer: &(),
        })
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

    /// Keeps the messages with the masked weights, beside what comes next.
    pub(super) fn keep_weights(&mut self, messages: Vec<Vec<u8>>) {
        self.keeping = Some(self.keys.keep_weights(messages));
    }

    /// The plan of the device's memory, if there is a device.
    fn device_plan(&self) -> Result<Option<DevicePlan>> {
        DevicePlan::new(&self.backend, self.keys.header().party, &self.whole, self.set_up)
    }

    /// Sets aside so much of the device's memory for this session.
    fn require_device(&mut self, bytes: Option<u64>) -> Result<()> {
        let (Some(promise), Some(bytes)) = (&mut self.promise, bytes) else { return Ok(()) };
        promise.resize(bytes).map_err(does_not_fit)?;
        self.summary.planned_device_bytes = self.summary.planned_device_bytes.max(Some(bytes));
        Ok(())
    }

    /// Gets ready for the masked weights: fails if the device has no room for them.
    pub(super) fn prepare_set_up(&mut self) -> Result<()> {
        // Those of an earlier set-up go first: the promise is of one.
        self.weights = None;
        let bytes = self.lengths.weight_bytes(|| self.device_plan())?;
        self.require_device(bytes.map(|bytes| bytes.set_up))
    }

    /// Keeps no more of the device's memory than the weights take.
    fn settle_device(&mut self) {
        let bytes = self.lengths.weight_bytes(|| self.device_plan());
        if let (Some(promise), Ok(Some(bytes))) = (&mut self.promise, bytes) {
            // Less than before always fits.
            let _ = promise.resize(bytes.held);
        }
    }

    /// Gets ready for inferences with these sections, before the other party is told to begin.
    pub(super) fn prepare(&mut self, sections: &[usize]) -> Result<()> {
        let early = || Error::Peer { what: "it wants an inference before the weights are there".into() };
        self.weights.as_ref().ok_or_else(early)?;
        let (mut costs, mut lengths) =
            (Vec::with_capacity(sections.len()), Vec::with_capacity(sections.len()));
        for &section in sections {
            let entries = self.keys.header().sections.get(section);
            let unknown =
                || Error::Peer { what: format!("it wants section {section}, which is no inference") };
            let entry = entries.filter(|entry| entry.tokens > 0).ok_or_else(unknown)?;
            let tokens = entry.tokens as usize;
            // Before anything is built or rehearsed for it.
            if self.keys.ledger().is_used(section) {
                return Err(Error::Reused { section });
            }
            self.network(tokens)?;
            costs.push(self.networks[&tokens].cost);
            lengths.push(tokens);
        }
        let texts: Vec<(usize, &Planned)> =
            lengths.iter().map(|tokens| (*tokens, &self.networks[tokens])).collect();
        let bytes = self.lengths.peak(|| self.device_plan(), &texts)?;
        self.require_device(bytes)?;
        expect(&self.link, self.keys.header().party, &costs);
        // A full disk or a folder that cannot be written to is found here, before either side has used a key.
        self.keys.prove_writable()
    }

    /// Takes keys for an evaluation that was prepared: from here on they are used.
    pub(super) fn spend(&mut self, sections: &[usize]) -> Result<KeyStream> {
        scrubbed(|| self.keys.spend(sections))
    }

    /// Gets ready for inferences whose keys are held in memory.
    pub(super) fn prepare_to_hold(&mut self, sections: &[usize]) -> Result<()> {
        // Memory that is being wiped is about to be free.
        self.wiping = None;
        self.prepare(sections)?;
        self.backend.settle()?;
        self.keys.require_room(sections, |bytes| self.backend.staging_bytes(bytes).unwrap_or(bytes))
    }

    /// Takes keys for an evaluation that was prepared into memory: from here on they are used.
    pub(super) fn hold(&mut self, sections: Vec<usize>) -> Result<Held> {
        scrubbed(|| self.hold_below(sections))
    }

    fn hold_below(&mut self, sections: Vec<usize>) -> Result<Held> {
        let stage = self.observer.stage("reading keys");
        // A backend with memory of its own reads them into it.
        let (keys, bytes) = match self.backend.staging_bytes(0) {
            Some(_) => (self.keys.spend(&sections)?, None),
            None => {
                let (keys, bytes) = self.keys.hold(&sections)?;
                (keys, Some(bytes))
            }
        };
        let mut keys = OpenKeys::new(keys, &self.backend)?;
        keys.settle()?;
        drop(stage);
        Ok(Held { keys, bytes, sections })
    }

    /// Lets go of keys that are held and will not be used, and of the device's memory that was promised for
    /// them.
    pub(super) fn let_go(&mut self, held: Held) {
        let Held { keys, bytes, .. } = held;
        drop(keys);
        if let Some(bytes) = bytes {
            self.wiping = Some(bytes.wipe());
        }
        self.settle_device();
    }

    /// Evaluates with keys that are held.
    pub(super) fn infer_with(&mut self, held: Held, inputs: Vec<Inputs>) -> Result<Vec<Option<Vec<u64>>>> {
        let Held { keys, bytes, sections } = held;
        let outputs = self.infer_opened(keys, &sections, inputs);
        if let Some(bytes) = bytes {
            self.wiping = Some(bytes.wipe());
        }
        outputs
    }

    /// Knows the network of a length from here on.
    pub(super) fn network(&mut self, tokens: usize) -> Result<()> {
        if !self.networks.contains_key(&tokens) {
            let planned = self.lengths.plan(self.model, &self.shapes, tokens)?;
            self.networks.insert(tokens, planned);
        }
        Ok(())
    }

    pub(super) fn set_up(&mut self, inputs: Inputs, weighing: &mut Weighing) -> Result<()> {
        scrubbed(|| self.set_up_below(inputs, weighing))
    }

    fn set_up_below(&mut self, inputs: Inputs, weighing: &mut Weighing) -> Result<()> {
        let keys = self.keys.set_up()?;
        let circuit = self.whole.set_up();
        let cost = self.set_up;
        let plan = plan(&[cost]);
        let (mut evaluated, counted) = run(
            (&mut self.link, weighing),
            self.observer.stage("masked weights"),
            OpenKeys::new(keys, &self.backend)?,
            &plan,
            &[cost],
            vec![(&circuit, inputs)],
        )?;
        self.summary.set_up.add(counted);
        self.weights = evaluated.outputs.pop().map(|local| local.output);
        self.settle_device();
        self.link.expect_short();
        Ok(())
    }

    /// Evaluates one inference a section. Only the client has results.
    pub(super) fn infer(
        &mut self,
        keys: KeyStream,
        sections: &[usize],
        inputs: Vec<Inputs>,
    ) -> Result<Vec<Option<Vec<u64>>>> {
        let keys = scrubbed(|| OpenKeys::new(keys, &self.backend))?;
        self.infer_opened(keys, sections, inputs)
    }

    fn infer_opened(
        &mut self,
        keys: OpenKeys,
        sections: &[usize],
        inputs: Vec<Inputs>,
    ) -> Result<Vec<Option<Vec<u64>>>> {
        let outputs = scrubbed(|| self.evaluate(keys, sections, inputs));
        self.settle_device();
        outputs
    }

    fn evaluate(
        &mut self,
        keys: OpenKeys,
        sections: &[usize],
        inputs: Vec<Inputs>,
    ) -> Result<Vec<Option<Vec<u64>>>> {
        let weights = self.weights.as_ref().ok_or(Error::NoWeights)?;
        let entries = &self.keys.header().sections;
        let chosen: Vec<&Planned> =
            sections.iter().map(|&section| &self.networks[&(entries[section].tokens as usize)]).collect();
        let costs: Vec<Cost> = chosen.iter().map(|planned| planned.cost).collect();
        let scripts = chosen.iter().map(|planned| planned.script.clone()).collect();
        let (plan, stage) = (plan(&costs).with_scripts(scripts), self.observer.stage("inferring"));
        // All texts of a batch go through the parts in step; the first tells of them.
        let parts = Parts::new(self.observer);
        let begins = |part| parts.begin(part);
        let mut circuits: Vec<_> = chosen.iter().map(|planned| planned.network.inference(weights)).collect();
        if let Some(planned) = chosen.first() {
            circuits[0] = planned.network.inference(weights).telling(&begins);
        }
        let jobs = circuits.iter().zip(inputs).collect();
        let way = (&mut self.link, &mut Weighing::Sent);
        let (evaluated, counted) = run(way, stage, keys, &plan, &costs, jobs)?;
        self.parts = parts.times(&evaluated.moments);
        self.summary.inference.add(counted);
        self.summary.inferences += sections.len();
        Ok(evaluated.outputs.into_iter().map(|local| local.output).collect())
    }

    pub(super) fn summary(&self) -> Summary {
        self.summary
    }

    pub(super) fn parts(&self) -> &[PartTime] {
        &self.parts
    }
}

/// Keys that are held in memory for an evaluation.
pub(super) struct Held {
    keys: OpenKeys,
    /// As they were read, unless the backend has copied them.
    bytes: Option<HeldBytes>,
    sections: Vec<usize>,
}

impl Held {
    /// Texts that they are for.
    pub(super) fn texts(&self) -> usize {
        self.sections.len()
    }
}

/// Lets through what the other party will send for jobs of these costs.
fn expect(link: &Link, party: Party, costs: &[Cost]) {
    let largest = costs.iter().map(|cost| cost.sent_bytes[party.peer().index()]).sum::<u64>();
    link.expect(largest + MESSAGE_HEADER as u64);
}

/// Evaluates with what is counted on the link beside it, which must be what was predicted.
fn run<C: Circuit>(
    (link, weighing): (&mut Link, &mut Weighing),
    stage: StageGuard<'_>,
    keys: OpenKeys,
    plan: &Plan,
    costs: &[Cost],
    jobs: Vec<(&C, Inputs)>,
) -> Result<(Evaluated<C::Output>, Counted)> {
    let party = keys.party();
    let predicted = Traffic::of(plan, costs);
    let (start, bytes, frames, times) = (Instant::now(), link.bytes(), link.frames(), link.times());
    let key_bytes = keys.key_bytes();
    let mut watched =
        Watched { link: &mut *link, weighing: &mut *weighing, stage, rounds: 0, all: predicted.frames };
    let evaluated = evaluate_with(keys, &mut watched, plan, jobs)?;
    drop(watched);
    let (wall, later) = (start.elapsed(), link.times());
    let (waiting, sending) = (later.waiting - times.waiting, later.sending - times.sending);
    let moved = [link.bytes()[0] - bytes[0], link.bytes()[1] - bytes[1]];
    let by_party = match party {
        Party::Zero => moved,
        Party::One => [moved[1], moved[0]],
    };
    let traffic = Traffic { frames: link.frames()[0] - frames[0], bytes: by_party };
    let all_is_sent = matches!(weighing, Weighing::Sent | Weighing::Noted(_));
    if all_is_sent && traffic != predicted {
        return Err(gatework_fss::Error::OffPlan {
            job: "all".into(),
            unit: "bytes in frames",
            found: by_party.iter().sum(),
            planned: predicted.bytes.iter().sum(),
        }
        .into());
    }
    let evaluating = wall.saturating_sub(waiting);
    let stages = evaluated.stages;
    Ok((evaluated, Counted { traffic, key_bytes, wall, evaluating, waiting, sending, stages }))
}
