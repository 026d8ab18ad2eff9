//! Gatework as a library: the runtime, the lab, the engines and the command under one name.
//!
//! ```
//! use gatework::lab::Registry;
//!
//! let mut registry = Registry::new();
//! registry.add_all(gatework::workloads())?;
//! assert_eq!(registry.get("gpu/saxpy")?.name(), "gpu/saxpy");
//! # Ok::<(), gatework::lab::Error>(())
//! ```

pub mod command;

pub use gatework_attention as attention;
pub use gatework_foresight as foresight;
pub use gatework_fss as fss;
pub use gatework_gpu as gpu;
pub use gatework_lab as lab;
pub use gatework_private as private;
pub use gatework_stark as stark;

/// The workloads of the runtime and of every engine.
pub fn workloads() -> Vec<Box<dyn lab::Workload>> {
    command::workloads()
}

/// Programs of the book are tests of this crate. They are not part of a package, which has no book.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/jobs/faster-attention.md")]
    mod faster_attention {}
    #[doc = include_str!("../../../docs/jobs/forecast-a-run.md")]
    mod forecast_a_run {}
    #[doc = include_str!("../../../docs/jobs/gate-your-kernel.md")]
    mod gate_your_kernel {}
    #[doc = include_str!("../../../docs/jobs/move-a-stwo-prover.md")]
    mod move_a_stwo_prover {}
    #[doc = include_str!("../../../docs/jobs/serve-from-a-cache.md")]
    mod serve_from_a_cache {}
}
