//! Peers that are measured between the samples of a benchmark.

use crate::bench::PeerRequest;
use crate::peers::{NotMeasured, PeerCommand, PeerSession};
use crate::record::PeerRecord;
use crate::stats::{CONFIDENCE, Samples, Verdict, WITHIN_RUN, paired_ratio};

/// A peer that was started, or why it was not.
pub(super) struct PeerSlot {
    name: String,
    session: Result<PeerSession, NotMeasured>,
}

/// Starts the peers, once, with the first benchmark that asks for one.
pub(super) fn start(slots: &mut Vec<PeerSlot>, commands: &[PeerCommand], requests: &[PeerRequest]) {
    if !slots.is_empty() || requests.is_empty() {
        return;
    }
    *slots = commands
        .iter()
        .map(|command| PeerSlot { name: command.name.clone(), session: PeerSession::start(command) })
        .collect();
}

/// A peer and one operation, measured block by block between the device's own.
pub(super) struct PeerTurn<'a> {
    name: String,
    operation: &'a PeerRequest,
    session: Option<&'a mut PeerSession>,
    samples: Samples,
    failure: Option<NotMeasured>,
}

impl<'a> PeerTurn<'a> {
    /// The turn of a peer: with the first operation that it offers, or with why it does not run. A peer that
    /// offers none has no turn.
    pub(super) fn each(slot: &'a mut PeerSlot, requests: &'a [PeerRequest]) -> Option<Self> {
        match &mut slot.session {
            Ok(session) => {
                let operation = requests.iter().find(|request| session.offers(&request.operation))?;
                let name = session.name().to_owned();
                Some(Self {
                    name,
                    operation,
                    session: Some(session),
                    samples: Samples::default(),
                    failure: None,
                })
            }
            Err(why) => {
                let failure = Some(why.clone());
                let name = slot.name.clone();
                Some(Self {
                    name,
                    operation: requests.first()?,
                    session: None,
                    samples: Samples::default(),
                    failure,
                })
            }
        }
    }

    /// Its turn: so many samples.
    pub(super) fn take(&mut self, samples: usize) {
        let Some(session) = self.session.as_mut().filter(|_| self.failure.is_none()) else { return };
        match session.measure(self.operation, samples) {
            Ok(samples) => samples.into_iter().for_each(|sample| self.samples.push(sample)),
            Err(why) => self.failure = Some(why),
        }
    }

    pub(super) fn record(self, candidate: &Samples) -> PeerRecord {
        let Self { name, operation, session, samples, failure } = self;
        match (failure, samples.summary(), session) {
            (Some(NotMeasured(why)), ..) => PeerRecord::NotMeasured { peer: name, why },
            (None, Some(summary), Some(session)) => {
                let ratio = paired_ratio(samples.values(), candidate.values(), CONFIDENCE);
                PeerRecord::Measured {
                    peer: name,
                    versions: session.versions(),
                    operation: operation.operation.clone(),
                    summary,
                    samples_ns: samples,
                    verdict: Verdict::of(ratio, WITHIN_RUN),
                    ratio,
                }
            }
            _ => PeerRecord::NotMeasured { peer: name, why: "it was never asked".into() },
        }
    }
}
