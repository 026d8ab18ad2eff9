//! How a command ends: the exit codes, in one place.

use std::io;

pub(crate) const DONE: u8 = 0;
const GATE_FAILED: u8 = 1;
pub(crate) const BAD_INPUT: u8 = 2;
const DEVICE_FAILED: u8 = 3;
/// What shells report for a program that was interrupted.
pub(crate) const INTERRUPTED: i32 = 130;

/// How a command that came to its end ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All is well.
    Done,
    /// A gate or a verification failed.
    GateFailed,
    /// Nothing failed, but the device could not do what was asked.
    DeviceFailed,
}

impl Ending {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => DONE,
            Self::GateFailed => GATE_FAILED,
            Self::DeviceFailed => DEVICE_FAILED,
        }
    }
}

/// Why a command did not come to its end, as a sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The user's input is at fault.
    #[error("{0}")]
    Input(String),
    /// The device is, or there is none.
    #[error("{0}")]
    Device(String),
    /// The results could not be printed.
    #[error("the results could not be written to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Input(_) | Self::Output(_) => BAD_INPUT,
            Self::Device(_) => DEVICE_FAILED,
        }
    }
}

impl From<gatework_gpu::Error> for Failure {
    fn from(error: gatework_gpu::Error) -> Self {
        if error.is_usage() { Self::Input(error.to_string()) } else { Self::Device(error.to_string()) }
    }
}

impl From<gatework_fss::Error> for Failure {
    fn from(error: gatework_fss::Error) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<gatework_lab::Error> for Failure {
    fn from(error: gatework_lab::Error) -> Self {
        Self::Input(error.to_string())
    }
}
