//! Whose fault an error is.

/// Whose fault it is that something was not done. The class of an error is the exit code of a command that
/// ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The work was done, and a gate, a proof or a comparison does not hold.
    Verification,
    /// The caller's: an argument, a file, a shape that is not supported.
    Input,
    /// The machine's: no device, no memory on it, a driver or a compiler that failed.
    Device,
    /// The other party's: it cannot be reached, left, took too long or broke the protocol.
    Peer,
    /// Somebody stopped the program.
    Interrupted,
}

impl Class {
    /// The exit code of a command that ends with an error of this class; 0 is left for success.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Verification => 1,
            Self::Input => 2,
            Self::Device | Self::Peer => 3,
            // What shells report for a program that ended with SIGINT.
            Self::Interrupted => 130,
        }
    }
}

/// An error that knows whose fault it is. Every engine's error is one.
pub trait Classified: std::error::Error {
    /// Whose fault it is.
    fn class(&self) -> Class;
}
