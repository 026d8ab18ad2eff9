//! What can go wrong around the gates. What goes wrong inside one is its outcome, not an error.

use std::path::PathBuf;

use gatework_gpu::{Class, Classified};

/// The lab's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that the lab refuses, as sentences.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No workload has that name.
    #[error("unknown workload '{given}'{hint}")]
    UnknownWorkload {
        /// What the caller wrote.
        given: String,
        /// Names that are close, or where to find them all.
        hint: String,
    },
    /// Two workloads of one name: records could not tell them apart.
    #[error("two workloads are called '{name}': give one of them another name")]
    DuplicateWorkload {
        /// The name.
        name: String,
    },
    /// A name that cannot stand in a record or on a command line.
    #[error(
        "'{name}' is no workload name: use area/name in lowercase letters, digits and dashes, as gpu/saxpy"
    )]
    WorkloadName {
        /// The name.
        name: String,
    },
    /// Records cannot be written there.
    #[error("records cannot be written to {}: {reason}; free it or choose another folder", path.display())]
    Unwritable {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// There are no records to read.
    #[error("records cannot be read from {}: {reason}", path.display())]
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A file that a search cannot go on from.
    #[error("{} is no state this search can go on from: {reason}; remove it or name another file", path.display())]
    TuningState {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing can be timed there.
    #[error("time means nothing on the device '{device}': use a CUDA device")]
    NoTiming {
        /// The device.
        device: String,
    },
}

impl Classified for Error {
    fn class(&self) -> Class {
        match self {
            Self::NoTiming { .. } => Class::Device,
            Self::UnknownWorkload { .. }
            | Self::DuplicateWorkload { .. }
            | Self::WorkloadName { .. }
            | Self::Unwritable { .. }
            | Self::Unreadable { .. }
            | Self::TuningState { .. } => Class::Input,
        }
    }
}
