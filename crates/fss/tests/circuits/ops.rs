//! Every primitive over all values and masks of small rings, and over random ones of large rings.

use gatework_fss::backend::MatmulShape;
use gatework_fss::executor::run_clear;
use gatework_fss::formula::View;
use gatework_fss::ops::{Leading, Payload};
use gatework_fss::table::Table;
use gatework_fss::{Bound, Error, Evaluator, Party, Result, Ring, Share, Wire};
use proptest::prelude::*;

use crate::support::{Given, all_pairs, check};

/// A circuit of one input that opens its output to party 0.
fn unary<G>(
    ring: Ring,
    len: usize,
    signed: bool,
    gate: G,
) -> impl AsyncFn(&Evaluator) -> Result<Option<Vec<u64>>> + Sync
where
    G: AsyncFn(&Evaluator, Wire) -> Result<Share> + Sync,
{
    let bound = if signed { Bound::signed(ring) } else { Bound::unsigned(ring) };
    let range = bound.lo() as i64..=i64::try_from(bound.hi()).unwrap_or(i64::MAX);
    async move |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, len, range.clone()).await?;
        let share = gate(evaluator, x).await?;
        let opened = evaluator.open(share).await?;
        evaluator.reveal(&opened, Party::Zero)
    }
}

/// Runs a gate of one input over all (x, r) of `bits` bits with x in a range, and compares with `expected`.
fn exhaust<G>(bits: u32, range: std::ops::RangeInclusive<i64>, gate: G, expected: impl Fn(i64) -> u64)
where
    G: AsyncFn(&Evaluator, Wire) -> Result<Share> + Sync,
{
    let ring = Ring::new(bits).unwrap();
    let bound = Bound::proved((*range.start()).into(), (*range.end()).into());
    let (words, masks): (Vec<u64>, Vec<u64>) = {
        let (words, masks) = all_pairs(bits);
        words.into_iter().zip(masks).filter(|&(word, _)| bound.decode(ring, word).is_some()).unzip()
    };
    let len = words.len();
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, len, range.clone()).await?;
        let share = gate(evaluator, x).await?;
        let opened = evaluator.open(share).await?;
        evaluator.reveal(&opened, Party::Zero)
    };
    let seen = check(circuit, &[(Party::One, words.clone())], Some(vec![masks]), 1);
    for (index, word) in words.iter().enumerate() {
        let value = bound.decode(ring, *word).unwrap() as i64;
        assert_eq!(seen.output[index], expected(value), "{bits} bits, value {value}");
    }
}

fn signed_range(bits: u32) -> std::ops::RangeInclusive<i64> {
    -(1i64 << (bits - 1))..=(1i64 << (bits - 1)) - 1
}

fn unsigned_range(bits: u32) -> std::ops::RangeInclusive<i64> {
    0..=(1i64 << bits) - 1
}

#[test]
fn signs_match_for_all_values_and_masks() {
    for bits in 2..=10 {
        let ring = Ring::new(bits).unwrap();
        for shift in [0, ring.mask() / 3] {
            let gate = async |evaluator: &Evaluator, x: Wire| {
                let mut signs = evaluator.signs(&x, &[5, shift])?;
                Ok(signs.remove(1))
            };
            exhaust(bits, signed_range(bits), gate, |x| {
                ring.msb(ring.encode(i128::from(x) + i128::from(shift)))
            });
        }
    }
}

#[test]
fn interval_tests_match_for_all_values_and_masks() {
    for (bits, ends) in
        [(3, (2, 6)), (7, (100, 20)), (9, (0, 511)), (10, (513, 700)), (10, (1000, 3)), (4, (7, 7))]
    {
        let ring = Ring::new(bits).unwrap();
        let gate =
            async |evaluator: &Evaluator, x: Wire| Ok(evaluator.intervals(&x, &[(1, 2), ends])?.remove(1));
        let inside =
            |x: i64| ring.reduce((x as u64).wrapping_sub(ends.0)) < ring.reduce(ends.1.wrapping_sub(ends.0));
        exhaust(bits, unsigned_range(bits), gate, |x| u64::from(inside(x)));
    }
}

#[test]
fn gap_truncations_match_for_all_values_and_masks() {
    for bits in 3..=10 {
        for shift in [0, 1, bits / 2, bits - 2] {
            // A million pairs are enough once.
            let outs = if bits >= 9 { vec![bits] } else { vec![bits - shift, bits, bits + 5, 64] };
            for out in outs {
                let (quarter, half) = (1i64 << (bits - 2), 1i64 << (bits - 1));
                let out = Ring::new(out).unwrap();
                let gate =
                    async |evaluator: &Evaluator, x: Wire| evaluator.gap_truncate(&x, shift, out).await;
                let expected = |x: i64| out.encode(i128::from(x) >> shift);
                exhaust(bits, -quarter + 1..=quarter - 1, gate, expected);
                exhaust(bits, 0..=half - 1, gate, expected);
            }
        }
    }
}

#[test]
fn a_gap_that_is_not_proved_is_refused() {
    let ring = Ring::new(10).unwrap();
    let circuit = |range: std::ops::RangeInclusive<i64>| {
        async move |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, ring, 1, range.clone()).await?;
            evaluator.gap_truncate(&x, 3, ring).await
        }
    };
    let refused = run_clear(&circuit(-256..=255), vec![Some(vec![0])]);
    assert!(matches!(refused, Err(Error::NotProved { .. })));
    assert!(run_clear(&circuit(-255..=255), vec![Some(vec![0])]).is_ok());
}

#[test]
fn a_violated_bound_is_an_error_in_clear() {
    let ring = Ring::new(20).unwrap();
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, 3, -500_000..=500_000).await?;
        let x = evaluator.claim("a proof", x, Bound::proved(-1000, 1000))?;
        evaluator.gap_truncate(&x, 4, ring).await
    };
    let words = |values: [i128; 3]| vec![Some(values.map(|value| ring.encode(value)).to_vec())];
    assert!(run_clear(&circuit, words([1000, -1000, 3])).is_ok());
    let violated = run_clear(&circuit, words([5, -1001, 3]));
    assert!(matches!(violated, Err(Error::BoundViolated { index: 1, .. })));
    // A product that leaves the bound that was stated for it.
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, 3, -700..=700).await?;
        let mask = evaluator.mask_share(&x)?;
        evaluator.square_sums(&x, &mask, 3, Some(Bound::proved(0, 50_000)))
    };
    assert!(run_clear(&circuit, words([100, -100, 100])).is_ok());
    assert!(matches!(run_clear(&circuit, words([200, -100, 100])), Err(Error::BoundViolated { .. })));
}

#[test]
fn reducing_truncations_match_for_all_values_and_masks() {
    let whole = (2..=10)
        .flat_map(|bits| [(bits, 1, bits - 1), (bits, bits / 2, bits - bits / 2), (bits, bits - 1, 1)]);
    for (bits, shift, kept) in whole.chain([(10, 4, 3), (9, 2, 5)]) {
        let out = Ring::new(kept).unwrap();
        let gate = async |evaluator: &Evaluator, x: Wire| evaluator.truncate_reduce(&x, shift, out).await;
        exhaust(bits, unsigned_range(bits), gate, |x| out.reduce(x as u64 >> shift));
    }
}

#[test]
fn faithful_truncations_match_for_all_values_and_masks() {
    for (bits, shift) in (3..=10).flat_map(|bits| [(bits, 1), (bits, bits - 2)]) {
        let ring = Ring::new(bits).unwrap();
        let gate = async |evaluator: &Evaluator, x: Wire| evaluator.faithful_truncate(&x, shift, ring).await;
        exhaust(bits, signed_range(bits), gate, |x| ring.encode(i128::from(x) >> shift));
        exhaust(bits, unsigned_range(bits), gate, |x| ring.encode(i128::from(x) >> shift));
        let narrow = Ring::new(bits - shift).unwrap();
        let gate = async |evaluator: &Evaluator, x: Wire| evaluator.truncate(&x, shift, narrow).await;
        exhaust(bits, signed_range(bits), gate, |x| narrow.encode(i128::from(x) >> shift));
    }
}

#[test]
fn extensions_match_for_all_values_and_masks() {
    for (bits, wide) in (2..=10).map(|bits| (bits, 6 * bits + 4)) {
        let out = Ring::new(wide).unwrap();
        let gate = async |evaluator: &Evaluator, x: Wire| evaluator.extend(&x, out).await;
        exhaust(bits, signed_range(bits), gate, |x| out.encode(x.into()));
        exhaust(bits, unsigned_range(bits), gate, |x| out.encode(x.into()));
    }
}

#[test]
fn lookups_match_for_all_values_and_masks() {
    let out = Ring::new(37).unwrap();
    for bits in 1..=10 {
        let table = Table::new(bits, |x| (x as i64 * 977) % 1000 - 300).unwrap();
        let gate = async |evaluator: &Evaluator, x: Wire| {
            let found = evaluator.lookup(&x, &table, out).await?;
            evaluator.looked_up(&found)
        };
        exhaust(bits, unsigned_range(bits), gate, |x| out.reduce(table.value(x as u64)));
    }
}

#[test]
fn interval_lookups_match_for_all_values_and_masks() {
    let out = Ring::new(50).unwrap();
    for bits in 4..=10 {
        let top = 1u64 << bits;
        let starts = [0, 1, top / 3, top / 2, top - 1];
        let pieces: Vec<Payload> = starts
            .iter()
            .enumerate()
            .map(|(piece, &start)| Payload {
                start,
                words: (0..4).map(|k| (piece as u64 + 3) * (7 + k)).collect(),
            })
            .collect();
        let kinds = if bits == 10 { vec![(0, 3)] } else { vec![(0, 0), (3, 0), (1, 1), (1, 2), (0, 3)] };
        for (first, degree) in kinds {
            // Coefficients times powers live in the payload's ring, so x is given in it.
            let gate = async |evaluator: &Evaluator, x: Wire| {
                let found = evaluator.piecewise(&x, &pieces, Ring::new(bits)?).await?;
                evaluator.polynomial(&found, first, degree, &x, Bound::unsigned(Ring::new(bits)?))
            };
            let ring = Ring::new(bits).unwrap();
            exhaust(bits, unsigned_range(bits), gate, |x| {
                let piece = starts.iter().rposition(|&start| start <= x as u64).unwrap();
                let words = &pieces[piece].words[first..=first + degree];
                ring.reduce(words.iter().rev().fold(0, |sum, word| sum * x as u64 + word))
            });
        }
        let gate = async |evaluator: &Evaluator, x: Wire| {
            let found = evaluator.piecewise(&x, &pieces, out).await?;
            evaluator.polynomial(&found, 2, 0, &x.clone(), Bound::unsigned(out))
        };
        if bits < 50 {
            // A payload's ring may be wider than the index's as long as no power of x is taken.
            let refused = run_clear(&unary(Ring::new(bits).unwrap(), 1, false, gate), vec![Some(vec![1])]);
            assert!(matches!(refused, Err(Error::Shape { .. })));
        }
    }
}

/// x and y of one party each, opened to party 1.
fn binary<G>(
    rings: [Ring; 2],
    len: usize,
    gate: G,
) -> impl AsyncFn(&Evaluator) -> Result<Option<Vec<u64>>> + Sync
where
    G: AsyncFn(&Evaluator, Wire, Wire) -> Result<Share> + Sync,
{
    let range = |ring: Ring| 0..=i64::try_from(ring.mask()).unwrap();
    async move |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, rings[0], len, range(rings[0])).await?;
        let y = evaluator.input(Party::Zero, rings[1], len, range(rings[1])).await?;
        let share = gate(evaluator, x, y).await?;
        let opened = evaluator.open(share).await?;
        evaluator.reveal(&opened, Party::One)
    }
}

fn pairs_of(bits: u32) -> (Vec<Given>, Vec<Vec<u64>>) {
    // All bits and their masks, with all values and their masks.
    let (words, masks) = all_pairs(bits);
    let (mut given, mut given_masks) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for choice in 0..4u64 {
        given[0].extend(std::iter::repeat_n(choice & 1, words.len()));
        given_masks[0].extend(std::iter::repeat_n(choice >> 1, words.len()));
        given[1].extend_from_slice(&words);
        given_masks[1].extend_from_slice(&masks);
    }
    let [bits, words] = given;
    (vec![(Party::One, bits), (Party::Zero, words)], given_masks.to_vec())
}

#[test]
fn selections_match_for_all_values_and_masks() {
    let ring = Ring::new(8).unwrap();
    let (given, masks) = pairs_of(8);
    let len = given[0].1.len();
    let circuit = binary([Ring::BIT, ring], len, async |evaluator, bit, x| evaluator.select(&bit, &x));
    let seen = check(circuit, &given, Some(masks.clone()), 2);
    for (index, output) in seen.output.iter().enumerate() {
        assert_eq!(*output, given[0].1[index] * given[1].1[index]);
    }
    let table = Table::new(8, |x| x as i64 * 3 - 100).unwrap();
    let out = Ring::new(20).unwrap();
    let circuit = binary([Ring::BIT, ring], len, async |evaluator, bit, x| {
        let found = evaluator.lookup(&x, &table, out).await?;
        evaluator.select_looked_up(&bit, &found)
    });
    let seen = check(circuit, &given, Some(masks), 3);
    for (index, output) in seen.output.iter().enumerate() {
        assert_eq!(*output, out.reduce(given[0].1[index].wrapping_mul(table.value(given[1].1[index]))));
    }
}

#[test]
fn conjunctions_and_bit_values_match_for_all_values_and_masks() {
    let (given, masks) = pairs_of(1);
    let circuit = binary([Ring::BIT, Ring::BIT], 16, async |evaluator, a, b| evaluator.and(&a, &b));
    let seen = check(circuit, &given, Some(masks.clone()), 4);
    for (index, output) in seen.output.iter().enumerate() {
        assert_eq!(*output, given[0].1[index] & given[1].1[index]);
    }
    let ring = Ring::new(13).unwrap();
    let circuit = binary([Ring::BIT, Ring::BIT], 16, async |evaluator, a, _| evaluator.bit_value(&a, ring));
    assert_eq!(check(circuit, &given, Some(masks), 5).output, given[0].1);
}

/// Numbers of 5 bits whose upper three are looked up.
fn quotient_tables() -> [Table; 2] {
    [Table::new(3, |x| 40 - x as i64 * 9).unwrap(), Table::new(5, |x| x as i64 * 100 - 7).unwrap()]
}

#[test]
fn lookups_of_quotients_match_for_all_values_and_masks() {
    let (words, masks) = all_pairs(5);
    let (len, ring, out) = (words.len(), Ring::new(5).unwrap(), Ring::new(30).unwrap());
    let [table, _] = quotient_tables();
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, len, 0..=31).await?;
        let found = evaluator.lookup_quotient(&x, 2, &table, out).await?;
        evaluator.reveal(&evaluator.open(evaluator.looked_up(&found)?).await?, Party::Zero)
    };
    let seen = check(circuit, &[(Party::One, words.clone())], Some(vec![masks]), 6);
    // The borrow and both values, then the value itself.
    assert_eq!(seen.cost.rounds, 3);
    for (word, output) in words.iter().zip(&seen.output) {
        assert_eq!(*output, out.reduce(table.value(word >> 2)));
    }
}

#[test]
fn products_of_lookups_match_for_all_bits() {
    let (words, masks) = all_pairs(5);
    let (len, ring, out) = (words.len(), Ring::new(5).unwrap(), Ring::new(30).unwrap());
    let tables = quotient_tables();
    let turned: Vec<u64> = words.iter().rev().copied().collect();
    for (bit, bit_mask) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let circuit = async |evaluator: &Evaluator| {
            let bit = evaluator.input(Party::One, Ring::BIT, len, 0..=1).await?;
            let x = evaluator.input(Party::One, ring, len, 0..=31).await?;
            let y = evaluator.input(Party::Zero, ring, len, 0..=31).await?;
            let left = evaluator.lookup_quotient(&x, 2, &tables[0], out).await?;
            let right = evaluator.lookup(&y, &tables[1], out).await?;
            let product = evaluator.select_product(&bit, &left, &right)?;
            evaluator.reveal(&evaluator.open(product).await?, Party::Zero)
        };
        let given =
            [(Party::One, vec![bit; len]), (Party::One, words.clone()), (Party::Zero, turned.clone())];
        let seen = check(circuit, &given, Some(vec![vec![bit_mask; len], masks.clone(), masks.clone()]), 6);
        for index in 0..len {
            let product = tables[0].value(words[index] >> 2).wrapping_mul(tables[1].value(turned[index]));
            assert_eq!(seen.output[index], out.reduce(product.wrapping_mul(bit)));
        }
    }
}

#[test]
fn rows_scale_by_their_lookup() {
    let (words, masks) = all_pairs(5);
    let (len, ring, out) = (words.len(), Ring::new(5).unwrap(), Ring::new(30).unwrap());
    let [upper, whole] = quotient_tables();
    let turned: Vec<u64> = words.iter().rev().copied().collect();
    let given = [(Party::One, words.clone()), (Party::Zero, turned.clone())];
    let masks = vec![masks.clone(), masks];
    for shift in [0, 2] {
        let table = if shift == 0 { &whole } else { &upper };
        let circuit = binary([ring, ring], len, async |evaluator, x, y| {
            let y = evaluator.open(evaluator.extend(&y, out).await?).await?;
            let places = x.part(0, len / 4)?;
            let rows = match shift {
                0 => evaluator.lookup(&places, table, out).await?,
                _ => evaluator.lookup_quotient(&places, shift, table, out).await?,
            };
            evaluator.scale_rows(&y, &rows, &View::Each(4), None)
        });
        let seen = check(circuit, &given, Some(masks.clone()), 7);
        for index in 0..len {
            let value = table.value(words[index / 4] >> shift);
            assert_eq!(seen.output[index], out.reduce(value.wrapping_mul(turned[index])));
        }
    }
}

#[test]
fn leading_indices_match_for_all_values_and_masks() {
    let (words, masks) = all_pairs(7);
    let (words, masks): (Vec<u64>, Vec<u64>) =
        words.into_iter().zip(masks).filter(|(word, _)| (2..64).contains(word)).unzip();
    let (len, ring) = (words.len(), Ring::new(7).unwrap());
    for (mantissa, bits) in [(3, 6), (3, 9), (4, 7), (1, 4)] {
        let (leading, out) = (Leading { least: 1, most: 6, mantissa }, Ring::new(bits).unwrap());
        let circuit = async |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, ring, len, 2..=63).await?;
            let index = evaluator.leading_index(&x, leading, out).await?;
            evaluator.reveal(&evaluator.open(index).await?, Party::Zero)
        };
        let seen = check(circuit, &[(Party::One, words.clone())], Some(vec![masks.clone()]), 8);
        assert_eq!(seen.cost.rounds, 3);
        for (&word, &output) in words.iter().zip(&seen.output) {
            let exponent = 63 - word.leading_zeros();
            let behind = (word << 20 >> exponent << mantissa >> 20) - (1 << mantissa);
            assert_eq!(output, (u64::from(exponent - 1) << mantissa) + behind, "{word}");
        }
    }
}

#[test]
fn products_with_quotients_match_for_all_values_and_masks() {
    // Signed values have a gap between −16 and 16.
    let (words, masks) = all_pairs(6);
    let ring = Ring::new(6).unwrap();
    let (words, masks): (Vec<u64>, Vec<u64>) =
        words.into_iter().zip(masks).filter(|(word, _)| (-15..16).contains(&ring.signed(*word))).unzip();
    let len = words.len();
    for (gamma, gamma_mask) in [(3, 0), (5, 17), (ring.encode(-4), 63)] {
        let circuit = async |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, ring, len, -15..=15).await?;
            let gamma = evaluator.weights(Party::Zero, ring, 1, -4..=5).await?;
            let quotient = evaluator.quotient(&x, 3).await?;
            let product = evaluator.quotient_product(&quotient, &gamma, &View::Cycle(1), ring)?;
            evaluator.reveal(&evaluator.open(product).await?, Party::Zero)
        };
        let given = [(Party::One, words.clone()), (Party::Zero, vec![gamma])];
        let seen = check(circuit, &given, Some(vec![masks.clone(), vec![gamma_mask]]), 9);
        for (&word, &output) in words.iter().zip(&seen.output) {
            assert_eq!(ring.signed(output), (ring.signed(word) >> 3) * ring.signed(gamma));
        }
    }
}

#[test]
fn two_quotients_match_for_all_values_and_masks() {
    // Signed values have a gap between −64 and 64.
    let (words, masks) = all_pairs(8);
    let ring = Ring::new(8).unwrap();
    let (words, masks): (Vec<u64>, Vec<u64>) =
        words.into_iter().zip(masks).filter(|(word, _)| (-63..64).contains(&ring.signed(*word))).unzip();
    let len = words.len();
    for (fine, more, bits) in [(2, 2, 4), (1, 3, 2), (3, 1, 3)] {
        let coarse = Ring::new(bits).unwrap();
        let circuit = async |evaluator: &Evaluator| {
            let x = evaluator.input(Party::One, ring, len, -63..=63).await?;
            let [first, second] = evaluator.two_quotients(&x, [fine, more], ring, coarse).await?;
            let (first, second) = (evaluator.open(first).await?, evaluator.open(second).await?);
            let [first, second] = [first, second].map(|wire| evaluator.reveal(&wire, Party::Zero));
            Ok(first?.zip(second?).map(|(first, second)| [first, second].concat()))
        };
        let seen = check(circuit, &[(Party::One, words.clone())], Some(vec![masks.clone()]), 11);
        // The input, the bits, and each quotient by itself.
        assert_eq!(seen.cost.rounds, 4);
        for (index, &word) in words.iter().enumerate() {
            assert_eq!(ring.signed(seen.output[index]), ring.signed(word) >> fine);
            let quotient = ring.signed(word) >> (fine + more);
            assert_eq!(seen.output[len + index], coarse.encode(quotient.into()), "{word}");
        }
    }
}

#[test]
fn centred_sums_of_squares_match_for_all_means_and_masks() {
    // Rows of two, the first of which has every mask; the mean is a quarter of their sum, so that bits are
    // cut off.
    let ring = Ring::new(9).unwrap();
    let (mut values, mut masks) = (Vec::new(), Vec::new());
    for (first, second) in [(0i64, 0i64), (3, 5), (-6, 1), (-7, -7), (7, 7), (2, -5)] {
        for mask in 0..512 {
            values.extend([ring.encode(first.into()), ring.encode(second.into())]);
            masks.extend([mask, 5 * mask % 7]);
        }
    }
    let len = values.len();
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, len, -7..=7).await?;
        let mean = evaluator.quotient(&x.row_sums(2)?, 2).await?;
        let sums = evaluator.centred_square_sums(&x, &evaluator.mask_share(&x)?, &mean, None)?;
        evaluator.reveal(&evaluator.open(sums).await?, Party::Zero)
    };
    let seen = check(circuit, &[(Party::One, values.clone())], Some(vec![masks]), 10);
    for (row, &output) in values.chunks(2).zip(&seen.output) {
        let [first, second] = [row[0], row[1]].map(|word| ring.signed(word));
        let mean = (first + second) >> 2;
        assert_eq!(output as i64, (first - mean).pow(2) + (second - mean).pow(2));
    }
}

/// Rings of real models.
fn model_rings() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![37u32, 48, 50, 51, 64])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn truncations_match_in_model_rings(
        bits in model_rings(),
        shift in 1u32..30,
        values in prop::collection::vec(any::<i64>(), 1..20),
        seed in any::<u64>(),
    ) {
        let ring = Ring::new(bits).unwrap();
        let within = |room: u32| values.iter().map(move |value| value >> (64 - room)).collect::<Vec<_>>();
        let encode = |values: &[i64]| values.iter().map(|&value| ring.encode(value.into())).collect::<Vec<_>>();
        let limit = 1i64 << (bits - 2);
        let gap: Vec<i64> = within(bits - 1).into_iter().map(|value| value.clamp(1 - limit, limit - 1)).collect();
        let gate = async |evaluator: &Evaluator, x: Wire| evaluator.gap_truncate(&x, shift, ring).await;
        let range = 1 - limit..=limit - 1;
        let circuit = async |evaluator: &Evaluator| {
            let x = evaluator.input(Party::Zero, ring, gap.len(), range.clone()).await?;
            let share = gate(evaluator, x).await?;
            let opened = evaluator.open(share).await?;
            evaluator.reveal(&opened, Party::One)
        };
        let seen = check(circuit, &[(Party::Zero, encode(&gap))], None, seed);
        let shifted = |values: &[i64]| values.iter().map(|&value| ring.encode((value >> shift).into())).collect::<Vec<_>>();
        prop_assert_eq!(seen.output, shifted(&gap));
        let whole = within(bits);
        let gate = async |evaluator: &Evaluator, x: Wire| evaluator.faithful_truncate(&x, shift, ring).await;
        let seen = check(unary(ring, whole.len(), true, gate), &[(Party::One, encode(&whole))], None, seed);
        prop_assert_eq!(seen.output, shifted(&whole));
    }

    #[test]
    fn comparisons_match_in_model_rings(
        bits in model_rings(),
        values in prop::collection::vec(any::<i64>(), 1..20),
        ends in any::<(u64, u64)>(),
        seed in any::<u64>(),
    ) {
        let ring = Ring::new(bits).unwrap();
        let words: Vec<u64> = values.iter().map(|&value| ring.reduce(value as u64)).collect();
        let given = [(Party::One, words.clone())];
        let gate = async |evaluator: &Evaluator, x: Wire| Ok(evaluator.signs(&x, &[ends.0])?.remove(0));
        let seen = check(unary(ring, words.len(), true, gate), &given, None, seed);
        let sign = |word: &u64| ring.msb(ring.reduce(word.wrapping_add(ends.0)));
        prop_assert_eq!(seen.output, words.iter().map(sign).collect::<Vec<_>>());
        let gate = async |evaluator: &Evaluator, x: Wire| Ok(evaluator.intervals(&x, &[ends])?.remove(0));
        let seen = check(unary(ring, words.len(), true, gate), &given, None, seed);
        let inside = |word: &u64| {
            u64::from(ring.reduce(word.wrapping_sub(ends.0)) < ring.reduce(ends.1.wrapping_sub(ends.0)))
        };
        prop_assert_eq!(seen.output, words.iter().map(inside).collect::<Vec<_>>());
    }

    #[test]
    fn products_match_in_model_rings(
        bits in model_rings(),
        batch in 1usize..3,
        rows in 1usize..5,
        inner in 1usize..6,
        columns in 1usize..5,
        seed in any::<u64>(),
    ) {
        let ring = Ring::new(bits).unwrap();
        let shape = MatmulShape { batch, rows, inner, columns };
        let draw = |count: usize, salt: u64| -> Vec<i64> {
            (0..count as u64).map(|i| ((i + salt).wrapping_mul(seed | 1) as i64) >> 52).collect()
        };
        let (x, w) = (draw(batch * rows * inner, 1), draw(batch * inner * columns, 99));
        let encode = |values: &[i64]| values.iter().map(|&value| ring.encode(value.into())).collect::<Vec<_>>();
        let circuit = async |evaluator: &Evaluator| {
            let w = evaluator.weights(Party::Zero, ring, batch * inner * columns, -2048..=2047).await?;
            let x = evaluator.input(Party::One, ring, batch * rows * inner, -2048..=2047).await?;
            let mask = evaluator.mask_share(&x)?;
            let product = evaluator.open(evaluator.matmul(&x, &mask, w.wire(), w.mask(), shape)?).await?;
            let squares = evaluator.open(evaluator.square_sums(&x, &mask, inner, None)?).await?;
            let elementwise = evaluator.open(evaluator.product(&x, &mask, &x, &mask)?).await?;
            evaluator.reveal(&Wire::concat(&[&product, &squares, &elementwise])?, Party::One)
        };
        let seen = check(circuit, &[(Party::Zero, encode(&w)), (Party::One, encode(&x))], None, seed);
        let mut expected = Vec::new();
        for (item, row, column) in (0..batch).flat_map(|b| (0..rows).flat_map(move |r| (0..columns).map(move |c| (b, r, c)))) {
            let term = |k: usize| x[(item * rows + row) * inner + k] * w[(item * inner + k) * columns + column];
            expected.push((0..inner).map(term).sum::<i64>());
        }
        expected.extend(x.chunks(inner).map(|row| row.iter().map(|x| x * x).sum::<i64>()));
        expected.extend(x.iter().map(|x| x * x));
        prop_assert_eq!(seen.output, encode(&expected));
    }
}

#[test]
fn an_overflow_that_is_not_ruled_out_is_refused() {
    let ring = Ring::new(20).unwrap();
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, 1, -1024..=1023).await?;
        let mask = evaluator.mask_share(&x)?;
        evaluator.product(&x, &mask, &x, &mask)
    };
    assert!(matches!(run_clear(&circuit, vec![Some(vec![0])]), Err(Error::NotProved { .. })));
    let circuit =
        async |evaluator: &Evaluator| evaluator.input(Party::One, ring, 1, -3..=3).await?.times(1 << 18);
    assert!(matches!(run_clear(&circuit, vec![Some(vec![0])]), Err(Error::NotProved { .. })));
}

#[test]
fn inputs_outside_their_range_are_refused() {
    let ring = Ring::new(20).unwrap();
    let circuit = async |evaluator: &Evaluator| evaluator.input(Party::One, ring, 2, -3..=3).await;
    assert!(run_clear(&circuit, vec![Some(vec![3, ring.encode(-3)])]).is_ok());
    for inputs in [vec![Some(vec![3, 4])], vec![Some(vec![3])], vec![None], vec![]] {
        assert!(matches!(run_clear(&circuit, inputs), Err(Error::Input { index: 0, .. })));
    }
}

#[test]
fn an_interval_is_empty_if_its_ends_are_the_same_residue() {
    let ring = Ring::new(6).unwrap();
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::Zero, ring, 64, -32..=31).await?;
        let inside = evaluator.intervals(&x, &[(5, 69)])?.remove(0);
        evaluator.reveal(&evaluator.open(inside).await?, Party::One)
    };
    let seen = check(circuit, &[(Party::Zero, (0..64).collect())], None, 3);
    assert_eq!(seen.output, [0; 64]);
}
