//! How a command ends: the exit codes, in one place.

use std::io;

use gatework_gpu::{Class, Classified};

pub(crate) const DONE: u8 = 0;

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
            Self::GateFailed => Class::Verification.exit_code(),
            Self::DeviceFailed => Class::Device.exit_code(),
        }
    }
}

/// Why a command did not come to its end: whose fault it is, and a sentence. Every engine's error becomes
/// one.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub(crate) struct Failure {
    class: Class,
    sentence: String,
}

impl Failure {
    /// The user's input is at fault.
    pub(crate) fn input(sentence: String) -> Self {
        Self { class: Class::Input, sentence }
    }

    /// The device is, or there is none.
    pub(crate) fn device(sentence: String) -> Self {
        Self { class: Class::Device, sentence }
    }

    /// The results could not be printed.
    pub(crate) fn output(error: &io::Error) -> Self {
        Self::input(format!("the results could not be written to standard output: {error}"))
    }

    /// The same with another sentence behind it.
    pub(crate) fn beside(self, more: &str) -> Self {
        Self { sentence: format!("{}\n{more}", self.sentence), ..self }
    }

    pub(crate) fn code(&self) -> u8 {
        self.class.exit_code()
    }
}

impl<E: Classified> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { class: error.class(), sentence: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_error_of_any_engine_ends_with_the_code_of_its_class() {
        let no_cuda = || gatework_gpu::Error::NoCuda { reason: "no driver".into() };
        let unknown = gatework_gpu::Error::UnknownTarget { given: "gpu".into() };
        let shape = gatework_attention::Error::Unsupported { what: "head dimension 96".into() };
        let late = gatework_private::Error::Timeout { doing: "answer", after: Duration::from_secs(1) };
        let address = "localhost:1".to_owned();
        let refused =
            gatework_private::Error::Unreachable { address, source: ErrorKind::ConnectionRefused.into() };
        let untimed = gatework_lab::Error::NoTiming { device: "emulated".into() };
        let codes: [(Failure, u8); 10] = [
            (gatework_stark::airs::VerifyError::Sums.into(), 1),
            (unknown.into(), 2),
            (shape.into(), 2),
            (gatework_private::Error::NoKeys { tokens: 5 }.into(), 2),
            (no_cuda().into(), 3),
            (gatework_attention::Error::from(no_cuda()).into(), 3),
            (gatework_stark::Error::from(no_cuda()).into(), 3),
            (untimed.into(), 3),
            (late.into(), 3),
            (refused.into(), 3),
        ];
        for (failure, code) in codes {
            assert_eq!(failure.code(), code, "{failure}");
        }
    }
}
