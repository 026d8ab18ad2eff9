//! Forward and backward passes over a shard of a batch, of any network.

use super::architecture::Architecture;
use super::tally::Tally;
use super::{layers, transformer};
use crate::data::{Examples, Windows};
use crate::sampling::Kept;

/// Examples that a pass draws from, by their numbers.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// With a class each.
    Examples(&'a Examples),
    /// Windows of a text.
    Windows(&'a Windows),
}

impl Source<'_> {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Examples(examples) => examples.count(),
            Self::Windows(windows) => windows.count(),
        }
    }
}

/// Memory for passes over up to so many examples.
#[derive(Debug, Clone)]
pub enum Pass {
    /// Of layers.
    Layers(Box<layers::Pass>),
    /// Of a transformer.
    Transformer(Box<transformer::Pass>),
}

impl Pass {
    /// Memory for up to `capacity` examples.
    pub fn new(architecture: &Architecture, capacity: usize) -> Self {
        match architecture {
            Architecture::Layers(layers) => Self::Layers(Box::new(layers::Pass::new(layers, capacity))),
            Architecture::Transformer(transformer) => {
                Self::Transformer(Box::new(transformer::Pass::new(transformer, capacity)))
            }
        }
    }

    /// Bytes that memory for up to `capacity` examples holds.
    pub fn bytes(architecture: &Architecture, capacity: usize) -> usize {
        match architecture {
            Architecture::Layers(layers) => layers::Pass::bytes(layers, capacity),
            Architecture::Transformer(transformer) => transformer::Pass::bytes(transformer, capacity),
        }
    }

    /// Runs `indices` of a source through the network, and leaves behind what [`Self::backward`] needs.
    ///
    /// # Panics
    /// If layers are given windows, or a transformer examples.
    pub fn forward(&mut self, weights: &[f32], source: Source<'_>, indices: &[u32]) -> Tally {
        match (self, source) {
            (Self::Layers(pass), Source::Examples(examples)) => pass.forward(weights, examples, indices),
            (Self::Transformer(pass), Source::Windows(windows)) => pass.forward(weights, windows, indices),
            (_, source) => panic!("a network of another kind than its data: {source:?}"),
        }
    }

    /// [`Self::forward`] and [`Self::backward`] in one: where nothing is left out between them, a transformer
    /// computes its logits once.
    ///
    /// # Panics
    /// As [`Self::forward`].
    pub fn learn(
        &mut self,
        weights: &[f32],
        source: Source<'_>,
        indices: &[u32],
        frozen: usize,
        gradient: &mut [f32],
    ) -> Tally {
        match (&mut *self, source) {
            (Self::Transformer(pass), Source::Windows(windows)) => {
                pass.learn(weights, windows, indices, frozen, gradient)
            }
            _ => {
                let tally = self.forward(weights, source, indices);
                self.backward(weights, frozen, gradient);
                tally
            }
        }
    }

    /// Adds the length of `softmax − label` of every example of the last forward pass to a list.
    pub fn lengths(&self, into: &mut Vec<f32>) {
        match self {
            Self::Layers(pass) => pass.lengths(into),
            Self::Transformer(pass) => pass.lengths(into),
        }
    }

    /// Leaves these examples for the backward pass, in ascending order of their places, each with its weight.
    pub fn keep(&mut self, kept: &[Kept]) {
        match self {
            Self::Layers(pass) => pass.keep(kept),
            Self::Transformer(pass) => pass.keep(kept),
        }
    }

    /// Adds the gradient of the sum of losses to `gradient`, for all groups from number `frozen` on.
    pub fn backward(&mut self, weights: &[f32], frozen: usize, gradient: &mut [f32]) {
        match self {
            Self::Layers(pass) => pass.backward(weights, frozen, gradient),
            Self::Transformer(pass) => pass.backward(weights, frozen, gradient),
        }
    }
}
