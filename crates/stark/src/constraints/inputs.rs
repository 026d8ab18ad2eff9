//! What constraints are evaluated on.

use stwo::core::fields::qm31::SecureField;

/// The columns and the constants of one proof.
pub(crate) struct Inputs {
    /// Addresses of columns.
    pub(crate) columns: Vec<u64>,
    pub(crate) parameters: Vec<SecureField>,
}

/// An argument must be some memory, also where there is nothing in it.
pub(crate) fn or_some_words(words: Vec<u32>) -> Vec<u32> {
    if words.is_empty() { vec![0; 4] } else { words }
}
