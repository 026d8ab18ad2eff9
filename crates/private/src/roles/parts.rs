//! The parts of a model: as an observer hears of them, and where their time went.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gatework_fss::executor::{Moment, Stages};
use gatework_gpu::{Notice, Observer};

use crate::graph::Part;

/// Where the time of a part went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartTime {
    /// `embedding`, `layer 1` and so on, `head`.
    pub name: String,
    /// From its beginning to that of the next part, or to the end.
    pub wall: Duration,
    /// Its share of every stage.
    pub stages: Stages,
}

/// Tells an observer which part of a model is being evaluated: each a stage.
pub(super) struct Parts<'a> {
    observer: &'a dyn Observer,
    /// Those that have begun.
    begun: Mutex<Vec<(String, Instant)>>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(observer: &'a dyn Observer) -> Self {
        Self { observer, begun: Mutex::new(Vec::new()) }
    }

    /// A part begins, and so the one before it has ended.
    pub(super) fn begin(&self, part: Part) {
        let name = match part {
            Part::Embedding => "embedding".to_owned(),
            Part::Layer(layer) => format!("layer {}", layer + 1),
            Part::Head => "head".to_owned(),
        };
        self.end();
        self.observer.hear(Notice::Started { stage: &name });
        self.begun().push((name, Instant::now()));
    }

    fn begun(&self) -> MutexGuard<'_, Vec<(String, Instant)>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let ended = self.begun().last().map(|(name, _)| name.clone());
        if let Some(name) = ended {
            self.observer.hear(Notice::Ended { stage: &name });
        }
    }

    /// Where the time of each part went, by the moments of the evaluation, the last of which is its end.
    pub(super) fn times(&self, moments: &[Moment]) -> Vec<PartTime> {
        let begun = self.begun();
        let ends = begun.iter().skip(1).map(|(_, began)| *began).chain(moments.last().map(|last| last.at));
        let time = |((name, began), ended): (&(String, Instant), Instant)| {
            let stages = |time| Moment::stages_until(moments, time).unwrap_or_default();
            PartTime {
                name: name.clone(),
                wall: ended.duration_since(*began),
                stages: stages(ended).since(stages(*began)),
            }
        };
        begun.iter().zip(ends).map(time).collect()
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_the_stages_without_a_gap() {
        let parts = Parts::new(&());
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let begun = [("embedding", 1), ("layer 1", 14), ("head", 32)];
        parts.begun().extend(begun.map(|(name, at)| (name.to_owned(), start + ms(at))));
        let moment = |at: u64, gates: u64, waiting: u64| Moment {
            at: start + ms(at),
            stages: Stages { gates: ms(gates), waiting: ms(waiting), ..Stages::default() },
        };
        let times = parts.times(&[moment(1, 0, 0), moment(10, 5, 4), moment(30, 15, 14), moment(40, 25, 14)]);
        let found: Vec<_> = times
            .iter()
            .map(|part| (part.name.as_str(), part.wall, part.stages.gates, part.stages.waiting))
            .collect();
        let expected = [
            ("embedding", ms(13), ms(9), ms(4)),
            ("layer 1", ms(18), ms(8), ms(10)),
            ("head", ms(8), ms(8), ms(0)),
        ];
        assert_eq!(found, expected);
    }
}
