//! What a file uses that is not known.

use std::fmt;

/// Why a file is not checked: what it uses that is not known, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The header of the file that has it, if one does.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: u32,
    /// Names the unknown construct, and what is supported instead.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}, ")?;
        }
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for Refusal {}
