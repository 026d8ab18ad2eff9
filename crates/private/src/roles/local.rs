//! Dealer, server and client in one process, with nothing between them but its memory.

use std::sync::Arc;
use std::thread;

use gatework_fss::backend::Backend;
use gatework_fss::executor::{Dealer, Inputs, MemoryChannel, Script, evaluate};
use gatework_fss::key::{KeySection, KeySink, KeyStream, Pieces};
use gatework_fss::secret::{SharedBytes, scrubbed};
use gatework_fss::{Party, Randomness, section_key};
use gatework_gpu::Observer;
use zeroize::Zeroizing;

use crate::circuit::Network;
use crate::error::{Error, Result};
use crate::model::{Owner, Tokens};

use super::deal::{DealPlan, SectionSink};
use super::traffic::plan;

/// Keys of both parties in memory.
pub struct LocalKeys {
    /// The masks of the weights, then the keys of each text.
    sections: [Vec<KeySection>; 2],
    public_key: u128,
}

/// One party's sections.
#[derive(Default)]
struct InMemory {
    sections: Vec<(Box<Zeroizing<u128>>, Pieces)>,
}

impl InMemory {
    fn last(&mut self) -> gatework_fss::Result<&mut Pieces> {
        let none = || gatework_fss::Error::Key { what: "it belongs to no section".into() };
        self.sections.last_mut().map(|(_, pieces)| pieces).ok_or_else(none)
    }
}

impl KeySink for InMemory {
    fn write(&mut self, bytes: &[u8]) -> gatework_fss::Result<()> {
        self.last()?.write(bytes)
    }

    fn keep(&mut self, bytes: SharedBytes) -> gatework_fss::Result<()> {
        self.last()?.keep(bytes)
    }

    fn keeps(&self) -> bool {
        true
    }
}

impl SectionSink for InMemory {
    fn begin(&mut self, seed: u128) -> Result<()> {
        self.sections.push((Box::new(Zeroizing::new(seed)), Pieces::default()));
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

impl LocalKeys {
    /// Deals what is planned into this process's memory.
    pub fn deal(
        backend: &Arc<dyn Backend>,
        randomness: &mut Randomness,
        plan: &DealPlan<'_>,
        observer: &dyn Observer,
    ) -> Result<Self> {
        scrubbed(|| {
            let mut dealer = Dealer::new(randomness, backend.clone());
            let mut sinks = [InMemory::default(), InMemory::default()];
            plan.sections(&mut dealer, &mut sinks, observer)?;
            let public_key = dealer.public_key();
            let section = |(number, (seed, pieces)): (usize, (Box<Zeroizing<u128>>, Pieces))| {
                let (length, key) = (pieces.length(), section_key(public_key, number as u64));
                KeySection::new(**seed, key, length, Box::new(pieces.finished()))
            };
            let sections = sinks.map(|sink| sink.sections.into_iter().enumerate().map(section).collect());
            Ok(Self { sections, public_key })
        })
    }

    /// Bytes of key material: the server's, then the client's.
    pub fn key_bytes(&self) -> [u64; 2] {
        [0, 1].map(|party: usize| self.sections[party].iter().map(KeySection::length).sum())
    }

    /// Runs texts of the lengths that keys were planned for through the model, each party on a thread and a
    /// backend of its own. Returns the words of each result.
    pub fn infer<T: Clone + Into<Tokens>>(
        self,
        owner: &Owner,
        planned: &DealPlan<'_>,
        backends: [Arc<dyn Backend>; 2],
        texts: &[T],
    ) -> Result<Vec<Vec<u64>>> {
        let model = planned.model();
        let texts: Vec<Tokens> = texts.iter().cloned().map(T::into).collect();
        let lengths: Vec<usize> = texts.iter().map(|text| text.ids().len()).collect();
        if lengths != planned.tokens() || owner.public().weights_hash() != model.weights_hash() {
            let what =
                format!("keys are for texts of {:?} tokens of a model, others are given", planned.tokens());
            return Err(Error::Unsupported { gate: "a batch", what });
        }
        let encoded = texts.iter().map(|text| Ok(vec![Some(model.encode(text)?)])).collect::<Result<_>>()?;
        let nothing = vec![vec![None]; texts.len()];
        let networks = lengths.iter().map(|&tokens| model.network(tokens)).collect::<Result<Vec<_>>>()?;
        let run = |party: Party, keys: Vec<KeySection>, weights: Inputs, inputs: Vec<Inputs>, channel| {
            let work = Local { planned, networks: &networks, public_key: self.public_key, party };
            scrubbed(|| work.infer(&backends[party.index()], keys, weights, inputs, channel))
        };
        let [zero_keys, one_keys] = self.sections;
        let [zero, one] = MemoryChannel::pair();
        let masked = vec![None; planned.whole().proved().graph().weights().len()];
        let (server, client) = thread::scope(|scope| {
            let server = scope.spawn(|| run(Party::Zero, zero_keys, owner.set_up_inputs(), nothing, zero));
            let client = run(Party::One, one_keys, masked, encoded, one);
            (server.join().unwrap_or(Err(Error::Closed)), client)
        });
        // The first error is the cause; the other party's is that the channel closed.
        let outputs = match (server, client) {
            (Ok(_), Ok(outputs)) => outputs,
            (Err(Error::Closed | Error::Fss(gatework_fss::Error::Closed)), Err(cause))
            | (Err(cause), _)
            | (_, Err(cause)) => {
                return Err(cause);
            }
        };
        let missing = || Error::OutOfStep { what: "the client's result is missing".into() };
        outputs.into_iter().map(|output| output.ok_or_else(missing)).collect()
    }
}

/// A party at work.
struct Local<'a> {
    planned: &'a DealPlan<'a>,
    networks: &'a [Network],
    public_key: u128,
    party: Party,
}

impl Local<'_> {
    fn infer(
        &self,
        backend: &Arc<dyn Backend>,
        keys: Vec<KeySection>,
        weights: Inputs,
        inputs: Vec<Inputs>,
        mut channel: MemoryChannel,
    ) -> Result<Vec<Option<Vec<u64>>>> {
        let (format, mut keys) = (self.planned.model().format(), keys.into_iter());
        let stream = |sections| KeyStream::new(self.party, format, self.public_key, sections);
        let (first, costs) = (keys.by_ref().take(1).collect(), self.planned.costs());
        let (set_up, masks) = (self.planned.whole().set_up(), stream(first));
        let jobs = vec![(&set_up, weights)];
        let mut taken = evaluate(self.party, masks, backend, &mut channel, &plan(&costs[..1]), jobs)?;
        let weights = taken.pop().ok_or(Error::NoWeights)?.output;
        let circuits: Vec<_> = self.networks.iter().map(|network| network.inference(&weights)).collect();
        let scripts =
            circuits.iter().map(|circuit| Ok(Arc::new(Script::of(circuit)?))).collect::<Result<_>>()?;
        let jobs = circuits.iter().zip(inputs).collect();
        let plan = plan(&costs[1..]).with_scripts(scripts);
        let outputs = evaluate(self.party, stream(keys.collect()), backend, &mut channel, &plan, jobs)?;
        Ok(outputs.into_iter().map(|local| local.output).collect())
    }
}
