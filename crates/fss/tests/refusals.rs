//! What gates refuse because they would give a wrong answer in silence.

use gatework_fss::executor::run_clear;
use gatework_fss::gates::{Activation, RmsNorm, clamp, relu};
use gatework_fss::{Error, Evaluator, Party, Ring, Wire};

/// Runs one gate on values of a declared range in clear, which is where two parties would go wrong in
/// silence.
fn in_clear(
    bits: u32,
    range: std::ops::RangeInclusive<i64>,
    gate: impl AsyncFn(&Evaluator, &Wire) -> gatework_fss::Result<gatework_fss::Share>,
) -> gatework_fss::Result<Option<Vec<u64>>> {
    let ring = Ring::new(bits)?;
    let value = ring.encode((*range.end()).into());
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, 1, range.clone()).await?;
        let y = evaluator.open(gate(evaluator, &x).await?).await?;
        evaluator.reveal(&y, Party::Zero)
    };
    Ok(run_clear(&circuit, vec![Some(vec![value])])?.output)
}

#[test]
fn signs_of_values_that_are_not_signed_in_their_ring_are_refused() {
    for range in [0..=255, -10..=140] {
        for error in [
            in_clear(8, range.clone(), relu).unwrap_err(),
            in_clear(8, range.clone(), async |evaluator, x| clamp(evaluator, x, -5, 5).await).unwrap_err(),
        ] {
            assert!(matches!(error, Error::NotProved { .. }), "{range:?}: {error}");
        }
    }
    assert_eq!(in_clear(8, -10..=127, relu).unwrap(), Some(vec![127]));
    assert_eq!(in_clear(9, 0..=255, relu).unwrap(), Some(vec![255]));
}

#[test]
fn an_activation_needs_room_for_its_limits() {
    let gelu = Activation::gelu(12).unwrap();
    let apply = async |evaluator: &Evaluator, x: &Wire| gelu.apply(evaluator, x).await;
    let error = in_clear(15, -15000..=4096, apply).unwrap_err();
    assert!(error.to_string().contains("at least 16"), "{error}");
    // GELU(1) = 0.8413.
    let found = in_clear(16, -15000..=4096, apply).unwrap().unwrap()[0];
    assert!((found as f64 / 4096.0 - 0.8413).abs() < 17.0 / 4096.0, "{found}");
}

#[test]
fn a_norm_without_a_mantissa_is_refused() {
    assert!(matches!(RmsNorm::new(1, 0, 1.0, 1), Err(Error::Unsupported { .. })));
}
