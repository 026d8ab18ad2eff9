//! Whose fault an error is.

use gatework_gpu::{Class, Classified};

use crate::Error;

impl Classified for Error {
    fn class(&self) -> Class {
        match self {
            // What was computed is not what was claimed or planned.
            Self::BoundViolated { .. } | Self::OffPlan { .. } => Class::Verification,
            Self::Randomness(_) => Class::Device,
            Self::Device(error) => error.class(),
            // A channel that the program brought.
            Self::Closed | Self::OutOfStep { .. } | Self::Outside(_) => Class::Peer,
            Self::RingBits { .. }
            | Self::Unsupported { .. }
            | Self::Shape { .. }
            | Self::NotProved { .. }
            | Self::Key { .. }
            | Self::WrongParty { .. }
            | Self::Format { .. }
            | Self::Input { .. }
            | Self::Stuck
            | Self::Suf { .. }
            | Self::Absent
            | Self::OtherBackend => Class::Input,
        }
    }
}
