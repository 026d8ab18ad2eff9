//! What will be sent, before it is.

use crate::error::Result;
use crate::model::PublicModel;
use crate::net::FRAME_OVERHEAD;
use crate::party::Party;
use crate::runtime::{Limits, MESSAGE_HEADER, Plan, rehearse};
use crate::tally::Cost;

/// Frames and bytes of evaluations, by the party that sends them. Both parties send as many frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames that each party sends, which are the rounds.
    pub frames: u64,
    /// Bytes that each party sends, with the frames' own.
    pub bytes: [u64; 2],
}

impl Traffic {
    /// Of some jobs, in super-batches as planned. TLS adds a few bytes to every 16 KiB.
    pub fn of(plan: &Plan, costs: &[Cost]) -> Self {
        let longest = |batch: &Vec<usize>| batch.iter().map(|&job| costs[job].rounds).max().unwrap_or(0);
        let frames: u64 = plan.batches().iter().map(longest).sum();
        let framed = frames * (FRAME_OVERHEAD + MESSAGE_HEADER as u64);
        let sent = |party: Party| costs.iter().map(|cost| cost.sent_bytes[party.index()]).sum::<u64>();
        Self { frames, bytes: Party::BOTH.map(|party| sent(party) + framed) }
    }

    /// One evaluation after the other.
    pub fn plus(self, other: Self) -> Self {
        let bytes = [self.bytes[0] + other.bytes[0], self.bytes[1] + other.bytes[1]];
        Self { frames: self.frames + other.frames, bytes }
    }
}

/// The traffic of the set-up, and of one request for texts of so many tokens.
pub fn predict(model: &PublicModel, tokens: &[usize]) -> Result<[Traffic; 2]> {
    let set_up = rehearse(&model.network(model.longest())?.set_up())?;
    let mut costs = Vec::with_capacity(tokens.len());
    for &count in tokens {
        let network = model.network(count)?;
        costs.push(rehearse(&network.inference(&set_up.output))?.cost);
    }
    let alone = Plan::new(WHOLE, &[set_up.cost])?;
    Ok([Traffic::of(&alone, &[set_up.cost]), Traffic::of(&plan(&costs)?, &costs)])
}

/// The set-up is one job, however large.
pub(super) const WHOLE: Limits = Limits { jobs: 1, words: u64::MAX, bytes: u64::MAX };

/// How inferences of one request are put together: in two super-batches, so that one is evaluated while the other is on its way.
///
/// Both parties must come to the same plan.
pub(super) fn plan(costs: &[Cost]) -> Result<Plan> {
    let jobs = (costs.len() as u64).div_ceil(2).max(1);
    Plan::new(Limits { jobs, ..Limits::default() }, costs)
}
