//! NCCL as a way from device to device.

use super::offered::Offered;
use super::place::Journey;
use crate::buffer::{SliceMut, View};
use crate::cuda::nccl;
use crate::order::Access;
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
        let (mut sends, mut uses) = (Vec::new(), Vec::new());
        for &peer in journey.members {
            for pull in (journey.plan)(peer).into_iter().filter(|p| p.from == journey.me && p.bytes > 0) {
                let mine = journey.offer(journey.me).and_then(Offered::memory);
                let source = mine.ok_or_else(|| missing("what is sent"))?.view();
                uses.push(source.used(Access::Read));
                let pointer = source.slice(pull.source..pull.source + pull.bytes).pointer();
                sends.push(nccl::Parcel { peer, pointer, bytes: pull.bytes });
            }
        }
        let mut receives = Vec::new();
        let target = to.as_ref().map(|to| to.view());
        if let Some(to) = &target {
            stream.device().require_same(to.device(), "Fabric")?;
            for pull in (journey.plan)(journey.me).into_iter().filter(|pull| pull.bytes > 0) {
                let pointer = to.slice(pull.target..pull.target + pull.bytes).pointer();
                receives.push(nccl::Parcel { peer: pull.from, pointer, bytes: pull.bytes });
            }
        }
        let target = target.as_ref().map(|target| target.used(Access::Write));
        let uses = uses.into_iter().chain(target);
        stream.queue(uses, Vec::new(), || self.0.exchange(stream.id(), &sends, &receives))
    }

    /// What failed behind a call that had returned.
    pub(super) fn check(&self) -> Result<()> {
        self.0.check()
    }

    pub(super) fn abort(&self) {
        self.0.abort();
    }
}
