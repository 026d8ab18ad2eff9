//! A directory of Hugging Face's.

use std::path::Path;

use gatework_fss::secret::Secret;

use crate::error::{Error, Result};
use crate::graph::{Family, Graph, Head, Model};
use crate::range::{Facts, Proved, Truncation, Trust, Unproved};

use super::config::Config;
use super::exact::ExactWeights;
use super::public::PublicModel;
use super::quantised::{Keeps, QuantisedWeights};
use super::salt::Salt;
use super::tensors::Tensors;
use super::{bert, gpt2, refused};

/// Rings that are tried for a model, narrowest first. The last is used with clamps if none is proved without.
const RINGS: std::ops::RangeInclusive<u32> = 37..=64;

/// A configuration and weights, as they were downloaded.
pub struct Checkpoint {
    config: Config,
    file: Secret<u8>,
}

/// Choices about a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// The output for the client, if it is not the one that the checkpoint was trained for.
    pub head: Option<Head>,
    /// Bits of the ring, if not the narrowest that is proved.
    pub bits: Option<u32>,
    /// The facts about weights that proofs of ranges may use.
    pub trust: Trust,
    /// The salt of the weights' hash.
    pub salt: Salt,
}

impl Checkpoint {
    /// Reads `config.json` and `model.safetensors`.
    pub fn load(directory: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read(&path).map_err(|error| refused(format!("{}: {error}", path.display())))
        };
        Self::from_bytes(&read("config.json")?, read("model.safetensors")?)
    }

    /// The same from the files' bytes.
    pub fn from_bytes(config: &[u8], safetensors: Vec<u8>) -> Result<Self> {
        let checkpoint = Self { config: Config::parse(config)?, file: Secret::new(safetensors) };
        checkpoint.tensors()?;
        Ok(checkpoint)
    }

    fn tensors(&self) -> Result<Tensors<'_>> {
        let prefix = match self.config.family() {
            Family::Bert => bert::PREFIX,
            Family::Gpt | Family::Llama => gpt2::PREFIX,
        };
        Tensors::parse(&self.file, prefix)
    }

    /// The longest sequence that it was trained for.
    pub fn context(&self) -> usize {
        self.config.context()
    }

    /// What the checkpoint was trained to give.
    fn head(&self) -> Result<Head> {
        match self.config.family() {
            Family::Bert => bert::head(&self.tensors()?),
            Family::Gpt | Family::Llama => Ok(Head::NextWord),
        }
    }

    fn read(&self, model: &Model, graph: &Graph, keeps: Keeps) -> Result<(QuantisedWeights, ExactWeights)> {
        match model.family {
            Family::Bert => bert::weights(&self.tensors()?, model, graph, keeps),
            Family::Gpt | Family::Llama => gpt2::weights(&self.tensors()?, model, graph, keeps),
        }
    }

    fn quantised(&self, model: &Model, graph: &Graph) -> Result<QuantisedWeights> {
        Ok(self.read(model, graph, Keeps::Integers)?.0)
    }

    /// The public description for dealer and client, for sequences of up to `longest` tokens.
    ///
    /// Measures the weights and takes the narrowest ring in which nothing has to be clamped and every
    /// truncation is short; if there is none, the narrowest without clamps; if there is none, 64 bits with
    /// clamps.
    pub fn public(&self, longest: usize, options: &Options) -> Result<PublicModel> {
        let head = options.head.map_or_else(|| self.head(), Ok)?;
        let widest = self.config.model(longest, head, *RINGS.end())?;
        let weights = self.quantised(&widest, &widest.graph(longest)?)?;
        publish(&widest, &weights.salted(options.salt), options.bits, options.trust)
    }

    /// The weights as integers, for the model that was made public.
    pub fn weights(&self, public: &PublicModel) -> Result<QuantisedWeights> {
        let model = self.config.model(public.longest(), public.head(), public.format().ring.bits())?;
        self.quantised(&model, &model.graph(public.longest())?)
    }

    /// The weights as they are, for the model that was made public: to see what fixed point makes of them.
    pub fn exact_weights(&self, public: &PublicModel) -> Result<ExactWeights> {
        let model = self.config.model(public.longest(), public.head(), public.format().ring.bits())?;
        Ok(self.read(&model, &model.graph(public.longest())?, Keeps::Exact)?.1)
    }
}

/// What is public of a model with these weights, whose context is the longest sequence, in the ring that was
/// chosen or in the narrowest.
pub(super) fn publish(
    widest: &Model,
    weights: &QuantisedWeights,
    bits: Option<u32>,
    trust: Trust,
) -> Result<PublicModel> {
    let facts = weights.facts(&widest.graph(widest.context)?)?;
    let proved = match bits {
        Some(bits) => prove(&Model { bits, ..*widest }, &facts, trust, Unproved::Clamp)?,
        None => narrowest(widest, &facts, trust)?,
    };
    let model = Model { bits: proved.graph().format().ring.bits(), ..*widest };
    PublicModel::new(&model, proved.choices(), weights.hash())
}

fn prove(model: &Model, facts: &Facts, trust: Trust, unproved: Unproved) -> Result<Proved> {
    Proved::from_facts(&model.graph(model.context)?, facts, trust, unproved)
}

fn narrowest(model: &Model, facts: &Facts, trust: Trust) -> Result<Proved> {
    let mut faithful = None;
    for bits in RINGS {
        match prove(&Model { bits, ..*model }, facts, trust, Unproved::Refuse) {
            Ok(proved) if proved.truncations().all(|(_, kind)| kind == Truncation::Gap) => return Ok(proved),
            Ok(proved) => faithful = faithful.or(Some(proved)),
            Err(Error::Unproved { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    faithful.map_or_else(|| prove(model, facts, trust, Unproved::Clamp), Ok)
}
