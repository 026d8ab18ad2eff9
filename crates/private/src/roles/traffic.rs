//! What will be sent, before it is.

use gatework_fss::executor::{Limits, MESSAGE_HEADER, Plan, rehearse};
use gatework_fss::{Cost, Party};

use crate::error::Result;
use crate::model::PublicModel;
use crate::net::FRAME_OVERHEAD;

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

/// The exact cost of an evaluation, to the byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Predicted {
    /// Frames and bytes on the link.
    pub traffic: Traffic,
    /// Bytes of keys that each party reads.
    pub key_bytes: [u64; 2],
    /// Generator calls of each party.
    pub prg_blocks: [u64; 2],
}

impl Predicted {
    fn of(plan: &Plan, costs: &[Cost]) -> Self {
        let sum = |of: fn(&Cost) -> [u64; 2]| {
            costs.iter().map(of).fold([0; 2], |sum, next| [sum[0] + next[0], sum[1] + next[1]])
        };
        Self {
            traffic: Traffic::of(plan, costs),
            key_bytes: sum(|cost| cost.key_bytes),
            prg_blocks: sum(|cost| cost.prg_blocks),
        }
    }
}

/// The cost of the set-up, and of one request for texts of so many tokens.
pub fn predict(model: &PublicModel, tokens: &[usize]) -> Result<[Predicted; 2]> {
    let set_up = rehearse(&model.network(model.longest())?.set_up())?;
    let mut costs: Vec<Cost> = Vec::with_capacity(tokens.len());
    for (index, &count) in tokens.iter().enumerate() {
        let known = tokens[..index].iter().position(|&earlier| earlier == count);
        costs.push(match known {
            Some(earlier) => costs[earlier],
            None => rehearse(&model.network(count)?.inference(&set_up.output))?.cost,
        });
    }
    let set_up = [set_up.cost];
    Ok([Predicted::of(&plan(&set_up), &set_up), Predicted::of(&plan(&costs), &costs)])
}

/// How inferences of one request are put together: in two super-batches, so that one is evaluated while the
/// other is on its way.
///
/// Both parties must come to the same plan.
pub(super) fn plan(costs: &[Cost]) -> Plan {
    let jobs = (costs.len() as u64).div_ceil(2).max(1);
    Plan::new(Limits { jobs, ..Limits::default() }, costs)
}
