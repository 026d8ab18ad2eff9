#![doc = include_str!("../README.md")]

mod flat;
mod trainee;

pub use trainee::{BurnOptions, BurnSnapshot, BurnTrainee, Classifier};
