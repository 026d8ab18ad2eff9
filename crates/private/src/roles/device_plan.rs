//! What a session takes of a device's memory, before a key is used.

use std::collections::BTreeMap;
use std::sync::Arc;

use gatework_fss::backend::{Backend, Rehearsal};
use gatework_fss::executor::{Script, rehearse_on};
use gatework_fss::{Cost, Party};

use crate::circuit::{ModelWeights, Network};
use crate::error::{Error, Result};

use super::traffic::plan;

/// The network of a length, and what an inference with it costs and asks of its keys.
pub(super) struct LengthPlan {
    pub(super) network: Network,
    pub(super) cost: Cost,
    pub(super) script: Arc<Script>,
}

/// Shared by all sessions.
pub(super) type Planned = Arc<LengthPlan>;

/// Texts of a batch that are rehearsed together; of more, each is counted as if all were at their peaks at
/// once.
const MOST_TOGETHER: usize = 32;

/// What is planned beyond what was counted, as a part of it: threads that copy keys go at their own pace.
const MARGIN: u64 = 32;

/// A party's evaluations with lengths alone, on the backend that it computes with.
pub(super) struct DevicePlan {
    party: Party,
    rehearsal: Rehearsal,
    weights: ModelWeights,
    bytes: WeightBytes,
}

/// Bytes while the weights are taken, and from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WeightBytes {
    pub(super) set_up: u64,
    pub(super) held: u64,
}

/// The most bytes of texts of these lengths, of a batch of so many.
#[derive(Default)]
pub(super) struct Peaks(BTreeMap<(usize, Vec<usize>), u64>);

/// Peaks that are known at once: whoever asks chooses the lengths.
const MOST_PEAKS: usize = 1 << 10;

impl Peaks {
    pub(super) fn of(&self, lengths: &[usize]) -> Option<u64> {
        self.0.get(&(lengths.len(), lengths.to_vec())).copied()
    }

    pub(super) fn note(&mut self, lengths: &[usize], bytes: u64) {
        if self.0.len() >= MOST_PEAKS {
            self.0.clear();
        }
        self.0.insert((lengths.len(), lengths.to_vec()), bytes);
    }
}

impl DevicePlan {
    /// The plan for a model whose set-up has this cost; none where words lie in the host's memory.
    pub(super) fn new(
        backend: &Arc<dyn Backend>,
        party: Party,
        whole: &Network,
        cost: Cost,
    ) -> Result<Option<Self>> {
        let Some(rehearsal) = backend.rehearsal() else { return Ok(None) };
        let set_up = rehearse_on(&rehearsal.backend, party, &plan(&[cost]), &[&whole.set_up()], 1)?;
        let Some(weights) = set_up.into_iter().next() else { return Ok(None) };
        let bytes =
            WeightBytes { set_up: with_margin(rehearsal.memory.peak()), held: rehearsal.memory.held() };
        Ok(Some(Self { party, rehearsal, weights, bytes }))
    }

    pub(super) fn weight_bytes(&self) -> WeightBytes {
        self.bytes
    }

    /// The most bytes that are held at once in an inference of these texts, weights included.
    pub(super) fn peak(&self, texts: &[(usize, &Planned)]) -> Result<u64> {
        if texts.len() <= MOST_TOGETHER {
            return self.together(texts, texts.len());
        }
        let held = self.bytes.held;
        let mut each: BTreeMap<usize, u64> = BTreeMap::new();
        let mut sum = held;
        for &text in texts {
            let peak = match each.get(&text.0) {
                Some(&known) => known,
                None => self.together(&[text], texts.len())?,
            };
            each.insert(text.0, peak);
            sum = sum.saturating_add(peak.saturating_sub(held));
        }
        Ok(sum)
    }

    /// The same of some texts of a batch of so many.
    fn together(&self, texts: &[(usize, &Planned)], batch: usize) -> Result<u64> {
        let costs: Vec<Cost> = texts.iter().map(|(_, planned)| planned.cost).collect();
        let scripts = texts.iter().map(|(_, planned)| planned.script.clone()).collect();
        let plan = plan(&costs).with_scripts(scripts);
        let circuits: Vec<_> =
            texts.iter().map(|(_, planned)| planned.network.inference(&self.weights)).collect();
        let circuits: Vec<_> = circuits.iter().collect();
        // The second time tables and programs are there from the start, as those of an earlier session are.
        for _ in 0..2 {
            self.rehearsal.memory.reset_peak();
            rehearse_on(&self.rehearsal.backend, self.party, &plan, &circuits, batch)?;
        }
        Ok(with_margin(self.rehearsal.memory.peak()))
    }
}

fn with_margin(bytes: u64) -> u64 {
    bytes + bytes / MARGIN
}

/// An error of a promise, in the words of whoever plans a job.
pub(super) fn does_not_fit(error: gatework_fss::Error) -> Error {
    match error {
        gatework_fss::Error::Device(gatework_gpu::Error::OutOfMemory { asked, held, limit, .. }) => {
            Error::NoDeviceMemory { needed: asked, promised: held, limit }
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_known_and_bounded() {
        let mut peaks = Peaks::default();
        for tokens in 0..3 * MOST_PEAKS {
            peaks.note(&[tokens, 2], tokens as u64);
            assert_eq!(peaks.of(&[tokens, 2]), Some(tokens as u64));
            assert!(peaks.0.len() <= MOST_PEAKS);
        }
        assert_eq!(peaks.of(&[2]), None);
    }
}
