//! What is known of texts of a length before one comes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gatework_fss::executor::{Script, rehearse};

use crate::circuit::ModelWeights;
use crate::error::Result;
use crate::model::PublicModel;

use super::device_plan::{DevicePlan, LengthPlan, Planned};

/// Networks by their lengths, for all sessions with a model: building one, and counting what it costs, takes longer than many an answer.
#[derive(Default)]
pub(super) struct Lengths {
    known: Mutex<BTreeMap<usize, Planned>>,
    /// Of a device's memory, once somebody has asked.
    device: Mutex<Option<Option<DevicePlan>>>,
}

impl Lengths {
    fn known(&self) -> MutexGuard<'_, BTreeMap<usize, Planned>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `ask` finds in the plan of the device's memory, which is made first if it is not there; nothing without a device.
    pub(super) fn device<T>(
        &self,
        make: impl FnOnce() -> Result<Option<DevicePlan>>,
        ask: impl FnOnce(&mut DevicePlan) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut plan = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        if plan.is_none() {
            *plan = Some(make()?);
        }
        plan.as_mut().and_then(Option::as_mut).map(ask).transpose()
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
