//! Shapes of well-known transformers.

use gatework_fss::FixedPoint;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

use super::builder::{MOST_COLUMNS, MOST_TOKENS};
use super::{ActivationKind, Graph, GraphBuilder, Mask, NodeId, NormKind, Part};

/// How the layers of a model are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Full attention, GELU, LayerNorm behind each sum.
    Bert,
    /// Causal attention, GELU by the hyperbolic tangent, LayerNorm before each branch.
    Gpt,
    /// Causal attention with rotated queries and keys, gated SiLU, RMSNorm before each branch.
    Llama,
}

/// The head behind the last layer, whose output goes to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// Scores of that many classes: a linear map, tanh and another linear map of the first token.
    Classes(usize),
    /// The sum of all tokens' rows, of which the client makes the mean.
    Mean,
    /// All tokens' rows.
    Tokens,
    /// Every word's score behind the last token.
    NextWord,
    /// Every word's score behind every token.
    EveryWord,
}

/// A model's shape, and the ring in which it is evaluated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// As it is named on the command line.
    pub name: &'static str,
    /// How its layers are made.
    pub family: Family,
    /// Layers.
    pub layers: usize,
    /// Heads.
    pub heads: usize,
    /// Columns of activations.
    pub width: usize,
    /// Columns inside the feed-forward part.
    pub inner: usize,
    /// Words.
    pub vocabulary: usize,
    /// Types of tokens: which sentence of a pair one belongs to. 0 if the model has none.
    pub types: usize,
    /// The longest sequence. A table of places has that many rows, whatever the sequence.
    pub context: usize,
    /// The head behind the layers.
    pub head: Head,
    /// ε of every normalisation.
    pub epsilon: f64,
    /// Bits of the ring.
    pub bits: u32,
}

/// Fractional bits of every model.
pub(crate) const FRACTION: u32 = 12;
/// The narrowest ring that holds a product of two numbers of that many fractional bits.
const LEAST_MODEL_BITS: u32 = 2 * FRACTION + 2;
/// Most types of tokens.
const MOST_TYPES: usize = 1 << 8;
/// The deepest model.
const MOST_LAYERS: usize = 1 << 12;

const fn model(
    name: &'static str,
    family: Family,
    [layers, heads, width, inner]: [usize; 4],
    [vocabulary, context]: [usize; 2],
    bits: u32,
) -> Model {
    let (head, epsilon, types) = match family {
        Family::Bert => (Head::Classes(2), 1e-12, 2),
        Family::Gpt | Family::Llama => (Head::NextWord, 1e-5, 0),
    };
    Model { name, family, layers, heads, width, inner, vocabulary, types, context, head, epsilon, bits }
}

impl Model {
    /// All that are known. Rings are those in which SIGMA evaluates them.
    pub const ALL: [Self; 7] = [
        model("bert-tiny", Family::Bert, [2, 2, 128, 512], [30522, 512], 37),
        model("bert-base", Family::Bert, [12, 12, 768, 3072], [30522, 512], 50),
        model("bert-large", Family::Bert, [24, 16, 1024, 4096], [30522, 512], 50),
        model("gpt2", Family::Gpt, [12, 12, 768, 3072], [50257, 1024], 50),
        model("gpt-neo-1.3b", Family::Gpt, [24, 16, 2048, 8192], [50257, 2048], 51),
        model("llama2-7b", Family::Llama, [32, 32, 4096, 11008], [32000, 4096], 48),
        model("llama2-13b", Family::Llama, [40, 40, 5120, 13824], [32000, 4096], 48),
    ];

    /// The model of that name.
    pub fn named(name: &str) -> Result<Self> {
        let names = || Self::ALL.map(|model| model.name).join(", ");
        let what = || format!("there is no model '{name}'; there are {}", names());
        let found = Self::ALL.into_iter().find(|model| model.name == name);
        found.ok_or_else(|| Error::Unsupported { gate: "model", what: what() })
    }

    /// Its number format.
    pub fn format(&self) -> Result<FixedPoint> {
        Ok(FixedPoint::new(self.bits, FRACTION)?)
    }

    /// Which tokens a row sees.
    pub fn attention(&self) -> Mask {
        match self.family {
            Family::Bert => Mask::Full,
            Family::Gpt | Family::Llama => Mask::Causal,
        }
    }

    /// Whether the model's shape makes sense, and takes sequences of that many tokens.
    pub fn check(&self, tokens: usize) -> Result<()> {
        let sizes = [self.heads, self.width, self.inner, self.vocabulary];
        let classes = if let Head::Classes(classes) = self.head { classes } else { 1 };
        let sensible = sizes.iter().all(|size| (1..=MOST_COLUMNS).contains(size))
            && (1..=MOST_LAYERS).contains(&self.layers)
            && self.width.is_multiple_of(self.heads)
            && (1..=MOST_COLUMNS).contains(&classes)
            && self.context <= MOST_TOKENS
            && self.types <= MOST_TYPES
            && (LEAST_MODEL_BITS..=64).contains(&self.bits);
        if !sensible {
            return Err(Error::Unsupported { gate: "model", what: format!("{self:?}") });
        }
        if (1..=self.context).contains(&tokens) {
            return Ok(());
        }
        let what = format!("{tokens} tokens: {} takes 1 to {}", self.name, self.context);
        Err(Error::Unsupported { gate: "sequence", what })
    }

    /// The whole model: embedding, layers, head.
    ///
    /// GPT's words are scored by the table in which they are looked up, LLaMA's by a matrix of their own.
    /// GPT-Neo's local attention is computed as a full causal one, which is the same up to its window of 256
    /// tokens and an upper bound above.
    pub fn graph(&self, tokens: usize) -> Result<Graph> {
        self.check(tokens)?;
        let mut graph = GraphBuilder::new(self.format()?, tokens)?;
        let places = (self.family != Family::Llama).then_some(self.context);
        let mut x = graph.embed(self.vocabulary, self.types, self.width, places)?;
        if self.family == Family::Bert {
            x = graph.normalise(x, NormKind::Layer, self.epsilon, "norm")?;
        }
        for layer in 0..self.layers {
            graph.part(Part::Layer(layer));
            x = self.layer(&mut graph, x)?;
        }
        graph.part(Part::Head);
        self.add_head(&mut graph, x, tokens)?;
        graph.finish()
    }

    fn add_head(&self, graph: &mut GraphBuilder, x: NodeId, tokens: usize) -> Result<()> {
        match (self.family, self.head) {
            (Family::Bert, Head::Classes(classes)) => {
                let first = graph.row(x, 0)?;
                let pooled = graph.linear(first, &[("pooler", self.width)], true)?;
                let pooled = graph.activate(pooled, ActivationKind::Tanh)?;
                graph.linear(pooled, &[("classes", classes)], true)?;
            }
            (Family::Bert, Head::Mean) => {
                graph.sum_rows(x)?;
            }
            (Family::Bert, Head::Tokens) => {
                // A part of its own, so that the last layer costs what the others do.
                graph.segment(x, 0, "tokens")?;
            }
            (Family::Gpt | Family::Llama, Head::NextWord | Head::EveryWord) => {
                let x = if self.head == Head::NextWord { graph.row(x, tokens - 1)? } else { x };
                let normal = graph.normalise(x, self.norm(), self.epsilon, "norm")?;
                if self.family == Family::Gpt {
                    graph.tied(normal, "words")?;
                } else {
                    graph.linear(normal, &[("words", self.vocabulary)], false)?;
                }
            }
            (family, head) => {
                let what = format!("a model of the family {family:?} has no head {head:?}");
                return Err(Error::Unsupported { gate: "model", what });
            }
        }
        Ok(())
    }

    /// One layer on activations that the client gives, |x| ≤ `magnitude` with f fractional bits.
    pub fn single_layer(&self, tokens: usize, magnitude: i64) -> Result<Graph> {
        self.check(tokens)?;
        let mut graph = GraphBuilder::new(self.format()?, tokens)?;
        let x = graph.input(self.width, magnitude)?;
        graph.part(Part::Layer(0));
        self.layer(&mut graph, x)?;
        graph.finish()
    }

    /// The attention of one layer, without its norm, on activations that the client gives.
    pub fn attention_block(&self, tokens: usize, magnitude: i64) -> Result<Graph> {
        self.block(tokens, magnitude, Self::attention_branch)
    }

    /// The feed-forward part of one layer, without its norm, on activations that the client gives.
    pub fn feed_forward_block(&self, tokens: usize, magnitude: i64) -> Result<Graph> {
        self.block(tokens, magnitude, Self::feed_forward)
    }

    fn block(
        &self,
        tokens: usize,
        magnitude: i64,
        branch: impl Fn(&Self, &mut GraphBuilder, NodeId) -> Result<NodeId>,
    ) -> Result<Graph> {
        self.check(tokens)?;
        let mut graph = GraphBuilder::new(self.format()?, tokens)?;
        let x = graph.input(self.width, magnitude)?;
        graph.part(Part::Layer(0));
        branch(self, &mut graph, x)?;
        graph.finish()
    }

    fn norm(&self) -> NormKind {
        match self.family {
            Family::Bert | Family::Gpt => NormKind::Layer,
            Family::Llama => NormKind::RootMeanSquare,
        }
    }

    fn layer(&self, graph: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
        if self.family == Family::Bert {
            let attended = self.attention_branch(graph, x)?;
            let x = graph.add(x, attended, "attention sum")?;
            let x = graph.normalise(x, NormKind::Layer, self.epsilon, "attention norm")?;
            let fed = self.feed_forward(graph, x)?;
            let x = graph.add(x, fed, "output sum")?;
            return graph.normalise(x, NormKind::Layer, self.epsilon, "output norm");
        }
        let normal = graph.normalise(x, self.norm(), self.epsilon, "attention norm")?;
        let attended = self.attention_branch(graph, normal)?;
        let x = graph.add(x, attended, "attention sum")?;
        let normal = graph.normalise(x, self.norm(), self.epsilon, "output norm")?;
        let fed = self.feed_forward(graph, normal)?;
        graph.add(x, fed, "output sum")
    }

    fn attention_branch(&self, graph: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
        let (width, biased) = (self.width, self.family != Family::Llama);
        let outputs = [("query", width), ("key", width), ("value", width)];
        let projected = graph.linear(x, &outputs, biased)?;
        let value = graph.segment(projected, 2, "value")?;
        let pair =
            if self.family == Family::Llama { graph.rotate(projected, self.heads)? } else { projected };
        let query = graph.segment(pair, 0, "query")?;
        let key = graph.segment(pair, 1, "key")?;
        let mixed = graph.attend([query, key, value], self.heads, self.attention())?;
        graph.linear(mixed, &[("projection", width)], biased)
    }

    fn feed_forward(&self, graph: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
        if self.family == Family::Llama {
            let both = graph.linear(x, &[("gate", self.inner), ("up", self.inner)], false)?;
            let (gate, up) = (graph.segment(both, 0, "gate")?, graph.segment(both, 1, "up")?);
            let gate = graph.activate(gate, ActivationKind::Silu)?;
            let gated = graph.multiply(gate, up)?;
            return graph.linear(gated, &[("down", self.width)], false);
        }
        let up = graph.linear(x, &[("up", self.inner)], true)?;
        let kind = if self.family == Family::Gpt { ActivationKind::GeluTanh } else { ActivationKind::Gelu };
        let active = graph.activate(up, kind)?;
        graph.linear(active, &[("down", self.width)], true)
    }
}
