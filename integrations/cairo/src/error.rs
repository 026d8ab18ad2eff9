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
    /// A proof that the verifier refuses.
    #[error("the proof is not valid: {0}")]
    Invalid(String),
    /// stwo's own prover on the CPU failed.
    #[error("stwo's prover on the CPU failed: {0}")]
    Simd(String),
}

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
