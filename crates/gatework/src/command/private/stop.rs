//! A stop of `gatework tour`: two parties, a dealer, and a function of numbers that one of them keeps secret.

use gatework_fss::executor::{run_clear, run_in_process_on};
use gatework_fss::gates::Activation;
use gatework_fss::{Evaluator, FixedPoint, Party, backend_on, reference};
use gatework_gpu::Target;
use gatework_lab::Inputs;

use crate::command::noun::Seen;

const ELEMENTS: usize = 200;
const SEED: u64 = 1;
/// Bits of the ring, and of a fraction.
const BITS: u32 = 50;
const FRACTION: u32 = 12;
/// How far GELU may be from the real function, in units of the last bit.
const ALLOWED: f64 = 16.0;

/// What it computes.
pub(crate) const SUMMARY: &str =
    "GELU of secret numbers by two parties, bit for bit what one computes in clear";

/// What came of it on a target.
pub(crate) fn visit(target: &Target) -> Seen {
    let checked = checked(target).unwrap_or_else(|error| Err(error.to_string()));
    Seen::of_engine(format!("{ELEMENTS} of {BITS} bits on {}", target.id()), checked)
}

/// What was shown, or what is wrong with the result.
fn checked(target: &Target) -> gatework_private::Result<Result<String, String>> {
    let format = FixedPoint::new(BITS, FRACTION)?;
    let unit = f64::from(1u32 << FRACTION);
    let gelu = Activation::gelu(format.fraction)?;
    let limit = 8i64 << FRACTION;
    let numbers: Vec<i64> = Inputs::new(SEED)
        .normal(ELEMENTS)
        .into_iter()
        .map(|x| ((f64::from(x) * 2.0 * unit) as i64).clamp(-limit, limit))
        .collect();
    let secret: Vec<u64> = numbers.iter().map(|&x| format.ring.encode(x.into())).collect();
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, format.ring, ELEMENTS, -limit..=limit).await?;
        let y = evaluator.open(gelu.apply(evaluator, &x).await?).await?;
        evaluator.reveal(&y, Party::Zero)
    };
    let clear = run_clear(&circuit, vec![Some(secret.clone())])?;
    let backends = [backend_on(target)?, backend_on(target)?];
    let [zero, one] = run_in_process_on(backends, format, circuit, [vec![None], vec![Some(secret)]])?;
    if zero.output != clear.output {
        return Ok(Err("the parties' result is not what the clear evaluation gives".into()));
    }
    if one.output.is_some() {
        return Ok(Err("the result is for party 0, and party 1 has it too".into()));
    }
    let Some(found) = zero.output else {
        return Ok(Err("party 0 has no result".into()));
    };
    let errors = found.iter().zip(&numbers).map(|(&found, &x)| {
        (format.ring.signed(found) as f64 - unit * reference::gelu(x as f64 / unit)).abs()
    });
    let worst = errors.fold(0.0, f64::max);
    if worst > ALLOWED + 0.5 {
        return Ok(Err(format!("the result is {worst:.1} units of the last bit off, {ALLOWED} are allowed")));
    }
    Ok(Ok(format!(
        "GELU of {ELEMENTS} numbers that one party keeps secret, by two parties on {}: bit for bit what one computes in \
         clear, and within {:.1e} of the real function",
        target.id(),
        worst / unit
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_parties_pass() {
        for (target, case) in [("cpu", "200 of 50 bits on cpu"), ("emulated", "200 of 50 bits on emulated")] {
            let seen = visit(&Target::open(target).unwrap());
            assert!(seen.outcome.is_passed() && seen.case == case, "{seen:?}");
        }
    }
}
