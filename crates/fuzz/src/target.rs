//! What is fuzzed.

/// One reader of bytes from outside.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which its corpus and its fuzzer have too.
    pub name: &'static str,
    /// What the bytes are.
    pub takes: &'static str,
    /// Reads them. It panics if it finds a bug: what is read must be written as it was, and be fit for use.
    pub read: fn(&[u8]) -> Verdict,
    /// The memory that it may hold meanwhile.
    pub allowance: Allowance,
}

/// What a reader said of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They are what they should be.
    Accepted,
    /// They are not.
    Refused,
}

impl From<bool> for Verdict {
    fn from(accepted: bool) -> Self {
        if accepted { Self::Accepted } else { Self::Refused }
    }
}

/// Bytes of memory that a reader may hold for an input: `per_byte · n + constant` for one of `n` bytes.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// For each byte of the input.
    pub per_byte: usize,
    /// However short it is.
    pub constant: usize,
}

impl Allowance {
    /// What may be held for an input of so many bytes.
    pub fn bytes(&self, input: usize) -> usize {
        self.per_byte * input + self.constant
    }
}
