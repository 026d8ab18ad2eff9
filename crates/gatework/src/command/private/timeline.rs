//! When the stages of an inference began and ended.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gatework_gpu::{Notice, Observer};
use serde::Serialize;

/// How long a stage or a part took.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StageTime {
    part: String,
    ms: f64,
}

/// An observer that notes when the stages of an inference began and ended.
#[derive(Default)]
pub(super) struct Timeline<'a> {
    stages: Mutex<Vec<Stage>>,
    /// Who hears the same.
    other: Option<&'a dyn Observer>,
}

struct Stage {
    name: String,
    began: Instant,
    ended: Option<Instant>,
}

impl<'a> Timeline<'a> {
    /// A timeline beside another observer.
    pub(super) fn beside(other: &'a dyn Observer) -> Self {
        Self { other: Some(other), ..Self::default() }
    }

    /// All stages that ended, in the order in which they began.
    pub(super) fn stages(&self) -> Vec<StageTime> {
        self.lock().iter().filter_map(Stage::time).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Stage>> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage {
    /// How long it took, if it has ended.
    fn time(&self) -> Option<StageTime> {
        let ms = self.ended?.duration_since(self.began).as_secs_f64() * 1e3;
        Some(StageTime { part: self.name.clone(), ms })
    }
}

impl Observer for Timeline<'_> {
    fn hear(&self, notice: Notice<'_>) {
        let now = Instant::now();
        if let Some(other) = self.other {
            other.hear(notice);
        }
        let mut stages = self.lock();
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
