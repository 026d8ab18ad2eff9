//! Who is who.

use std::fmt;

/// One of the two parties that evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Party {
    /// Adds public constants to shares.
    Zero,
    /// The other one.
    One,
}

impl Party {
    /// Both, in order.
    pub const BOTH: [Self; 2] = [Self::Zero, Self::One];

    /// 0 or 1.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The other party.
    pub fn peer(self) -> Self {
        match self {
            Self::Zero => Self::One,
            Self::One => Self::Zero,
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.index())
    }
}
