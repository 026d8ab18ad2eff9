#![doc = include_str!("../README.md")]

pub mod checkpoint;
pub mod compare;
pub mod config;
mod conformal;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod data;
pub mod dense;
pub mod engine;
mod error;
pub mod forecast;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod learner;
mod ledger;
pub mod log;
mod native;
pub mod network;
pub mod optimiser;
pub mod random;
pub mod run;
pub mod sampling;
mod snapshot;
pub mod state;
mod student;
pub mod sweep;
mod trainee;
mod trainer;
#[cfg(feature = "lab")]
pub mod workloads;
pub mod world;

pub use error::{Error, Result};
pub use learner::Learner;
pub use ledger::{Entry, Ledger, Phase};
pub use native::{Native, NativeOptions, Writing};
pub use snapshot::NativeSnapshot;
pub use trainee::{
    Evaluation, Group, Probe, Statistics, Step, Taken, Trainee, Which, example_work, forward_cost,
};
pub use trainer::{Saved, Saving, Trainer};
