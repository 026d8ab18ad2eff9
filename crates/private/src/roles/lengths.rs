//! What is known of texts of a length before one comes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gatework_fss::executor::{Script, rehearse};

use crate::circuit::ModelWeights;
use crate::error::Result;
use crate::model::PublicModel;

use super::device_plan::{DevicePlan, LengthPlan, Peaks, Planned, WeightBytes};

/// Networks by their lengths, for all sessions with a model: building one, and counting what it costs, takes
/// longer than many an answer.
#[derive(Default)]
pub(super) struct Lengths {
    known: Mutex<BTreeMap<usize, Planned>>,
    /// Of a device's memory, once somebody has asked. Held while something is rehearsed.
    device: Mutex<Option<Option<DevicePlan>>>,
    /// What was found with it, for whoever must not wait for another's rehearsal.
    weights: OnceLock<Option<WeightBytes>>,
    peaks: Mutex<Peaks>,
}

impl Lengths {
    fn known(&self) -> MutexGuard<'_, BTreeMap<usize, Planned>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `ask` finds in the plan of the device's memory, which is made first if it is not there; nothing
    /// without a device.
    fn device<T>(
        &self,
        make: impl FnOnce() -> Result<Option<DevicePlan>>,
        ask: impl FnOnce(&DevicePlan) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut plan = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        if plan.is_none() {
            *plan = Some(make()?);
        }
        plan.as_ref().and_then(Option::as_ref).map(ask).transpose()
    }

    /// What the weights take of a device, if there is one.
    pub(super) fn weight_bytes(
        &self,
        make: impl FnOnce() -> Result<Option<DevicePlan>>,
    ) -> Result<Option<WeightBytes>> {
        if let Some(known) = self.weights.get() {
            return Ok(*known);
        }
        let found = self.device(make, |plan| Ok(plan.weight_bytes()))?;
        Ok(*self.weights.get_or_init(|| found))
    }

    /// The most bytes that an inference of these texts holds of a device, if there is one.
    pub(super) fn peak(
        &self,
        make: impl FnOnce() -> Result<Option<DevicePlan>>,
        texts: &[(usize, &Planned)],
    ) -> Result<Option<u64>> {
        let lengths: Vec<usize> = texts.iter().map(|(tokens, _)| *tokens).collect();
        if let Some(known) = self.peaks().of(&lengths) {
            return Ok(Some(known));
        }
        let found = self.device(make, |plan| plan.peak(texts))?;
        if let Some(bytes) = found {
            self.peaks().note(&lengths, bytes);
        }
        Ok(found)
    }

    fn peaks(&self) -> MutexGuard<'_, Peaks> {
        self.peaks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether texts of these lengths were rehearsed.
    #[cfg(test)]
    pub(super) fn has_rehearsed(&self, lengths: &[usize]) -> bool {
        self.peaks().of(lengths).is_some()
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
