//! A decoder-only transformer with GPT-2's architecture.
//!
//! Tokens and places are embedded and added up. Each block adds causal multi-head attention of the normalised
//! stream to the stream, and then two dense layers with a GELU between them, of the normalised stream
//! (pre-norm). A last normalisation and the embedding itself, transposed, give the logits (a tied head).

mod attention;
mod dense;
mod gelu;
mod head;
mod norm;
mod pass;
#[cfg(test)]
mod tests;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::network::Group;
use crate::network::Parameters;
use crate::random::Random;

pub use pass::Pass;

/// What kernels need of normalisations and GELUs on the CPU.
#[cfg(feature = "cuda")]
pub(crate) use gelu::{CUBIC as GELU_CUBIC, SCALE as GELU_SCALE};
#[cfg(feature = "cuda")]
pub(crate) use norm::EPSILON;

/// Rows of the embedding are a multiple of this, so that the tiles of a device's products are whole: 50257
/// becomes 50304. The rows that are added stand for no token; they are zero, are left out of every softmax,
/// and stay zero.
const PADDING: usize = 64;
/// Deviation of initial weights; matrices that write to the stream have it divided by the root of how many
/// do.
const DEVIATION: f64 = 0.02;

/// Sizes of a transformer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transformer {
    vocabulary: usize,
    context: usize,
    width: usize,
    layers: usize,
    heads: usize,
}

/// A dense layer's parameters among all.
#[derive(Debug, Clone)]
pub(crate) struct Affine {
    pub(crate) matrix: Range<usize>,
    pub(crate) bias: Range<usize>,
    pub(crate) sides: [usize; 2],
}

/// A block's parameters among all. Gains, then shifts of a normalisation lie behind the bias of the layer
/// that reads it.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// Queries, keys and values, beside each other.
    pub(crate) reads: Affine,
    pub(crate) first_norm: Range<usize>,
    /// Heads to stream.
    pub(crate) mixes: Affine,
    pub(crate) widens: Affine,
    pub(crate) second_norm: Range<usize>,
    pub(crate) narrows: Affine,
}

/// Where everything lies among all parameters.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) tokens: Range<usize>,
    pub(crate) places: Range<usize>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) last_norm: Range<usize>,
}

impl Transformer {
    /// A transformer over `vocabulary` tokens that reads `context` of them at once.
    pub fn new(vocabulary: usize, context: usize, [width, layers, heads]: [usize; 3]) -> Result<Self> {
        let sizes = [
            ("the vocabulary", vocabulary),
            ("'model.context'", context),
            ("'model.width'", width),
            ("'model.layers'", layers),
            ("'model.heads'", heads),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(Error::config(format!("{name} is 0: it must be at least 1")));
        }
        if !width.is_multiple_of(heads) {
            return Err(Error::config(format!(
                "'model.width' is {width} and 'model.heads' {heads}: each head has an equal part of the width"
            )));
        }
        Ok(Self { vocabulary, context, width, layers, heads })
    }

    /// Tokens that it knows.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Tokens that it reads at once.
    pub fn context(&self) -> usize {
        self.context
    }

    fn head_width(&self) -> usize {
        self.width / self.heads
    }

    /// Numbers of its stream.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Its blocks.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Heads of its attention.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Rows of the embedding: tokens, and those that make its rows whole tiles.
    #[cfg(feature = "cuda")]
    pub(crate) fn rows(&self) -> usize {
        self.vocabulary.next_multiple_of(PADDING)
    }

    pub(crate) fn layout(&self) -> Layout {
        let width = self.width;
        let tokens = 0..self.vocabulary.next_multiple_of(PADDING) * width;
        let places = tokens.end..tokens.end + self.context * width;
        let mut at = places.end;
        let mut take = |count: usize| {
            at += count;
            at - count..at
        };
        let mut affine = |inputs: usize, outputs: usize, norm: usize| {
            let (matrix, bias, norm) = (take(inputs * outputs), take(outputs), take(norm));
            (Affine { matrix, bias, sides: [inputs, outputs] }, norm)
        };
        let blocks = (0..self.layers)
            .map(|_| {
                let (reads, first_norm) = affine(width, 3 * width, 2 * width);
                let (mixes, _) = affine(width, width, 0);
                let (widens, second_norm) = affine(width, 4 * width, 2 * width);
                let (narrows, _) = affine(4 * width, width, 0);
                Block { reads, first_norm, mixes, widens, second_norm, narrows }
            })
            .collect();
        Layout { tokens, places, blocks, last_norm: take(2 * width) }
    }

    /// Embeddings of tokens and places as one matrix; four matrices of each block, each with its bias; the
    /// last normalisation.
    pub(super) fn parameters(&self) -> Vec<Parameters> {
        let layout = self.layout();
        let embedding = layout.tokens.start..layout.places.end;
        let none = embedding.end..embedding.end;
        let sides = [embedding.len() / self.width, self.width];
        let mut found = vec![Parameters { layer: 0, matrix: embedding, sides, bias: none }];
        for (place, block) in layout.blocks.iter().enumerate() {
            let mut take = |affine: &Affine, end: usize| {
                let Affine { matrix, bias, sides } = affine.clone();
                found.push(Parameters { layer: place + 1, matrix, sides, bias: bias.start..end });
            };
            take(&block.reads, block.first_norm.end);
            take(&block.mixes, block.mixes.bias.end);
            take(&block.widens, block.second_norm.end);
            take(&block.narrows, block.narrows.bias.end);
        }
        let (layer, start) = (self.layers + 1, layout.last_norm.start);
        found.push(Parameters { layer, matrix: start..start, sides: [0, 0], bias: layout.last_norm });
        found
    }

    /// Embedding, blocks, head. The multiply-adds of a window's attention are those of the tiles at or below
    /// the diagonal, half of all pairs. The head's are counted with the last normalisation: its matrix is the
    /// embedding, so that a step that freezes the embedding alone is somewhat cheaper than it is counted.
    pub(super) fn groups(&self) -> Vec<Group> {
        let (width, context) = (self.width as u64, self.context as u64);
        let block = 12 * width * width + 13 * width;
        let pairs = context * (context + 1) / 2;
        let mut groups =
            vec![Group { name: "embedding".into(), parameters: self.layout().places.end, multiply_adds: 0 }];
        groups.extend((0..self.layers).map(|place| Group {
            name: format!("block {}", place + 1),
            parameters: block as usize,
            multiply_adds: context * 12 * width * width + 2 * pairs * width,
        }));
        groups.push(Group {
            name: "head".into(),
            parameters: 2 * self.width,
            multiply_adds: context * width * self.vocabulary as u64,
        });
        groups
    }

    /// How many parameters there are.
    pub(super) fn parameter_count(&self) -> usize {
        self.layout().last_norm.end
    }

    /// As GPT-2 begins: weights `N(0, 0.02²)`, those of the two matrices of a block that write to the stream
    /// divided by `√(2 blocks)`, gains of one, biases and shifts of zero.
    pub(super) fn initial(&self, seed: u64) -> Vec<f32> {
        let mut random = Random::new(seed, "initial parameters");
        let layout = self.layout();
        let mut all = vec![0.0; self.parameter_count()];
        let mut draw = |all: &mut [f32], deviation: f64| {
            all.iter_mut().for_each(|w| *w = (deviation * random.normal()) as f32);
        };
        draw(&mut all[..self.vocabulary * self.width], DEVIATION);
        draw(&mut all[layout.places.clone()], DEVIATION);
        let written = DEVIATION / (2.0 * self.layers as f64).sqrt();
        for block in &layout.blocks {
            draw(&mut all[block.reads.matrix.clone()], DEVIATION);
            draw(&mut all[block.mixes.matrix.clone()], written);
            draw(&mut all[block.widens.matrix.clone()], DEVIATION);
            draw(&mut all[block.narrows.matrix.clone()], written);
            all[block.first_norm.clone()][..self.width].fill(1.0);
            all[block.second_norm.clone()][..self.width].fill(1.0);
        }
        all[layout.last_norm][..self.width].fill(1.0);
        all
    }

    /// In words, as `gpt of 2 blocks, width 64, 4 heads, context 64, vocabulary 50257`.
    pub(super) fn text(&self) -> String {
        format!(
            "gpt of {} blocks, width {}, {} heads, context {}, vocabulary {}",
            self.layers, self.width, self.heads, self.context, self.vocabulary
        )
    }
}
