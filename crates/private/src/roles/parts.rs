//! The parts of a model, as an observer hears of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gatework_gpu::{Notice, Observer};

use crate::graph::Part;

/// Tells an observer which part of a model is being evaluated: `embedding`, `layer 1` and so on, `head`, each a stage.
pub(super) struct Parts<'a> {
    observer: &'a dyn Observer,
    current: Mutex<Option<String>>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(observer: &'a dyn Observer) -> Self {
        Self { observer, current: Mutex::new(None) }
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
        *self.current() = Some(name);
    }

    fn current(&self) -> MutexGuard<'_, Option<String>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let ended = self.current().take();
        if let Some(name) = ended {
            self.observer.hear(Notice::Ended { stage: &name });
        }
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
