//! The engine's own stop of `gatework tour`: a proof, its verification, and a copy that was tampered with.

use std::sync::Arc;

use gatework_gpu::Target;
use gatework_lab::Outcome;
use stwo::core::fields::m31::BaseField;
use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleHasher;

use super::prove::{ProofFile, Prove};
use super::statement::{AirChoice, ChannelChoice, Security, Statement};
use super::verify::Verify;

/// What it computes.
pub(crate) const SUMMARY: &str = "a Circle STARK: proved, verified by stwo, and a tampered copy refused";

const LOG_ROWS: u32 = 5;
const COLUMNS: usize = 10;

/// The case, and what came of it on a target.
pub(crate) fn visit(target: &Target) -> (String, Outcome) {
    let statement = Statement {
        air: AirChoice::WideFibonacci,
        log_rows: LOG_ROWS,
        columns: Some(COLUMNS),
        security: Security::Default,
        channel: ChannelChoice::Blake2s,
    };
    let case = format!("{} on {}", statement.text(), target.id());
    let failed = |why: String| Outcome::Failed { why };
    let proved = match statement.accept(Prove { statement, target, observer: Arc::new(()) }) {
        Ok(proved) => proved,
        Err(error) => return (case, failed(error.to_string())),
    };
    let tampered = match tamper(&proved) {
        Ok(tampered) => tampered,
        Err(error) => return (case, failed(format!("the proof cannot be read again: {error}"))),
    };
    let holds = |file: &[u8]| statement.accept(Verify { file });
    let outcome = match (holds(&proved), holds(&tampered)) {
        (Ok(Ok(())), Ok(Err(_))) => Outcome::Passed,
        (Ok(Err(error)), _) => failed(error.to_string()),
        (Err(error), _) | (_, Err(error)) => failed(format!("the proof cannot be read again: {error}")),
        (Ok(Ok(())), Ok(Ok(()))) => failed("a tampered proof was accepted".to_owned()),
    };
    (case, outcome)
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
            let (_, outcome) = visit(&Target::open(target).unwrap());
            assert_eq!(outcome, Outcome::Passed, "{target}");
        }
    }
}
