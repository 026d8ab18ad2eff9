//! What decides what a network does next, wherever it learns; and the windows that a transformer reads.

use serde::{Deserialize, Serialize};

use crate::data::{Cut, Data, Place};
use crate::error::{Error, Result};
use crate::network::{Architecture, Transformer};
use crate::optimiser::{Average, Optimiser};

/// All that decides what a network does next: weights, their average, moments, and a place in the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NativeSnapshot {
    pub(crate) architecture: Architecture,
    pub(crate) weights: Vec<f32>,
    pub(crate) average: Average,
    pub(crate) optimiser: Optimiser,
    pub(crate) place: Place,
}

impl NativeSnapshot {
    /// The weights that are trained.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Refuses one of another network, or whose parts do not fit.
    pub(crate) fn check(&self, architecture: &Architecture, parameters: usize) -> Result<()> {
        if self.architecture != *architecture {
            return Err(Error::shape(format!(
                "the snapshot is of the network '{}', this one is '{}'",
                self.architecture.text(),
                architecture.text()
            )));
        }
        let Self { weights, average, optimiser, .. } = self;
        if weights.len() != parameters || !average.is_of(parameters) || !optimiser.is_of(parameters) {
            return Err(Error::shape(format!(
                "the snapshot has not {parameters} weights, averages and moments, as its network has"
            )));
        }
        Ok(())
    }
}

/// Windows of a text that a transformer can read.
pub(crate) fn windows_of(transformer: &Transformer, data: &Data) -> Result<Cut> {
    let Data::Text(text) = data else {
        return Err(Error::shape("a transformer learns from a text, and the data is labelled examples"));
    };
    let [knows, has] = [transformer.vocabulary(), text.tokens().vocabulary()];
    if knows != has {
        return Err(Error::shape(format!("the network knows {knows} tokens, the text has {has}")));
    }
    text.cut(transformer.context())
}
