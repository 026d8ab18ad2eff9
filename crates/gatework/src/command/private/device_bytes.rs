//! What the parties will take of a device, said before a key is dealt.

use std::sync::Arc;

use gatework_fss::backend::Backend;
use gatework_gpu::Target;
use gatework_private::model::PublicModel;
use gatework_private::roles::foresee_device;
use serde::Serialize;

use crate::command::ending::Failure;

/// The plan of device memory, if there is a device. A text that does not fit is refused instead.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Planned {
    device: String,
    /// What may be used of it.
    device_limit_bytes: u64,
    server_device_peak_bytes: u64,
    client_device_peak_bytes: u64,
    fits: bool,
}

impl Planned {
    /// For texts of so many tokens, one at a time.
    pub(super) fn new(
        target: &Target,
        backend: &Arc<dyn Backend>,
        model: &PublicModel,
        tokens: &[usize],
    ) -> Result<Option<Self>, Failure> {
        let (Some(device), Some(bytes)) = (target.device(), foresee_device(backend, model, tokens)?) else {
            return Ok(None);
        };
        let [server, client] = [0, 1].map(|party| bytes.set_up[party].max(bytes.peak[party]));
        Ok(Some(Self {
            device: target.id().to_owned(),
            device_limit_bytes: device.budget().limit(),
            server_device_peak_bytes: server,
            client_device_peak_bytes: client,
            fits: true,
        }))
    }

    /// The same for people, behind what else is said.
    pub(super) fn said(planned: Option<&Self>) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        planned.map_or_else(String::new, |planned| {
            format!(
                " On {} one text takes {:.1} MiB of the server's device memory at most and {:.1} MiB of the client's, of {:.1} MiB.",
                planned.device,
                mib(planned.server_device_peak_bytes),
                mib(planned.client_device_peak_bytes),
                mib(planned.device_limit_bytes)
            )
        })
    }
}
