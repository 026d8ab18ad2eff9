//! Where the time of an evaluation goes, on the thread that evaluates.

use std::time::{Duration, Instant};

/// Time by stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// Gates: computing them, or queueing them on a device.
    pub gates: Duration,
    /// Waiting until a message is computed and on the host.
    pub messages: Duration,
    /// Handing messages to the channel.
    pub sending: Duration,
    /// Waiting for the other party's messages.
    pub waiting: Duration,
    /// Opening what came, or queueing that.
    pub opening: Duration,
    /// Making keys ready for the next round, while the other party's message is on its way.
    pub ahead: Duration,
}

impl Stages {
    /// The sums of two.
    pub fn plus(self, other: Self) -> Self {
        Self {
            gates: self.gates + other.gates,
            messages: self.messages + other.messages,
            sending: self.sending + other.sending,
            waiting: self.waiting + other.waiting,
            opening: self.opening + other.opening,
            ahead: self.ahead + other.ahead,
        }
    }
}

/// Does something, and adds the time it takes.
pub(super) fn timed<T>(stage: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    *stage += start.elapsed();
    done
}
