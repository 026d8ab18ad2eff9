//! Gatework as a library: the runtime, the lab and the command under one name.
//!
//! ```
//! use gatework::lab::{Registry, runtime};
//!
//! let mut registry = Registry::new();
//! registry.add_all(runtime::workloads())?;
//! assert_eq!(registry.get("gpu/saxpy")?.name(), "gpu/saxpy");
//! # Ok::<(), gatework::lab::Error>(())
//! ```

pub mod command;

pub use gatework_gpu as gpu;
pub use gatework_lab as lab;
