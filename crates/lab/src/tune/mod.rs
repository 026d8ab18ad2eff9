//! The tuner: searches a typed space of configurations for the fastest that is right.
//!
//! A configuration goes through the gates in order, so that one that is wrong is never timed, and
//! configurations that compile to the same binary are timed once. An elite of the best is kept across
//! generations and bred from. The winner is judged against the default on shapes and seeds that the search
//! never saw.

mod evaluation;
mod on_device;
mod search;
mod state;
mod tuner;

pub use evaluation::Evaluator;
pub use on_device::DeviceEvaluator;
pub use search::Search;
pub use state::TuningState;
pub use tuner::{Limits, tune};

pub use crate::record::tuning::{
    Conclusion, EliteMember, HeldOut, Rejection, Score, Strategy, Trial, TrialOutcome, TuneStop, TuningRecord,
};
pub use crate::space::{Configuration, Knob, Layer, Space, Value};
pub use crate::workload::Tunable;
