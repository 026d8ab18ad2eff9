//! How long the stages of a proof take.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gatework_gpu::{Locked, Notice, Observer};

use crate::error::OrRaise as _;
use crate::queue::Queue;
use crate::ranks::Ranks;

/// A stage of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Values of the trace to coefficients.
    Interpolate,
    /// Coefficients to values on the larger domain.
    Extend,
    /// Merkle trees of the trace.
    Merkle,
    /// Constraints on every row.
    Constraints,
    /// The composition polynomial, split, extended and committed to.
    Composition,
    /// Values at the point outside of the domain.
    Samples,
    /// Quotients by the samples.
    Quotients,
    /// Folds and their trees.
    Fri,
    /// Proof of work.
    Grind,
    /// What the proof shows at the queries.
    Openings,
}

impl Stage {
    /// All, in the order of a proof.
    pub const ALL: [Self; 10] = [
        Self::Interpolate,
        Self::Extend,
        Self::Merkle,
        Self::Constraints,
        Self::Composition,
        Self::Samples,
        Self::Quotients,
        Self::Fri,
        Self::Grind,
        Self::Openings,
    ];

    /// The stage's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interpolate => "interpolate",
            Self::Extend => "extend",
            Self::Merkle => "trace Merkle",
            Self::Constraints => "constraints",
            Self::Composition => "composition",
            Self::Samples => "samples",
            Self::Quotients => "quotients",
            Self::Fri => "FRI",
            Self::Grind => "grind",
            Self::Openings => "openings",
        }
    }
}

/// Time by stage.
pub(crate) type Times = Vec<(Stage, Duration)>;

/// What a context knows of the stages of its proofs.
#[derive(Default)]
pub(crate) struct Stages {
    /// Told of every stage that begins or ends.
    observer: Locked<Option<Arc<dyn Observer>>>,
    /// Times of stages, where they are kept.
    times: Locked<Option<Times>>,
}

impl Stages {
    pub(crate) fn of(queue: &Queue) -> Arc<Self> {
        queue.keeps(|_| Self::default())
    }

    pub(crate) fn watch(&self, observer: Arc<dyn Observer>) {
        *self.observer.lock() = Some(observer);
    }

    pub(crate) fn keep_times(&self) {
        *self.times.lock() = Some(Times::new());
    }

    pub(crate) fn take_times(&self) -> Times {
        self.times.lock().take().unwrap_or_default()
    }

    fn tell(&self, notice: Notice<'_>) {
        // Not under the lock: who is told may ask for more.
        let observer = self.observer.lock().clone();
        if let Some(observer) = observer {
            observer.hear(notice);
        }
    }

    fn end(&self, queue: &Queue, stage: Stage, start: Instant) {
        if self.times.lock().is_none() {
            return;
        }
        queue.stream().synchronize().or_raise();
        Ranks::settle(queue).or_raise();
        if let Some(times) = &mut *self.times.lock() {
            times.push((stage, start.elapsed()));
        }
    }
}

thread_local! {
    /// Whether a stage of this thread runs: what it calls belongs to it.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A stage that runs until this is dropped.
pub(crate) struct Running {
    /// None inside of another stage.
    stage: Option<(Queue, Stage, Instant)>,
    _span: tracing::span::EnteredSpan,
}

impl Queue {
    /// Starts a stage. Where times are asked for, the device is waited for at its end.
    pub(crate) fn stage(&self, stage: Stage) -> Running {
        let outermost = !INSIDE.replace(true);
        if outermost {
            Stages::of(self).tell(Notice::Started { stage: stage.name() });
        }
        let span = tracing::debug_span!("stage", name = stage.name()).entered();
        Running { stage: outermost.then(|| (self.clone(), stage, Instant::now())), _span: span }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some((queue, stage, start)) = self.stage.take() else { return };
        INSIDE.set(false);
        let stages = Stages::of(&queue);
        stages.tell(Notice::Ended { stage: stage.name() });
        if !std::thread::panicking() {
            stages.end(&queue, stage, start);
        }
    }
}
