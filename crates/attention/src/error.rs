//! What can be wrong with a call.

use gatework_gpu::{Class, Classified};

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an attention could not be made or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A combination that no kernel here computes.
    #[error("unsupported attention: {what}")]
    Unsupported {
        /// Which, and what is supported.
        what: String,
    },
    /// A tensor that is not as long as the shape says.
    #[error("'{tensor}' has {found} elements, the shape needs {needed}")]
    Length {
        /// `q`, `k`, `v`, `o` or `sinks`.
        tensor: &'static str,
        /// Elements it has.
        found: usize,
        /// Elements it should have.
        needed: usize,
    },
    /// Lengths of packed sequences that are none.
    #[error("lengths of sequences: {what}")]
    Lengths {
        /// The mistake, and what would be right.
        what: String,
    },
    /// A cache, or a sequence of it, that cannot do what is asked.
    #[error("cache: {what}")]
    Cache {
        /// The mistake, and what would be right.
        what: String,
    },
    /// A cache without room. Nothing was changed.
    #[error(
        "the cache is full: {needed} pages are needed and {free} of {pages} are free; free or truncate sequences"
    )]
    CacheFull {
        /// Pages that the call needs.
        needed: usize,
        /// Pages that are free.
        free: usize,
        /// Pages of the cache.
        pages: usize,
    },
    /// The runtime's error.
    #[error("{0}")]
    Gpu(#[from] gatework_gpu::Error),
}

impl Classified for Error {
    fn class(&self) -> Class {
        match self {
            Self::Gpu(error) => error.class(),
            Self::Unsupported { .. }
            | Self::Length { .. }
            | Self::Lengths { .. }
            | Self::Cache { .. }
            | Self::CacheFull { .. } => Class::Input,
        }
    }
}
