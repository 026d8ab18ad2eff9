//! The engine's own stop of `gatework tour`: a proof, its verification, and a copy that was tampered with.

use std::sync::Arc;

use gatework_gpu::Target;
use gatework_lab::Outcome;
use stwo::core::fields::m31::BaseField;

use super::prove::Prove;
use super::statement::{AirChoice, Security, Statement};
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
    };
    let case = format!("{} on {}", statement.text(), target.id());
    let failed = |why: String| Outcome::Failed { why };
    let proved = match statement.accept(Prove { target, observer: Arc::new(()) }) {
        Ok(proved) => proved,
        Err(error) => return (case, failed(error.to_string())),
    };
    let mut tampered = proved.clone();
    tampered.proof.0.sampled_values[1][0][0] += BaseField::from_u32_unchecked(1);
    let outcome = match (statement.accept(Verify { proved }), statement.accept(Verify { proved: tampered })) {
        (Ok(()), Err(_)) => Outcome::Passed,
        (Err(error), _) => failed(error.to_string()),
        (Ok(()), Ok(())) => failed("a tampered proof was accepted".to_owned()),
    };
    (case, outcome)
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
