//! What dealer and client may know of a model.

use gatework_fss::FixedPoint;
use serde::{Deserialize, Serialize};

use crate::circuit::Network;
use crate::cost::LARGEST_SCORES;
use crate::error::{Error, Result};
use crate::graph::{FRACTION, Family, Head, Model};
use crate::range::{Choices, Clamped, Proved, Room};

use super::refused;

/// As errors call it.
const NAME: &str = "the model";
/// The document's version.
const VERSION: u32 = 2;
/// Limits of what is read from outside, far above any model that is evaluated: nothing is allocated before
/// they are checked.
const MOST_LAYERS: usize = 512;
const MOST_WEIGHTS: u128 = 1 << 33;
const MOST_TOKEN_WORDS: usize = 1 << 28;
const LEAST_BITS: u32 = 32;

/// A model without its weights: shapes, number format, the choice for each truncation, and hashes. Serialised
/// as JSON.
///
/// Whoever reads it can build the network of any length up to the longest, deal for it, and take part in it.
/// That its choices are proved, only the owner of the weights can check: see [`super::Owner`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Description", into = "Description")]
pub struct PublicModel {
    model: Model,
    format: FixedPoint,
    choices: Choices,
    graph: [u8; 32],
    weights: [u8; 32],
}

/// The document.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    version: u32,
    family: Family,
    head: Head,
    layers: usize,
    heads: usize,
    width: usize,
    inner: usize,
    vocabulary: usize,
    types: usize,
    longest: usize,
    epsilon: f64,
    bits: u32,
    fraction: u32,
    /// A letter for every node: n, g or r.
    rooms: String,
    clamps: Vec<Clamped>,
    /// BLAKE3 in hexadecimal.
    graph: String,
    weights: String,
}

impl PublicModel {
    /// `model.context` is the longest sequence.
    pub(super) fn new(model: &Model, choices: &Choices, weights: [u8; 32]) -> Result<Self> {
        let (format, choices) = (model.format()?, choices.clone());
        let model = Model { name: NAME, ..*model };
        let mut public = Self { model, format, choices, graph: [0; 32], weights };
        public.check()?;
        public.graph = public.network(public.longest())?.hash();
        Ok(public)
    }

    /// The same choices in another ring, whether or not they are proved there.
    #[cfg(test)]
    pub(super) fn claiming_bits(&self, bits: u32) -> Self {
        Self::new(&Model { bits, ..self.model }, &self.choices, self.weights).expect("a description")
    }

    /// Reads the document.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        serde_json::from_slice(text).map_err(|error| refused(format!("the public model: {error}")))
    }

    /// The document.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|error| refused(format!("the public model: {error}")))
    }

    fn check(&self) -> Result<()> {
        let model = &self.model;
        model.check(model.context)?;
        let [width, inner, vocabulary] =
            [model.width, model.inner, model.vocabulary].map(|size| size as u128);
        let classes = if let Head::Classes(classes) = model.head { classes as u128 } else { 0 };
        let layer = 4 * width * width + 2 * width * inner;
        let weights = model.layers as u128 * layer + (vocabulary + width + classes) * width;
        let tokens = model.context.checked_mul(model.vocabulary);
        let scores = model.attention().scores(model.heads, model.context);
        let fits = model.layers <= MOST_LAYERS
            && weights <= MOST_WEIGHTS
            && tokens.is_some_and(|words| words <= MOST_TOKEN_WORDS)
            && scores <= LARGEST_SCORES
            && model.bits >= LEAST_BITS
            && model.family != Family::Llama;
        if fits {
            return Ok(());
        }
        Err(refused(format!("the public model: its shape is beyond what is evaluated: {model:?}")))
    }

    /// The network for a sequence of that many tokens.
    pub fn network(&self, tokens: usize) -> Result<Network> {
        Ok(Network::new(Proved::claimed(&self.model.graph(tokens)?, &self.choices)?))
    }

    /// The longest sequence.
    pub fn longest(&self) -> usize {
        self.model.context
    }

    /// The head, whose output goes to the client.
    pub fn head(&self) -> Head {
        self.model.head
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Its words: token ids are below that.
    pub fn vocabulary(&self) -> usize {
        self.model.vocabulary
    }

    /// How its layers are made.
    pub fn family(&self) -> Family {
        self.model.family
    }

    /// Its number format.
    pub fn format(&self) -> FixedPoint {
        self.format
    }

    /// BLAKE3 of the network for the longest sequence, with all that is public of its proof.
    pub fn graph_hash(&self) -> [u8; 32] {
        self.graph
    }

    /// BLAKE3 of the weights as integers, under the owner's [`Salt`](super::Salt).
    pub fn weights_hash(&self) -> [u8; 32] {
        self.weights
    }

    /// Where operands are clamped, by their number: none if everything is proved.
    pub fn clamps(&self) -> usize {
        self.choices.clamps.len()
    }
}

impl TryFrom<Description> for PublicModel {
    type Error = Error;

    fn try_from(given: Description) -> Result<Self> {
        if (given.version, given.fraction) != (VERSION, FRACTION) {
            let (version, fraction) = (given.version, given.fraction);
            return Err(refused(format!(
                "version {version} with {fraction} fractional bits; version {VERSION} with {FRACTION} is read"
            )));
        }
        let model = Model {
            name: NAME,
            family: given.family,
            layers: given.layers,
            heads: given.heads,
            width: given.width,
            inner: given.inner,
            vocabulary: given.vocabulary,
            types: given.types,
            context: given.longest,
            head: given.head,
            epsilon: given.epsilon,
            bits: given.bits,
        };
        let rooms = given.rooms.chars().map(room).collect::<Result<Vec<_>>>()?;
        let choices = Choices { rooms, clamps: given.clamps };
        let public = Self::new(&model, &choices, digest(&given.weights)?)?;
        if public.graph != digest(&given.graph)? {
            return Err(refused("its graph's hash is not that of its shape and choices"));
        }
        Ok(public)
    }
}

impl From<PublicModel> for Description {
    fn from(public: PublicModel) -> Self {
        let Model {
            family,
            head,
            layers,
            heads,
            width,
            inner,
            vocabulary,
            types,
            context,
            epsilon,
            bits,
            ..
        } = public.model;
        let letter = |room: &Room| match room {
            Room::Narrow => 'n',
            Room::Gap => 'g',
            Room::Ring => 'r',
        };
        Self {
            version: VERSION,
            family,
            head,
            layers,
            heads,
            width,
            inner,
            vocabulary,
            types,
            longest: context,
            epsilon,
            bits,
            fraction: FRACTION,
            rooms: public.choices.rooms.iter().map(letter).collect(),
            clamps: public.choices.clamps,
            graph: blake3::Hash::from(public.graph).to_hex().to_string(),
            weights: blake3::Hash::from(public.weights).to_hex().to_string(),
        }
    }
}

fn room(letter: char) -> Result<Room> {
    match letter {
        'n' => Ok(Room::Narrow),
        'g' => Ok(Room::Gap),
        'r' => Ok(Room::Ring),
        other => Err(refused(format!("a room '{other}'; there are n, g and r"))),
    }
}

fn digest(text: &str) -> Result<[u8; 32]> {
    let hash = blake3::Hash::from_hex(text);
    hash.map(Into::into).map_err(|error| refused(format!("a hash that is none: {error}")))
}
