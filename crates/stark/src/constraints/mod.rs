//! Constraints of any AIR, from its `FrameworkEval` to kernels.
//!
//! `record` evaluates the AIR once, on symbols, into a `graph`; `program` puts the graph into an order with few live values;
//! `interpret` runs it as it is, and `generate` writes it as CUDA C++. `component` and `logup` are who ask for it.

mod cache;
mod component;
mod generate;
mod graph;
mod interpret;
mod logup;
mod program;
mod record;

pub(crate) use self::cache::Cache;
pub use self::component::Tier;
#[cfg(feature = "lab")]
pub(crate) use self::component::{Rows, denominators};
#[cfg(feature = "lab")]
pub(crate) use self::generate::{THREADS, compile, wide_fibonacci_source};
pub use self::logup::interaction_trace;
pub use self::record::row_operations;
