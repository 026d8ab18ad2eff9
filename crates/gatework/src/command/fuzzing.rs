//! Entries for fuzzers: each reads bytes as a file hands them over, and returns whether they were accepted.

use super::{attention, stark};

/// The tensors of `attention run`, up to the output if there are few of them.
pub fn attention_input(bytes: &[u8]) -> bool {
    attention::attends(bytes)
}

/// A proof of `stark verify`, of a statement that is small. One that is accepted must be the proof that
/// `stark prove` makes.
pub fn stark_proof(bytes: &[u8]) -> bool {
    stark::holds(bytes)
}

/// Proofs as `stark prove` writes them, of AIRs of every kind and with every channel, with names.
pub fn stark_proofs() -> Vec<(String, Vec<u8>)> {
    stark::sample_proofs()
}
