//! NCCL as a way from device to device.

use super::offered::Offered;
use super::place::Journey;
use crate::buffer::{SliceMut, View};
use crate::cuda::nccl;
use crate::{Device, Error, Result, Stream};

/// One rank's end of NCCL.
pub(super) struct Communicator(nccl::Communicator);

impl Communicator {
    /// One for each device. They are different cards: NCCL refuses two ranks on one.
    pub(super) fn of(devices: &[Device]) -> Result<Vec<Self>> {
        let drivers: Vec<_> = devices.iter().map(Device::driver).collect();
        Ok(crate::cuda::communicators(&drivers)?.into_iter().map(Self).collect())
    }

    /// Queues what this rank sends and takes.
    pub(super) fn carry(
        &self,
        stream: &Stream,
        journey: &Journey<'_, Offered>,
        to: Option<&mut SliceMut<'_, u8>>,
    ) -> Result<()> {
        let missing = |what: &str| Error::Length { call: "Fabric", message: format!("{what} is missing") };
        let mut sends = Vec::new();
        for &peer in journey.members {
            for pull in (journey.plan)(peer).into_iter().filter(|p| p.from == journey.me && p.bytes > 0) {
                let mine = journey.offer(journey.me).and_then(Offered::memory);
                let source = mine.ok_or_else(|| missing("what is sent"))?.view();
                stream.adopt(source.allocation);
                let pointer = source.slice(pull.source..pull.source + pull.bytes).pointer();
                sends.push(nccl::Parcel { peer, pointer, bytes: pull.bytes });
            }
        }
        let mut receives = Vec::new();
        if let Some(to) = to {
            stream.device().require_same(to.view().device(), "Fabric")?;
            stream.adopt(to.view().allocation);
            for pull in (journey.plan)(journey.me).into_iter().filter(|pull| pull.bytes > 0) {
                let pointer = to.view().slice(pull.target..pull.target + pull.bytes).pointer();
                receives.push(nccl::Parcel { peer: pull.from, pointer, bytes: pull.bytes });
            }
        }
        self.0.exchange(stream.id(), &sends, &receives)
    }

    /// What failed behind a call that had returned.
    pub(super) fn check(&self) -> Result<()> {
        self.0.check()
    }

    pub(super) fn abort(&self) {
        self.0.abort();
    }
}
