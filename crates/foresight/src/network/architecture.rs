//! What a network is, and where its parameters lie.

use serde::{Deserialize, Serialize};

use super::layers::Layers;
use super::parameters::{Group, Parameters};
use super::transformer::Transformer;
use crate::error::{Error, Result};

/// A network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Architecture {
    /// Layers one after the other, for labelled examples.
    Layers(Layers),
    /// A decoder-only transformer, for text.
    Transformer(Transformer),
}

/// How examples are dealt out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharding {
    /// Examples that are worth a shard of a batch.
    pub batch: usize,
    /// Examples of a shard of an evaluation: few, so that their activations stay in the cache.
    pub evaluation: usize,
}

impl Architecture {
    /// Dense layers with ReLUs between them: see [`Layers::mlp`].
    pub fn mlp(shape: [usize; 3], hidden: &[usize], classes: usize) -> Result<Self> {
        Layers::mlp(shape, hidden, classes).map(Self::Layers)
    }

    /// Convolutions, then dense layers: see [`Layers::cnn`].
    pub fn cnn(
        shape: [usize; 3],
        filters: &[usize],
        kernel: usize,
        hidden: &[usize],
        classes: usize,
    ) -> Result<Self> {
        Layers::cnn(shape, filters, kernel, hidden, classes).map(Self::Layers)
    }

    /// The parameters, in order. Those of one group follow each other and have the same `layer`.
    pub fn parameters(&self) -> Vec<Parameters> {
        match self {
            Self::Layers(layers) => layers.parameters(),
            Self::Transformer(transformer) => transformer.parameters(),
        }
    }

    /// What is frozen, measured and counted together, from the input on.
    pub fn groups(&self) -> Vec<Group> {
        match self {
            Self::Layers(layers) => layers.groups(),
            Self::Transformer(transformer) => transformer.groups(),
        }
    }

    /// How many parameters there are.
    pub fn parameter_count(&self) -> usize {
        match self {
            Self::Layers(layers) => layers.parameter_count(),
            Self::Transformer(transformer) => transformer.parameter_count(),
        }
    }

    /// Parameters to begin with.
    pub fn initial(&self, seed: u64) -> Vec<f32> {
        match self {
            Self::Layers(layers) => layers.initial(seed),
            Self::Transformer(transformer) => transformer.initial(seed),
        }
    }

    /// In words; two networks that agree in it have the same parameters.
    pub fn text(&self) -> String {
        match self {
            Self::Layers(layers) => layers.text(),
            Self::Transformer(transformer) => transformer.text(),
        }
    }

    /// How examples are dealt out. A window of a text is many tokens, each of which is an example to the
    /// products.
    pub(crate) fn sharding(&self) -> Sharding {
        match self {
            Self::Layers(_) => Sharding { batch: 16, evaluation: 32 },
            Self::Transformer(_) => Sharding { batch: 2, evaluation: 1 },
        }
    }

    /// The transformer, if it is one.
    pub fn transformer(&self) -> Result<&Transformer> {
        match self {
            Self::Transformer(transformer) => Ok(transformer),
            Self::Layers(_) => Err(self.knows_no_text()),
        }
    }

    pub(crate) fn knows_no_text(&self) -> Error {
        Error::shape(format!(
            "'{}' knows no text: a network of 'model.kind = \"gpt\"' is needed",
            self.text()
        ))
    }
}
