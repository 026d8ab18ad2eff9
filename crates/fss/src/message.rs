//! Bytes of a message.

use std::ops::Deref;

/// A message, wherever its bytes lie: in a vector, or in memory that a device has written.
pub struct Message(Kept);

enum Kept {
    Vector(Vec<u8>),
    Elsewhere(Box<dyn AsRef<[u8]> + Send + Sync>),
}

impl Message {
    /// Bytes that somebody else keeps.
    pub fn of(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Kept::Elsewhere(Box::new(bytes)))
    }

    /// The vector that the bytes lie in, if they do.
    pub fn into_own_vec(self) -> Option<Vec<u8>> {
        match self.0 {
            Kept::Vector(bytes) => Some(bytes),
            Kept::Elsewhere(_) => None,
        }
    }

    /// The bytes in a vector, to which they are copied if they lie elsewhere.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Kept::Vector(bytes) => bytes,
            Kept::Elsewhere(bytes) => (*bytes).as_ref().to_vec(),
        }
    }
}

impl Default for Message {
    fn default() -> Self {
        Self(Kept::Vector(Vec::new()))
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kept::Vector(bytes))
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kept::Vector(bytes) => bytes,
            Kept::Elsewhere(bytes) => (**bytes).as_ref(),
        }
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
