//! Composite gates: exhaustively against f64, and two parties against the clear evaluator.

use gatework_fss::backend::MatmulShape;
use gatework_fss::executor::{WireShape, estimate_gate, join, run_clear};
use gatework_fss::formula::Places;
use gatework_fss::gates::{
    Activation, FloatingTable, LayerNorm, NegativeExponential, Reciprocal, RmsNorm, Rows, Softmax, Tanh,
    clamp, relu, row_maxima,
};
use gatework_fss::{Bound, Error, Evaluator, Party, Result, Ring, Share, Wire, reference};
use proptest::prelude::*;

use crate::support::{Given, all_pairs, check};

const FRACTION: u32 = 12;
const UNIT: f64 = 4096.0;

/// What a gate gives in clear for values of a ring.
fn in_clear<G>(ring: Ring, values: &[i64], range: std::ops::RangeInclusive<i64>, gate: G) -> Vec<i64>
where
    G: AsyncFn(&Evaluator, Wire) -> Result<Share>,
{
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, values.len(), range.clone()).await?;
        let opened = evaluator.open(gate(evaluator, x).await?).await?;
        let (bound, ring) = (opened.bound(), opened.ring());
        let words = evaluator.reveal(&opened, Party::One)?.unwrap_or_default();
        Ok(words
            .iter()
            .map(|&word| bound.decode(ring, word).map_or(i64::MIN, |value| value as i64))
            .collect())
    };
    let words = values.iter().map(|&value| ring.encode(value.into())).collect();
    run_clear(&circuit, vec![Some(words)]).unwrap().output
}

/// The largest distance from a real function, in units of the last place.
fn worst(values: &[i64], found: &[i64], exact: impl Fn(f64) -> f64) -> (f64, i64) {
    let distance =
        |(&value, &found): (&i64, &i64)| ((found as f64 - exact(value as f64 / UNIT) * UNIT).abs(), value);
    values
        .iter()
        .zip(found)
        .map(distance)
        .fold((0.0, 0), |worst, next| if next.0 > worst.0 { next } else { worst })
}

#[test]
fn activations_are_within_sixteen_units_everywhere() {
    let ring = Ring::new(50).unwrap();
    let values: Vec<i64> = (-(1 << 17)..1 << 17).chain([-(1 << 35), (1 << 35) - 1, 1 << 20]).collect();
    type Named = (&'static str, Activation, fn(f64) -> f64);
    let functions: [Named; 3] = [
        ("GELU", Activation::gelu(FRACTION).unwrap(), reference::gelu),
        ("GELU by tanh", Activation::gelu_tanh(FRACTION).unwrap(), reference::gelu_tanh),
        ("SiLU", Activation::silu(FRACTION).unwrap(), reference::silu),
    ];
    for (name, gate, exact) in functions {
        let found = in_clear(ring, &values, -(1 << 35)..=1 << 35, async |evaluator, x| {
            gate.apply(evaluator, &x).await
        });
        let (worst, at) = worst(&values, &found, exact);
        println!("{name}: worst error {worst:.3} ULP at {}, over {} inputs", at as f64 / UNIT, values.len());
        assert!(worst <= 16.0, "{name}: {worst} at {at}");
    }
}

#[test]
fn the_hyperbolic_tangent_is_rounded_and_nothing_else() {
    let ring = Ring::new(50).unwrap();
    let values: Vec<i64> = (-(1 << 17)..1 << 17).chain([-(1 << 35), (1 << 35) - 1, 1 << 20]).collect();
    let gate = Tanh::new(FRACTION).unwrap();
    let found =
        in_clear(ring, &values, -(1 << 35)..=1 << 35, async |evaluator, x| gate.apply(evaluator, &x).await);
    let (worst, at) = worst(&values, &found, f64::tanh);
    println!("tanh: worst error {worst:.3} ULP at {}, over {} inputs", at as f64 / UNIT, values.len());
    assert!(worst <= 0.501, "{worst} at {at}");
    assert!(Tanh::new(13).is_err() && Tanh::new(0).is_err());
}

#[test]
fn the_exponential_is_within_one_unit_everywhere() {
    let (ring, gate) = (Ring::new(40).unwrap(), NegativeExponential::new(FRACTION).unwrap());
    let values: Vec<i64> = (0..1 << 18).chain([(1 << 30) - 1, 1 << 25]).collect();
    let out = Ring::new(50).unwrap();
    let found =
        in_clear(ring, &values, 0..=1 << 30, async |evaluator, x| gate.apply(evaluator, &x, out).await);
    let (worst, at) = worst(&values, &found, |x| reference::exp(-x));
    println!("nExp: worst error {worst:.3} ULP at {}, over {} inputs", at as f64 / UNIT, values.len());
    assert!(worst <= 1.0, "{worst} at {at}");
    assert_eq!(found[0], 1 << FRACTION);
}

#[test]
fn the_reciprocal_is_close_everywhere() {
    for (largest, allowed) in [(1u64, 0.5), (8, 0.5), (15, 0.5), (128, 8.5), (1024, 64.5)] {
        let gate = Reciprocal::new(FRACTION, largest).unwrap();
        let values: Vec<i64> = (1 << FRACTION..=(largest as i64) << FRACTION).collect();
        let (ring, out) = (Ring::new(24).unwrap(), Ring::new(26).unwrap());
        let range = 1 << FRACTION..=(largest as i64) << FRACTION;
        let found = in_clear(ring, &values, range, async |evaluator, x| {
            let found = gate.apply(evaluator, &x, out).await?;
            evaluator.looked_up(&found)
        });
        let (worst, at) = worst(&values, &found, |x| 1.0 / x);
        println!(
            "reciprocal up to {largest}: worst error {worst:.3} ULP at {}, over {} inputs",
            at as f64 / UNIT,
            values.len()
        );
        assert!(worst <= allowed, "up to {largest}: {worst} at {at}");
    }
}

#[test]
fn the_reciprocal_root_is_close_everywhere() {
    let (least, most) = (4, 21);
    let gate = FloatingTable::reciprocal_root(least, most, FRACTION, FRACTION).unwrap();
    let values: Vec<i64> = (1 << least..1 << most).collect();
    let ring = Ring::new(30).unwrap();
    let found = in_clear(ring, &values, 1 << least..=(1 << most) - 1, async |evaluator, x| {
        let found = gate.apply(evaluator, &x).await?;
        evaluator.looked_up(&found)
    });
    let (worst_units, at) = worst(&values, &found, |x| 1.0 / x.sqrt());
    let relative = values.iter().zip(&found).map(|(&value, &found)| {
        let exact = UNIT / (value as f64 / UNIT).sqrt();
        ((found as f64 - exact).abs() - 0.5).max(0.0) / exact
    });
    let relative = relative.fold(0.0, f64::max);
    println!(
        "rsqrt on [2^-8, 2^9): worst error {worst_units:.3} ULP at {}, relative {relative:.2e} beyond rounding, over {} inputs",
        at as f64 / UNIT,
        values.len()
    );
    // Half a step of the mantissa is a quarter of a step of the root.
    assert!(relative <= 0.25 / f64::from(1 << gate.mantissa_bits()) * 1.01, "{relative}");
}

/// Runs a gate of one input as two parties and in clear; masks may be forced.
fn two_parties<G>(
    ring: Ring,
    given: Given,
    range: std::ops::RangeInclusive<i64>,
    masks: Option<Vec<u64>>,
    gate: G,
) -> Vec<u64>
where
    G: AsyncFn(&Evaluator, Wire) -> Result<Share> + Sync,
{
    let len = given.1.len();
    let owner = given.0;
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(owner, ring, len, range.clone()).await?;
        let opened = evaluator.open(gate(evaluator, x).await?).await?;
        evaluator.reveal(&opened, owner.peer())
    };
    check(circuit, &[given], masks.map(|masks| vec![masks]), 9).output
}

#[test]
fn relu_and_clamp_match_for_all_values_and_masks() {
    for bits in [3, 8, 10] {
        let ring = Ring::new(bits).unwrap();
        let (words, masks) = all_pairs(bits);
        let range = ring.signed(1 << (bits - 1))..=ring.signed((1 << (bits - 1)) - 1);
        let given = || (Party::Zero, words.clone());
        let found = two_parties(ring, given(), range.clone(), Some(masks.clone()), async |evaluator, x| {
            relu(evaluator, &x).await
        });
        for (found, &word) in found.iter().zip(&words) {
            assert_eq!(*found, ring.encode(ring.signed(word).max(0).into()));
        }
        for (lo, hi) in [(-3, 2), (-4, 3), (1, 3), (0, 0)] {
            let gate = async |evaluator: &Evaluator, x: Wire| clamp(evaluator, &x, lo, hi).await;
            let found = two_parties(ring, given(), range.clone(), Some(masks.clone()), gate);
            for (found, &word) in found.iter().zip(&words) {
                assert_eq!(*found, ring.encode(ring.signed(word).clamp(lo, hi).into()));
            }
        }
    }
}

#[test]
fn a_clamp_of_narrow_values_matches_and_takes_a_narrow_key() {
    let ring = Ring::new(10).unwrap();
    let (words, masks): (Vec<u64>, Vec<u64>) = {
        let (words, masks) = all_pairs(10);
        words.into_iter().zip(masks).filter(|(word, _)| (-20..=30).contains(&ring.signed(*word))).unzip()
    };
    for (lo, hi) in [(-3, 2), (-20, 30), (-64, 5), (7, 400)] {
        let gate = async |evaluator: &Evaluator, x: Wire| clamp(evaluator, &x, lo, hi).await;
        let given = (Party::Zero, words.clone());
        let found = two_parties(ring, given, -20..=30, Some(masks.clone()), gate);
        for (found, &word) in found.iter().zip(&words) {
            assert_eq!(*found, ring.encode(ring.signed(word).clamp(lo, hi).into()));
        }
    }
    let wide = Ring::new(50).unwrap();
    let bytes = |range: std::ops::RangeInclusive<i64>| {
        let wire = WireShape { ring: wide, len: 1, range };
        let cost = estimate_gate(&[wire], async |evaluator, wires: &[Wire]| {
            clamp(evaluator, &wires[0], -9, 9).await
        });
        cost.unwrap().key_bytes[0]
    };
    // Twelve bits, hence twelve levels, less.
    assert_eq!(bytes(-(1 << 49)..=(1 << 49) - 1) - bytes(-(1 << 37)..=(1 << 37) - 1), 12 * 16);
}

#[test]
fn a_clamp_proves_its_bound() {
    let ring = Ring::new(20).unwrap();
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::Zero, ring, 1, -(1 << 19)..=(1 << 19) - 1).await?;
        assert!(evaluator.gap_truncate(&x, 4, ring).await.is_err());
        let clamped = evaluator.open(clamp(evaluator, &x, -1000, 1000).await?).await?;
        assert_eq!(clamped.bound(), Bound::proved(-1000, 1000));
        evaluator.gap_truncate(&clamped, 4, ring).await
    };
    assert!(run_clear(&circuit, vec![Some(vec![ring.encode(-77_777)])]).is_ok());
}

/// Numbers with f fractional bits around zero, some of them far out.
fn activations() -> impl Strategy<Value = Vec<i64>> {
    let near = -(9i64 << FRACTION)..9i64 << FRACTION;
    prop::collection::vec(prop_oneof![4 => near, 1 => -(1i64 << 22)..1i64 << 22], 1..24)
}

fn encode(ring: Ring, values: &[i64]) -> Vec<u64> {
    values.iter().map(|&value| ring.encode(value.into())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn activations_match_clear_in_model_rings(
        bits in prop::sample::select(vec![37u32, 48, 50, 51, 64]),
        values in activations(),
        // The second bound leaves no room for sums in the ring, so that the comparison needs all of its bits.
        wide in any::<bool>(),
    ) {
        let ring = Ring::new(bits).unwrap();
        let limit = if wide { i64::MAX >> (64 - bits) } else { 1 << 22 };
        let range = if wide { -limit - 1..=limit } else { -limit..=limit };
        for gate in [Activation::gelu_tanh(FRACTION), Activation::gelu(FRACTION), Activation::silu(FRACTION)] {
            let gate = gate.unwrap();
            let apply = async |evaluator: &Evaluator, x: Wire| gate.apply(evaluator, &x).await;
            if wide {
                // The difference of a selection and a table entry could leave the ring here, which is
                // refused.
                let circuit = async |evaluator: &Evaluator| {
                    let x = evaluator.input(Party::One, ring, 1, range.clone()).await?;
                    apply(evaluator, x).await
                };
                let refused = run_clear(&circuit, vec![Some(vec![0])]);
                let refused = matches!(refused, Err(Error::NotProved { .. }));
                prop_assert!(refused);
            } else {
                two_parties(ring, (Party::One, encode(ring, &values)), range.clone(), None, apply);
            }
        }
        let tanh = Tanh::new(FRACTION).unwrap();
        let given = (Party::One, encode(ring, &values));
        two_parties(ring, given, range.clone(), None, async |evaluator, x| tanh.apply(evaluator, &x).await);
        two_parties(ring, (Party::One, encode(ring, &values)), range, None, async |evaluator, x| relu(evaluator, &x).await);
    }

    #[test]
    fn exponentials_and_reciprocals_match_clear(
        bits in prop::sample::select(vec![37u32, 48, 50, 51, 64]),
        values in prop::collection::vec(prop_oneof![0i64..1 << 17, 0i64..1 << 30], 1..24),
    ) {
        let ring = Ring::new(bits).unwrap();
        let gate = NegativeExponential::new(FRACTION).unwrap();
        two_parties(ring, (Party::Zero, encode(ring, &values)), 0..=1 << 30, None, async |evaluator, x| {
            gate.apply(evaluator, &x, ring).await
        });
        let gate = Reciprocal::new(FRACTION, 77).unwrap();
        let sums: Vec<i64> = values.iter().take(4).map(|value| (1 << FRACTION) + value % (76 << FRACTION)).collect();
        let range = 1 << FRACTION..=77 << FRACTION;
        two_parties(ring, (Party::Zero, encode(ring, &sums)), range, None, async |evaluator, x| {
            let found = gate.apply(evaluator, &x, ring).await?;
            evaluator.looked_up(&found)
        });
        let gate = FloatingTable::reciprocal_root(3, 31, FRACTION, FRACTION).unwrap();
        let squares: Vec<i64> = values.iter().take(4).map(|value| value + 8).collect();
        two_parties(ring, (Party::One, encode(ring, &squares)), 8..=(1 << 31) - 1, None, async |evaluator, x| {
            let found = gate.apply(evaluator, &x).await?;
            evaluator.looked_up(&found)
        });
    }
}

#[test]
fn softmax_matches_clear_and_the_real_function() {
    let ring = Ring::new(50).unwrap();
    let kinds = [
        Rows::full(3, 8).unwrap(),
        Rows::causal(2, 7).unwrap(),
        Rows::ragged(vec![1, 5, 16, 3, 2, 31]).unwrap(),
    ];
    for rows in kinds {
        let values: Vec<i64> =
            (0..rows.elements() as i64).map(|i| (i * 7919 % 40961 - 20480) / (1 + i % 3)).collect();
        let softmax = Softmax::new(rows.clone(), FRACTION).unwrap();
        let gate = async |evaluator: &Evaluator, x: Wire| softmax.apply(evaluator, &x, ring).await;
        let found = two_parties(ring, (Party::Zero, encode(ring, &values)), -(1 << 20)..=1 << 20, None, gate);
        let (mut start, mut worst) = (0, 0.0f64);
        for &length in rows.lengths() {
            let row = &values[start..start + length];
            let largest = *row.iter().max().unwrap();
            let powers: Vec<f64> = row.iter().map(|&x| reference::exp((x - largest) as f64 / UNIT)).collect();
            let sum: f64 = powers.iter().sum();
            for (power, &found) in powers.iter().zip(&found[start..]) {
                worst = worst.max((found as f64 - power / sum * UNIT).abs());
            }
            start += length;
        }
        println!("softmax of {rows:?}: worst error {worst:.2} ULP");
        assert!(worst < 8.0, "{worst}");
    }
}

#[test]
fn norms_match_clear_and_the_real_functions() {
    let (rows, width) = (3, 24usize);
    let ring = Ring::new(50).unwrap();
    let epsilon = 1e-5;
    let values: Vec<i64> =
        (0..(rows * width) as i64).map(|i| (i * 104_729) % 24_571 - 9000 + 500 * (i / 24)).collect();
    let gamma: Vec<i64> = (0..width as i64).map(|i| 3000 + 97 * i).collect();
    let beta: Vec<i64> = (0..width as i64).map(|i| 400 - 61 * i).collect();
    let (layer, rms) = (
        LayerNorm::new(width, FRACTION, epsilon, 44).unwrap(),
        RmsNorm::new(width, FRACTION, epsilon, 44).unwrap(),
    );
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, rows * width, -40_000..=40_000).await?;
        let gamma = evaluator.weights(Party::Zero, ring, width, -8192..=8192).await?;
        let beta = evaluator.weights(Party::Zero, ring, width, -8192..=8192).await?;
        let layer = async { evaluator.open(layer.apply(evaluator, &x, &gamma, &beta).await?).await };
        let rms = async { evaluator.open(rms.apply(evaluator, &x, &gamma).await?).await };
        let (layer, rms) = join(layer, rms).await?;
        evaluator.reveal(&Wire::concat(&[&layer, &rms])?, Party::One)
    };
    let given = [
        (Party::One, encode(ring, &values)),
        (Party::Zero, encode(ring, &gamma)),
        (Party::Zero, encode(ring, &beta)),
    ];
    let found = check(circuit, &given, None, 10).output;
    let mut worst = [0.0f64; 2];
    for (row, values) in values.chunks(width).enumerate() {
        let x: Vec<f64> = values.iter().map(|&x| x as f64 / UNIT).collect();
        let mean = x.iter().sum::<f64>() / width as f64;
        for (norm, centre) in [mean, 0.0].into_iter().enumerate() {
            let squares = x.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / width as f64 + epsilon;
            for column in 0..width {
                let scaled = (x[column] - centre) / squares.sqrt() * gamma[column] as f64;
                let exact = scaled + if norm == 0 { beta[column] as f64 } else { 0.0 };
                let found = ring.signed(found[norm * rows * width + row * width + column]);
                worst[norm] = worst[norm].max((found as f64 - exact).abs());
            }
        }
    }
    println!("LayerNorm: worst error {:.2} ULP; RMSNorm: {:.2} ULP", worst[0], worst[1]);
    assert!(worst.iter().all(|&worst| worst < 8.0), "{worst:?}");
}

/// Pre-norm models have rows of deviations in the hundreds: their reciprocals must be as exact as those of
/// small ones.
#[test]
fn norms_of_rows_of_any_deviation_are_as_exact() {
    let width = 64usize;
    let deviations = [1.0, 3.0, 11.0, 32.0, 100.0, 204.0, 290.0, 511.0, 1000.0];
    // A ring in which the squares of the largest have room.
    let (ring, sum_bits) = (Ring::new(60).unwrap(), 58);
    let shape = |column: usize| ((column * 37 % 64) as f64 - 31.5) / 18.47;
    let values: Vec<i64> = deviations
        .iter()
        .flat_map(|sigma| (0..width).map(move |column| (sigma * shape(column) * UNIT).round() as i64))
        .collect();
    let (layer, rms) = (
        LayerNorm::new(width, FRACTION, 1e-5, sum_bits).unwrap(),
        RmsNorm::new(width, FRACTION, 1e-5, sum_bits).unwrap(),
    );
    let len = values.len();
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, len, -(1 << 23)..=1 << 23).await?;
        let gain = evaluator.weights(Party::Zero, ring, width, -8192..=8192).await?;
        let shift = evaluator.weights(Party::Zero, ring, width, -8192..=8192).await?;
        let layer = async { evaluator.open(layer.apply(evaluator, &x, &gain, &shift).await?).await };
        let rms = async { evaluator.open(rms.apply(evaluator, &x, &gain).await?).await };
        let (layer, rms) = join(layer, rms).await?;
        evaluator.reveal(&Wire::concat(&[&layer, &rms])?, Party::One)
    };
    let given = [
        (Party::One, encode(ring, &values)),
        (Party::Zero, encode(ring, &vec![1 << FRACTION; width])),
        (Party::Zero, encode(ring, &vec![0; width])),
    ];
    let found = check(circuit, &given, None, 10).output;
    for (norm, found) in found.chunks(len).enumerate() {
        for ((sigma, x), found) in deviations.iter().zip(values.chunks(width)).zip(found.chunks(width)) {
            let mean = if norm == 0 { x.iter().sum::<i64>() as f64 / width as f64 } else { 0.0 };
            let root = (x.iter().map(|&x| (x as f64 - mean).powi(2)).sum::<f64>() / width as f64).sqrt();
            let exact: Vec<f64> = x.iter().map(|&x| (x as f64 - mean) / root).collect();
            let error = |(exact, &found): (&f64, &u64)| (ring.signed(found) as f64 / UNIT - exact).abs();
            let worst = exact.iter().zip(found).map(error).fold(0.0, f64::max);
            let largest = exact.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
            println!("norm {norm}, deviation {sigma}: off by {:.1e} of its largest", worst / largest);
            // Four units of rounding, and half a step of the table's index.
            assert!(worst < 4.0 / UNIT + largest * 2f64.powi(-10), "norm {norm}, deviation {sigma}: {worst}");
        }
    }
}

#[test]
fn maxima_match_for_every_length() {
    let ring = Ring::new(20).unwrap();
    // Longer ones begin with pairs. Some elements are equal.
    let rows = Rows::ragged((1..=9).chain([1, 4, 3, 2]).collect()).unwrap();
    let values: Vec<i64> = (0..45i64).map(|i| (i * 7919) % 3001 - 1500).chain([5; 10]).collect();
    let (rows_ref, len) = (&rows, rows.elements());
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::Zero, ring, len, -2000..=2000).await?;
        evaluator.reveal(&row_maxima(evaluator, &x, rows_ref).await?, Party::One)
    };
    let seen = check(circuit, &[(Party::Zero, encode(ring, &values))], None, 3);
    let found = seen.output;
    // Pairs down to three and four elements, which are one group; and the input.
    assert_eq!(seen.cost.rounds, 1 + 2 * 3);
    let mut start = 0;
    for (row, &length) in rows.lengths().iter().enumerate() {
        assert_eq!(ring.signed(found[row]), *values[start..start + length].iter().max().unwrap());
        start += length;
    }
}

#[test]
fn parameters_that_no_gate_has_are_errors_not_panics() {
    assert!(Activation::gelu(6).is_err() && Activation::silu(u32::MAX).is_err());
    assert!(NegativeExponential::new(u32::MAX).is_err());
    assert!(Reciprocal::new(u32::MAX, 7).is_err() && Reciprocal::new(12, 0).is_err());
    assert!(FloatingTable::new(u32::MAX, 7, |x| x).is_err() && FloatingTable::new(3, 64, |x| x).is_err());
    assert!(RmsNorm::new(0, 12, 1e-5, 40).is_err() && RmsNorm::new(8, 12, f64::NAN, 40).is_err());
    assert!(
        LayerNorm::new(usize::MAX, 12, 1e-5, 40).is_err() && LayerNorm::new(8, 12, 1e-5, u32::MAX).is_err()
    );
    assert!(Rows::full(0, 3).is_err() && Rows::ragged(vec![2, 0]).is_err());
    let ring = Ring::new(30).unwrap();
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, 1, -5..=5).await?;
        assert!(evaluator.gap_truncate(&x, u32::MAX, ring).await.is_err());
        assert!(evaluator.truncate_reduce(&x, u32::MAX, ring).await.is_err());
        assert!(evaluator.faithful_truncate(&x, u32::MAX, ring).await.is_err());
        assert!(x.low_bits(0).is_err() && x.low_bits(31).is_err() && x.gather(&Places::new([1])?).is_err());
        let huge = MatmulShape { batch: usize::MAX, rows: 2, inner: 2, columns: 2 };
        let mask = evaluator.mask_share(&x)?;
        assert!(evaluator.matmul(&x, &mask, &x, &mask, huge).is_err());
        let (none, no_mask) = (x.gather(&Places::new([])?)?, mask.gather(&Places::new([])?)?);
        let over_nothing = MatmulShape { batch: 1, rows: 1 << 40, inner: 0, columns: 1 << 20 };
        assert!(evaluator.matmul(&none, &no_mask, &none, &no_mask, over_nothing).is_err());
        Ok(())
    };
    run_clear(&circuit, vec![Some(vec![0])]).unwrap();
}
