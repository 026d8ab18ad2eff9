//! Checkpoints on disk: whole or not there, checked when they are read, and never two writers.

mod file;
mod folder;

#[cfg(feature = "fuzzing")]
pub(crate) use file::HEADER;
pub(crate) use file::parse;
pub use file::{Layout, RUNS, read, write};
pub use folder::{Kept, RunFolder};
