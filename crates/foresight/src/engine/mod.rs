//! The engine: phases, actions, verdicts.
//!
//! ```text
//! Warmup ──> Full ──> Predict ──> Correct ──> Full
//!             ^                      │
//!             └──── rolled back <────┘   (also from any phase that diverges)
//! ```

mod action;
mod cadence;
mod controller;
mod corrector;
mod machine;
mod monitor;
mod options;
mod skill;

pub use action::Action;
pub use controller::{Candidate, Choice};
pub use corrector::Corrector;
pub use machine::{Counts, Engine, EngineState, Event, Report};
pub use monitor::{Alarm, Monitor};
pub use options::{Allowed, EngineOptions};
