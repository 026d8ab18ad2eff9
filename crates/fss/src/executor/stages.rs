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

    /// The difference to an earlier reading of the same clocks.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            gates: self.gates.saturating_sub(earlier.gates),
            messages: self.messages.saturating_sub(earlier.messages),
            sending: self.sending.saturating_sub(earlier.sending),
            waiting: self.waiting.saturating_sub(earlier.waiting),
            opening: self.opening.saturating_sub(earlier.opening),
            ahead: self.ahead.saturating_sub(earlier.ahead),
        }
    }
}

/// A moment of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// When it was.
    pub at: Instant,
    /// Time by stage from the start to there.
    pub stages: Stages,
}

impl Moment {
    /// The time by stage until `time`, which lies in the gates that follow one of the moments, or at the last
    /// of them. None before the first.
    pub fn stages_until(moments: &[Self], time: Instant) -> Option<Stages> {
        let later = moments.partition_point(|moment| moment.at <= time);
        let Self { at, stages } = moments[..later].last()?;
        let gates = stages.gates + time.duration_since(*at);
        let most = moments.get(later).map_or(stages.gates, |next| next.stages.gates);
        Some(Stages { gates: gates.min(most), ..*stages })
    }
}

/// Does something, and adds the time it takes.
pub(super) fn timed<T>(stage: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    *stage += start.elapsed();
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_gates_has_the_gates_before_it() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let moment = |at: u64, gates: u64, waiting: u64| Moment {
            at: start + ms(at),
            stages: Stages { gates: ms(gates), waiting: ms(waiting), ..Stages::default() },
        };
        let moments = [moment(10, 0, 0), moment(40, 10, 20), moment(70, 35, 20)];
        let until = |at: u64| {
            Moment::stages_until(&moments, start + ms(at)).map(|stages| (stages.gates, stages.waiting))
        };
        assert_eq!(until(5), None);
        assert_eq!(until(10), Some((ms(0), ms(0))));
        assert_eq!(until(14), Some((ms(4), ms(0))));
        assert_eq!(until(30), Some((ms(10), ms(0))), "no more than all gates of the round");
        assert_eq!(until(45), Some((ms(15), ms(20))));
        assert_eq!(until(90), Some((ms(35), ms(20))));
        let whole = moments[2].stages;
        assert_eq!(whole.since(Stages::default()), whole);
        assert_eq!(whole.since(moments[1].stages).gates, ms(25));
    }
}
