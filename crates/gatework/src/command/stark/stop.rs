//! The engine's own stop of `gatework tour`: a proof, its verification, and a copy that was tampered with.

use std::sync::Arc;

use gatework_gpu::Target;
use stwo::core::fields::m31::BaseField;
use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleHasher;

use super::place::Place;
use super::prove::{ProofFile, Prove};
use super::statement::{AirChoice, ChannelChoice, Security, Statement};
use super::verify::Verify;
use crate::command::noun::Seen;

/// What it computes.
pub(crate) const SUMMARY: &str = "a Circle STARK: proved, verified by stwo, and a tampered copy refused";

const LOG_ROWS: u32 = 5;
const COLUMNS: usize = 10;

/// What came of it on a target.
pub(crate) fn visit(target: &Target) -> Seen {
    let statement = Statement {
        air: AirChoice::WideFibonacci,
        log_rows: LOG_ROWS,
        columns: Some(COLUMNS),
        security: Security::Default,
        channel: ChannelChoice::Blake2s,
    };
    Seen::of_engine(format!("{} on {}", statement.text(), target.id()), checked(statement, target))
}

/// What was shown, or what is wrong.
fn checked(statement: Statement, target: &Target) -> Result<String, String> {
    let unreadable = |error: serde_json::Error| format!("the proof cannot be read again: {error}");
    let proved = statement
        .accept(Prove { statement, place: &Place::One(target.clone()), observer: Arc::new(()) })
        .map_err(|error| error.to_string())?;
    let tampered = tamper(&proved).map_err(unreadable)?;
    let holds = |file: &[u8]| statement.accept(Verify { file }).map_err(unreadable);
    holds(&proved)?.map_err(|error| error.to_string())?;
    if holds(&tampered)?.is_ok() {
        return Err("a tampered proof was accepted".to_owned());
    }
    Ok(format!(
        "{} Fibonacci sequences of {COLUMNS} terms proved on {} in {} bytes: stwo's verifier accepts the proof, and \
         refuses a copy with one number changed",
        1 << LOG_ROWS,
        target.id(),
        proved.len()
    ))
}

/// A copy of a proof file with one sampled value changed.
fn tamper(file: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut file: ProofFile<Blake2sMerkleHasher> = serde_json::from_slice(file)?;
    file.proved.proof.0.sampled_values[1][0][0] += BaseField::from_u32_unchecked(1);
    serde_json::to_vec(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_and_the_emulated_device_pass() {
        for target in ["cpu", "emulated"] {
            let seen = visit(&Target::open(target).unwrap());
            assert!(seen.outcome.is_passed(), "{target}: {seen:?}");
        }
    }
}
