//! How long the stages of a proof take.

use std::cell::Cell;
use std::time::{Duration, Instant};

use gatework_gpu::Notice;

use crate::error::OrRaise as _;
use crate::queue::Queue;

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
            self.tell(Notice::Started { stage: stage.name() });
        }
        let span = tracing::debug_span!("stage", name = stage.name()).entered();
        Running { stage: outermost.then(|| (self.clone(), stage, Instant::now())), _span: span }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some((queue, stage, start)) = self.stage.take() else { return };
        INSIDE.set(false);
        queue.tell(Notice::Ended { stage: stage.name() });
        if queue.times_are_kept() && !std::thread::panicking() {
            queue.stream().synchronize().or_raise();
            queue.add_time(stage, start.elapsed());
        }
    }
}

/// Time by stage.
pub(crate) type Times = Vec<(Stage, Duration)>;
