//! What texts will take of the parties' devices, before a key is dealt.

use std::sync::Arc;

use gatework_fss::Party;
use gatework_fss::backend::Backend;
use gatework_fss::executor::rehearse;

use crate::error::Result;
use crate::model::PublicModel;

use super::device_plan::{DevicePlan, does_not_fit};
use super::lengths::Lengths;

/// Bytes of a device's memory, by the party that holds them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceBytes {
    /// The most that are held while the weights are taken.
    pub set_up: [u64; 2],
    /// The most that are held in an inference of one of the texts, the weights among them.
    pub peak: [u64; 2],
}

/// What texts of so many tokens, one at a time, take of a device like the backend's. Fails with numbers if
/// the device has no room for it; none where words lie in the host's memory.
pub fn foresee_device(
    backend: &Arc<dyn Backend>,
    model: &PublicModel,
    tokens: &[usize],
) -> Result<Option<DeviceBytes>> {
    let whole = model.network(model.longest())?;
    let set_up = rehearse(&whole.set_up())?;
    let (lengths, mut bytes) = (Lengths::default(), DeviceBytes::default());
    let mut counts = tokens.to_vec();
    counts.sort_unstable();
    counts.dedup();
    for party in Party::BOTH {
        let Some(plan) = DevicePlan::new(backend, party, &whole, set_up.cost)? else { return Ok(None) };
        bytes.set_up[party.index()] = plan.weight_bytes().set_up;
        for &count in &counts {
            let planned = lengths.plan(model, &set_up.output, count)?;
            let peak = &mut bytes.peak[party.index()];
            *peak = plan.peak(&[(count, &planned)])?.max(*peak);
        }
        if let Some(mut promise) = backend.promise() {
            let most = bytes.set_up[party.index()].max(bytes.peak[party.index()]);
            promise.resize(most).map_err(does_not_fit)?;
        }
    }
    Ok(Some(bytes))
}
