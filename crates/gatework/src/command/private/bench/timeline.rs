//! When the parts of a model began and ended.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use gatework_gpu::{Notice, Observer};
use serde::Serialize;

/// The stage around the parts.
const WHOLE: &str = "inferring";

/// How long a part took.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PartTime {
    pub(super) part: String,
    pub(super) ms: f64,
}

/// An observer that notes when the stages of an inference began and ended.
#[derive(Default)]
pub(super) struct Timeline {
    stages: Mutex<Vec<Stage>>,
}

struct Stage {
    name: String,
    began: Instant,
    ended: Option<Instant>,
}

impl Timeline {
    /// Forgets what was.
    pub(super) fn clear(&self) {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The parts that ended inside an inference.
    pub(super) fn parts(&self) -> Vec<PartTime> {
        let stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = stages.iter().skip_while(|stage| stage.name != WHOLE).skip(1);
        let part = |stage: &Stage| {
            let ms = stage.ended?.duration_since(stage.began).as_secs_f64() * 1e3;
            Some(PartTime { part: stage.name.clone(), ms })
        };
        inside.filter_map(part).collect()
    }
}

impl Observer for Timeline {
    fn hear(&self, notice: Notice<'_>) {
        let now = Instant::now();
        let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        match notice {
            Notice::Started { stage } => {
                stages.push(Stage { name: stage.to_owned(), began: now, ended: None });
            }
            Notice::Ended { stage } => {
                let open = |known: &&mut Stage| known.name == stage && known.ended.is_none();
                if let Some(known) = stages.iter_mut().rev().find(open) {
                    known.ended = Some(now);
                }
            }
            _ => {}
        }
    }
}
