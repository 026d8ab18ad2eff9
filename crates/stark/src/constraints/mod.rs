//! Constraints of any AIR, from its `FrameworkEval` to kernels.
//!
//! `record` evaluates the AIR once, on symbols, onto a `tape`, whose key finds what `cache` has of an earlier proof. Else the tape
//! becomes a `graph`, in which what is computed twice is one; `program` puts that into an order with few live values;
//! `interpret` runs it as it is, and `generate` compiles it, as CUDA C++ by `text`. What repeats is compiled once: `shape` tells
//! whether two parts of a graph are the same on other columns, `reroll` where to cut. `adaptive` interprets until
//! kernels are there. `component` and `logup` are who ask for it.

mod adaptive;
mod cache;
mod component;
mod generate;
mod graph;
mod interpret;
mod logup;
mod program;
mod record;
mod reroll;
mod shape;
#[cfg(test)]
mod synthetic;
mod tape;
mod text;

pub use self::cache::Tier;
pub(crate) use self::cache::Workshop;
#[cfg(feature = "lab")]
pub(crate) use self::component::{Rows, denominators};
#[cfg(feature = "lab")]
pub(crate) use self::generate::{compile, unrolled};
pub use self::logup::interaction_trace;
#[cfg(feature = "lab")]
pub(crate) use self::record::record;
#[cfg(feature = "lab")]
pub use self::record::row_operations;
#[cfg(feature = "lab")]
pub(crate) use self::text::THREADS;
