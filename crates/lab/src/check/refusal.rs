//! What a file uses that is not known.

/// Why a file is not checked: what it uses that is not known, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Refusal {
    /// The line, from 1.
    pub line: u32,
    /// Names the unknown construct, and what is supported instead.
    pub message: String,
}
