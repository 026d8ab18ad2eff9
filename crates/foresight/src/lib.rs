#![doc = include_str!("../README.md")]

pub mod checkpoint;
pub mod data;
pub mod dense;
mod error;
mod ledger;
mod native;
pub mod network;
pub mod optimiser;
pub mod random;
pub mod state;
mod trainee;

pub mod world;

pub use error::{Error, Result};
pub use ledger::{Entry, Ledger, Phase};
pub use native::{Native, NativeOptions, NativeSnapshot};
pub use trainee::{Evaluation, Group, Statistics, Step, Taken, Trainee, Which};
