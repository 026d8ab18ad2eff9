//! What can be wrong with a configuration, a data set, a checkpoint, a curve or a run.

use std::io;
use std::path::{Path, PathBuf};

use gatework_contract::{Class, Classified};

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be trained, saved, resumed or forecast.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key or a value of a configuration.
    #[error("the configuration is wrong: {what}")]
    Config {
        /// The key, what was given, and what is possible.
        what: String,
    },
    /// Examples that nothing can be learnt from.
    #[error("the data set cannot be used: {what}")]
    Data {
        /// What is wrong with it, and the way out.
        what: String,
    },
    /// A file that is no checkpoint of this run, or not a whole one.
    #[error("{}: the checkpoint cannot be used: {what}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and the way out.
        what: String,
    },
    /// A run folder without any usable checkpoint.
    #[error("{}: there is nothing to resume: {what}", folder.display())]
    NothingToResume {
        /// The run folder.
        folder: PathBuf,
        /// What was found instead.
        what: String,
    },
    /// A run folder that another process trains in.
    #[error(
        "{}: another process trains in this folder; wait for it, stop it, or name another folder",
        folder.display()
    )]
    Locked {
        /// The run folder.
        folder: PathBuf,
    },
    /// A loss curve that nothing can be said about.
    #[error("the curve cannot be forecast: {what}")]
    Curve {
        /// What is wrong with it, and the way out.
        what: String,
    },
    /// Parts of snapshots or models that do not belong together.
    #[error("{what}")]
    Shape {
        /// Both sizes.
        what: String,
    },
    /// The run diverged again and again.
    #[error(
        "the run diverged {times} times ({last}): nothing is left to roll back to; \
         lower 'optimiser.learning_rate' or look at the data"
    )]
    Diverged {
        /// Rollbacks so far.
        times: u32,
        /// What the monitor saw last.
        last: String,
    },
    /// A file or a folder that cannot be read or written.
    #[error("{} cannot be {doing}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// `read` or `written`.
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The GPU runtime's error.
    #[cfg(feature = "cuda")]
    #[error("{0}")]
    Gpu(#[from] gatework_gpu::Error),
    /// Somebody asked a network that writes to stop.
    #[error("interrupted after {written} of {count} tokens that the network was to write")]
    InterruptedWriting {
        /// Tokens that were written.
        written: usize,
        /// Tokens that were wanted.
        count: usize,
    },
    /// Somebody asked the run to stop.
    #[error(
        "interrupted at step {step}; {}",
        if *saved { "the run is saved and can be resumed" } else { "the run has no folder, and is not kept" }
    )]
    Interrupted {
        /// Steps that are done.
        step: u64,
        /// Whether they are saved.
        saved: bool,
    },
}

impl Error {
    pub(crate) fn config(what: impl Into<String>) -> Self {
        Self::Config { what: what.into() }
    }

    /// A run that does not fit into some memory.
    pub(crate) fn too_large(whose: &str, needed: usize, free: usize, way_out: &str) -> Self {
        let [needed, free] = [needed, free].map(|bytes| match bytes {
            0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
            _ => format!("{:.1} GB", bytes as f64 / 1e9),
        });
        Self::config(format!("the run would hold {needed} of {whose}, and {free} are available: {way_out}"))
    }

    pub(crate) fn data(what: impl Into<String>) -> Self {
        Self::Data { what: what.into() }
    }

    pub(crate) fn shape(what: impl Into<String>) -> Self {
        Self::Shape { what: what.into() }
    }

    pub(crate) fn curve(what: impl Into<String>) -> Self {
        Self::Curve { what: what.into() }
    }

    pub(crate) fn checkpoint(path: &Path, what: impl Into<String>) -> Self {
        Self::Checkpoint { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn reading(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), doing: "read", source }
    }

    pub(crate) fn writing(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), doing: "written", source }
    }
}

impl Classified for Error {
    fn class(&self) -> Class {
        match self {
            Self::Diverged { .. } => Class::Verification,
            Self::Interrupted { .. } | Self::InterruptedWriting { .. } => Class::Interrupted,
            #[cfg(feature = "cuda")]
            Self::Gpu(error) => error.class(),
            Self::Config { .. }
            | Self::Data { .. }
            | Self::Checkpoint { .. }
            | Self::NothingToResume { .. }
            | Self::Locked { .. }
            | Self::Curve { .. }
            | Self::Shape { .. }
            | Self::Io { .. } => Class::Input,
        }
    }
}
