//! What can go wrong, in sentences.

use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The backend's error.
    #[error("{0}")]
    Stark(#[from] gatework_stark::Error),
    /// The runtime's error.
    #[error("{0}")]
    Gpu(#[from] gatework_gpu::Error),
    /// A file that cannot be read or written.
    #[error("{path}: {reason}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        reason: std::io::Error,
    },
    /// A file that is not what it should be.
    #[error("{path} is no {what}: {reason}", path = path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        /// What the parser says.
        reason: String,
    },
    /// A program that did not run to its end.
    #[error("the program did not run: {0}")]
    Run(String),
    /// A run that stwo-cairo's trace writers cannot take.
    #[error("stwo-cairo cannot write the trace of this run: {0}")]
    Witness(String),
    /// A proof that the verifier refuses.
    #[error("the proof is not valid: {0}")]
    Invalid(String),
    /// stwo's own prover on the CPU failed.
    #[error("stwo's prover on the CPU failed: {0}")]
    Simd(String),
}

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Runs what panics where it should return an error, as trace writers and verifiers of others do.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> std::result::Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "it panicked".into())
    })
}
