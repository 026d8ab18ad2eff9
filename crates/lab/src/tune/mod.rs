//! The tuner: searches a typed space of configurations for the fastest that is right.
//!
//! A configuration goes through the gates in order, so that one that is wrong is never timed, and configurations that
//! compile to the same binary are timed once. An elite of the best is kept across generations and bred from. The winner
//! is judged against the default on shapes and seeds that the search never saw.

mod evaluation;
mod on_device;
mod search;
mod space;
mod state;
mod tuner;

pub use evaluation::{Evaluator, HeldOut, Rejection, Score, Trial, TrialOutcome};
pub use on_device::DeviceEvaluator;
pub use search::{Search, Strategy};
pub use space::{Configuration, Knob, Layer, Space, Value};
pub use state::TuningState;
pub use tuner::{Conclusion, EliteMember, Limits, TuneStop, TuningRecord, tune};

use gatework_gpu::Kind;

use crate::workload::{Case, Workload};

/// A workload that has more than one way to do its job.
pub trait Tunable {
    /// The ways.
    fn space(&self) -> Space;

    /// The one that is used where nothing was tuned.
    fn default_configuration(&self) -> Configuration;

    /// The workload, done in one way.
    fn configured(&self, configuration: &Configuration) -> Box<dyn Workload>;

    /// The shapes that the search times.
    fn training_cases(&self, kind: Kind) -> Vec<Case>;

    /// The shapes that only the winner sees.
    fn held_out_cases(&self, kind: Kind) -> Vec<Case>;
}
