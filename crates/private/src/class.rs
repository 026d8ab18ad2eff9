//! Whose fault an error is.

use std::io::ErrorKind;

use gatework_gpu::{Class, Classified};

use crate::Error;

impl Classified for Error {
    fn class(&self) -> Class {
        match self {
            Self::Fss(error) => error.class(),
            // An address that does not exist was given wrongly; any other does not answer.
            Self::Unreachable { source, .. } => match source.kind() {
                ErrorKind::AddrNotAvailable | ErrorKind::InvalidInput | ErrorKind::PermissionDenied => {
                    Class::Input
                }
                _ => Class::Peer,
            },
            Self::Tls { .. }
            | Self::Socket { .. }
            | Self::Timeout { .. }
            | Self::Oversized { .. }
            | Self::Peer { .. }
            | Self::Refused { .. }
            | Self::Busy
            | Self::Closed
            | Self::OutOfStep { .. } => Class::Peer,
            Self::Unsupported { .. }
            | Self::Unproved { .. }
            | Self::Key { .. }
            | Self::File { .. }
            | Self::Listen { .. }
            | Self::KeyFile { .. }
            | Self::NoKeys { .. }
            | Self::NoRoom { .. }
            | Self::NoDeviceMemory { .. }
            | Self::NoSpace { .. }
            | Self::Reused { .. }
            | Self::Certificate { .. }
            | Self::NoOperand { .. }
            | Self::NoWeights
            | Self::Model { .. } => Class::Input,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_fails_is_told_from_an_address_that_is_taken() {
        let unreachable = |kind: ErrorKind| {
            Error::Unreachable { address: "localhost:7117".into(), source: kind.into() }.class()
        };
        assert_eq!(unreachable(ErrorKind::ConnectionRefused), Class::Peer);
        assert_eq!(unreachable(ErrorKind::TimedOut), Class::Peer);
        let taken = Error::Listen { address: "localhost:7117".into(), source: ErrorKind::AddrInUse.into() };
        assert_eq!(taken.class(), Class::Input);
        assert_eq!(Error::Closed.class().exit_code(), 3);
        assert_eq!(Error::NoKeys { tokens: 5 }.class().exit_code(), 2);
    }
}
