//! What was done, and what it took.

use std::time::Duration;

use gatework_fss::executor::Stages;

use super::traffic::Traffic;

/// Counts and times of evaluations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Frames and bytes, as they were counted on the link.
    pub traffic: Traffic,
    /// Bytes of keys that were read.
    pub key_bytes: u64,
    /// All in all.
    pub wall: Duration,
    /// Evaluating gates.
    pub evaluating: Duration,
    /// Waiting for the other party.
    pub waiting: Duration,
    /// Where the time of the evaluating thread went.
    pub stages: Stages,
    /// Encrypting and writing, beside the others.
    pub sending: Duration,
}

impl Counted {
    pub(super) fn add(&mut self, other: Self) {
        *self = Self {
            traffic: self.traffic.plus(other.traffic),
            key_bytes: self.key_bytes + other.key_bytes,
            wall: self.wall + other.wall,
            evaluating: self.evaluating + other.evaluating,
            waiting: self.waiting + other.waiting,
            stages: self.stages.plus(other.stages),
            sending: self.sending + other.sending,
        };
    }
}

/// A party's session in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Inferences.
    pub inferences: usize,
    /// Masking and moving the weights.
    pub set_up: Counted,
    /// The inferences themselves.
    pub inference: Counted,
    /// The most memory of a device that was planned for the session at once, if it computed on one.
    pub planned_device_bytes: Option<u64>,
}
