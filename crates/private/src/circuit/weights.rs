//! A model's weights under their masks.

use std::sync::Arc;

use gatework_fss::ops::Weights;
use gatework_fss::{Error, Result};

use crate::graph::{Graph, WeightId};

/// A model's masked weights and the shares of their masks, of whoever has them: a party, the dealer, the
/// clear evaluation.
///
/// One set serves any number of inferences, of any length that the model takes, for as long as the weights
/// are the same bits. Clones share it.
#[derive(Clone)]
pub struct ModelWeights {
    weights: Arc<Vec<Weights>>,
}

impl ModelWeights {
    pub(super) fn new(weights: Vec<Weights>) -> Self {
        Self { weights: Arc::new(weights) }
    }

    /// Fails unless these are weights for that graph.
    pub(super) fn expect(&self, graph: &Graph) -> Result<()> {
        let ring = graph.format().ring;
        let fits = self.weights.len() == graph.weights().len()
            && self
                .weights
                .iter()
                .zip(graph.weights())
                .all(|(have, want)| (have.wire().len(), have.wire().ring()) == (want.len(), ring));
        if fits {
            return Ok(());
        }
        Err(Error::Shape { gate: "a network", what: "its weights are those of another one".into() })
    }

    pub(super) fn get(&self, id: WeightId) -> Result<&Weights> {
        let missing = || Error::Shape { gate: "weights", what: format!("weight {} is missing", id.0) };
        self.weights.get(id.0).ok_or_else(missing)
    }
}
