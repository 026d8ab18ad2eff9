//! What is known of texts of a length before one comes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gatework_fss::Cost;
use gatework_fss::executor::{Script, rehearse};

use crate::circuit::{ModelWeights, Network};
use crate::error::Result;
use crate::model::PublicModel;

/// The network of a length, and what an inference with it costs and asks of its keys.
pub(super) struct LengthPlan {
    pub(super) network: Network,
    pub(super) cost: Cost,
    pub(super) script: Arc<Script>,
}

/// Shared by all sessions.
pub(super) type Planned = Arc<LengthPlan>;

/// Networks by their lengths, for all sessions with a model: building one, and counting what it costs, takes longer than many an answer.
#[derive(Default)]
pub(super) struct Lengths {
    known: Mutex<BTreeMap<usize, Planned>>,
}

impl Lengths {
    fn known(&self) -> MutexGuard<'_, BTreeMap<usize, Planned>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network for so many tokens of a model, of whose weights `shapes` has the lengths.
    pub(super) fn plan(&self, model: &PublicModel, shapes: &ModelWeights, tokens: usize) -> Result<Planned> {
        if let Some(known) = self.known().get(&tokens) {
            return Ok(known.clone());
        }
        let network = model.network(tokens)?;
        let cost = rehearse(&network.inference(shapes))?.cost;
        let script = Arc::new(Script::of(&network.inference(shapes))?);
        let planned = Arc::new(LengthPlan { network, cost, script });
        Ok(self.known().entry(tokens).or_insert(planned).clone())
    }
}
