#![doc = include_str!("../README.md")]

pub mod circuit;
mod class;
pub mod cost;
pub mod disk;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod graph;
pub mod model;
pub mod net;
pub mod range;
pub mod roles;
#[cfg(feature = "lab")]
pub mod workloads;

pub use error::{Error, Result};
