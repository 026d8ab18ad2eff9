//! What a party sees tells it nothing: tests that look for leaks, and deliberately broken variants that they
//! must catch.

use std::collections::HashSet;
use std::sync::Arc;

use gatework_fss::backend::MatmulShape;
use gatework_fss::executor::Circuit;
use gatework_fss::formula::View;
use gatework_fss::gates::{
    Activation, FloatingTable, LayerNorm, NegativeExponential, Reciprocal, RmsNorm, Rows, Softmax, Tanh,
    clamp, relu, row_maxima,
};
use gatework_fss::ops::Payload;
use gatework_fss::table::Table;
use gatework_fss::{Bound, CpuBackend, Evaluator, FixedPoint, Party, Randomness, Result, Ring, Share, Wire};

use crate::support::{Given, Missing, OpenedWords, check, check_without, deal};

const BITS: u32 = 64;

/// A 64-bit comparison, whose key is nothing but a tree with its secret place at the mask.
async fn compare(evaluator: &Evaluator, bits: u32, len: usize) -> Result<Option<Vec<u64>>> {
    let ring = Ring::new(bits)?;
    let least = ring.signed(1 << (bits - 1));
    let x = evaluator.input(Party::One, ring, len, least..=!least).await?;
    let sign = evaluator.signs(&x, &[0])?.remove(0);
    evaluator.reveal(&evaluator.open(sign).await?, Party::One)
}

/// Random words that no key has seen.
fn random_words(count: usize, bits: u32, seed: u64) -> Vec<u64> {
    let mut randomness = Randomness::insecure_from_seed_for_tests(seed);
    (0..count).map(|_| randomness.word() >> (64 - bits)).collect()
}

/// Whether a secret, its complement, its negative or a rotation of them lies anywhere in the bytes, at any
/// bit.
fn holds_a_trace(bytes: &[u8], secrets: &[u64]) -> bool {
    let variants =
        secrets.iter().flat_map(|&secret| [secret, !secret, secret.wrapping_neg(), secret.swap_bytes()]);
    let traces: HashSet<u64> =
        variants.flat_map(|word| (0..64).map(move |turn| word.rotate_left(turn))).collect();
    let mut window = 0u64;
    bytes.iter().enumerate().any(|(index, &byte)| {
        (0..8).any(|bit| {
            window = window >> 1 | u64::from(byte >> bit & 1) << 63;
            index >= 7 && traces.contains(&window)
        })
    })
}

#[test]
fn no_key_holds_a_threshold_or_a_mask() {
    let len = 100;
    let masks = random_words(len, BITS, 1);
    let values = random_words(len, BITS, 2);
    let circuit = async |evaluator: &Evaluator| compare(evaluator, BITS, len).await;
    let seen = check(circuit, &[(Party::One, values)], Some(vec![masks.clone()]), 3);
    for (party, key) in seen.keys.iter().enumerate() {
        assert!(!holds_a_trace(key, &masks), "the key of party {party}");
    }
    // Keys of gates that share the mask itself, parts of it, or products with it.
    let ring = Ring::new(BITS).unwrap();
    let table = Table::new(12, |x| x as i64).unwrap();
    let gates = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, len, i64::MIN..=i64::MAX).await?;
        evaluator.mask_share(&x)?;
        let bit = evaluator.open(evaluator.signs(&x, &[0])?.remove(0)).await?;
        let selected = evaluator.open(evaluator.select(&bit, &x)?).await?;
        evaluator.lookup(&x.low_bits(12)?, &table, ring).await?;
        evaluator.intervals(&x, &[(5, 77)])?;
        let truncated = evaluator.open(evaluator.faithful_truncate(&x, 12, ring).await?).await?;
        evaluator.reveal(&Wire::concat(&[&selected, &truncated])?, Party::One)
    };
    let values = random_words(len, BITS, 4);
    let others = check(gates, &[(Party::One, values)], Some(vec![masks.clone()]), 13);
    for (party, key) in others.keys.iter().enumerate() {
        assert!(!holds_a_trace(key, &masks), "the keys of many gates of party {party}");
    }
    // The same key with one threshold written into it, at no particular bit.
    for (at, shift) in [(100, 0), (1000, 3), (5000, 7)] {
        let mut broken = seen.keys[1].clone();
        let planted = (u128::from(masks[17].rotate_left(11)) << shift).to_le_bytes();
        let keep = (u128::from(u64::MAX) << shift).to_le_bytes();
        for (index, (planted, keep)) in planted.iter().zip(keep).enumerate() {
            let byte = &mut broken[at + index];
            *byte = *byte & !keep | planted;
        }
        assert!(holds_a_trace(&broken, &masks), "a threshold in clear must be found");
    }
}

/// χ² of the bytes at every place of the words, and of the differences of neighbouring words: the worst, as
/// standard deviations from what uniform words give.
fn worst_deviation(words: &[u64], bits: u32) -> f64 {
    let mask = u64::MAX >> (64 - bits);
    let differences = words.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) & mask).collect::<Vec<_>>();
    let mut worst = 0.0f64;
    for words in [words, &differences] {
        // The top byte as well, wherever it begins.
        for shift in (0..bits - 8).step_by(4).chain([bits - 8]) {
            let mut counts = [0.0f64; 256];
            words.iter().for_each(|word| counts[(word >> shift & 255) as usize] += 1.0);
            let expected = words.len() as f64 / 256.0;
            let chi = counts.iter().map(|count| (count - expected).powi(2) / expected).sum::<f64>();
            worst = worst.max(((chi - 255.0) / (2.0f64 * 255.0).sqrt()).abs());
        }
    }
    worst
}

/// Far beyond what chance gives for a few hundred tests.
const SUSPICIOUS: f64 = 6.5;

#[test]
fn masked_values_are_uniform() {
    let (bits, len) = (20, 1 << 14);
    // The same value everywhere: whatever structure there is comes from the masks.
    let values = vec![12_345; len];
    let circuit = async |evaluator: &Evaluator| compare(evaluator, bits, len).await;
    let masked = |masks: Option<Vec<u64>>| {
        let seen = check(circuit, &[(Party::One, values.clone())], masks.map(|masks| vec![masks]), 5);
        let mut words = Vec::new();
        gatework_fss::ring::unpack(&seen.sent[1][0][16..], len, bits, &mut words).unwrap();
        worst_deviation(&words, bits)
    };
    let honest = masked(None);
    assert!(honest < SUSPICIOUS, "{honest}");
    let broken = [
        ("a constant mask", vec![777; len]),
        ("one mask for the tensor", vec![random_words(1, bits, 8)[0]; len]),
        ("masks that are too short", random_words(len, bits - 3, 9)),
        ("masks that count", (0..len as u64).map(|i| (i * 37) & 0xf_ffff).collect()),
    ];
    for (name, masks) in broken {
        let deviation = masked(Some(masks));
        assert!(deviation > SUSPICIOUS, "{name} must be found, it deviates by {deviation}");
    }
}

/// How far a count of a fair coin's heads may be off, in standard deviations.
const COIN: f64 = 5.0;

/// Whether words of a ring are not what uniform, independent ones look like.
fn uneven(words: &[u64], bits: u32) -> bool {
    if bits > 1 { worst_deviation(words, bits) > SUSPICIOUS } else { unfair(words, COIN) }
}

/// Whether the lowest bits, or their changes from word to word, are further from one half than a coin gets.
fn unfair(words: &[u64], deviations: f64) -> bool {
    let far =
        |ones: usize, of: usize| (2.0 * ones as f64 - of as f64).abs() > deviations * (of as f64).sqrt();
    let ones = words.iter().filter(|&&word| word & 1 == 1).count();
    let changes = words.windows(2).filter(|pair| (pair[0] ^ pair[1]) & 1 == 1).count();
    far(ones, words.len()) || far(changes, words.len() - 1)
}

/// Whether two opened tensors tell something together: values under one mask, or under parts of one, differ
/// by what they differ in clear. Words are compared from their lowest bits and from their highest, as
/// truncations leave them, a bit with all bits of a word.
fn related(one: &OpenedWords, two: &OpenedWords) -> bool {
    let (narrow, long) = if one.ring < two.ring { (one, two) } else { (two, one) };
    let (bits, spare) = (narrow.ring.bits(), long.ring.bits() - narrow.ring.bits());
    let differ = |shift: u32| -> Vec<u64> {
        let pairs = narrow.words.iter().zip(&long.words);
        pairs.map(|(a, b)| narrow.ring.reduce((b >> shift).wrapping_sub(*a))).collect()
    };
    if bits == 1 {
        // More comparisons than there are of anything else, hence more room for chance.
        return (0..=spare).any(|shift| unfair(&differ(shift), SUSPICIOUS));
    }
    uneven(&differ(0), bits) || uneven(&differ(spare), bits)
}

/// The first opened tensor, if any, that is not uniform, of which a party's shares are not, or that is
/// related to an earlier one. Inputs are left out, since the tests choose their masks.
fn leak(opened: &[Vec<OpenedWords>; 2]) -> Option<String> {
    let [zero, one] = opened.each_ref().map(|opened| opened.iter().filter(|request| !request.from_one));
    let sums: Vec<&OpenedWords> = zero.clone().collect();
    for (index, (zero, one)) in zero.zip(one).enumerate() {
        // Fewer words would not fill the bins of the test, and nothing is to be skipped.
        assert!(zero.words.len() >= 1 << 11, "{} opened words are too few", zero.words.len());
        let bits = zero.ring.bits();
        for (whose, words) in [("sums", &zero.words), ("party 0", &zero.own), ("party 1", &one.own)] {
            if uneven(words, bits) {
                return Some(format!("request {index} of {bits} bits, {whose}"));
            }
        }
        if let Some(earlier) = sums[..index].iter().position(|other| related(zero, other)) {
            return Some(format!("requests {earlier} and {index}"));
        }
    }
    None
}

/// One value under one mask all over each input, so that whatever is uniform after the inputs is so by the
/// gates' own masks. Then the same with masks missing: all of the bits, all of the words, and each alone, of
/// which those numbered in `covered` are not seen because other masks still cover what is opened.
fn examine<C>(name: &str, circuit: C, given: &[Given], covered: &[usize])
where
    C: Circuit<Output = Option<Vec<u64>>> + Sync + Copy,
{
    let masks: Vec<Vec<u64>> = given.iter().map(|(_, words)| vec![MASK; words.len()]).collect();
    let without = |missing| check_without(missing, circuit, given, Some(masks.clone()), 21);
    let honest = without(Missing::Nothing);
    assert_eq!(leak(&honest.opened), None, "{name}");
    for (missing, bits) in [(Missing::Bits, true), (Missing::Words, false)] {
        let opens =
            honest.opened[0].iter().any(|request| !request.from_one && (request.ring == Ring::BIT) == bits);
        let found = leak(&without(missing).opened);
        assert_eq!(found.is_some(), opens, "{name} without the masks of its {missing:?}: {found:?}");
    }
    let unseen: Vec<usize> = (0..honest.fresh_masks)
        .filter(|&number| leak(&without(Missing::Only(number)).opened).is_none())
        .collect();
    println!("{name}: of {} fresh masks, {unseen:?} are covered by others", honest.fresh_masks);
    assert_eq!(unseen, covered, "{name}: the masks that are not missed, of {}", honest.fresh_masks);
}

/// Of every input. Its low bits are zero, so that a product with it is no mask.
const MASK: u64 = 0xa5a5_a5a0;

/// Elements of an examined tensor.
const LEN: usize = 1 << 12;

/// The ring of examined values.
fn wide() -> Ring {
    Ring::new(50).unwrap()
}

/// A gate on one number and one bit, opened.
fn of_gate<G>(
    range: std::ops::RangeInclusive<i64>,
    gate: &G,
) -> impl Circuit<Output = Option<Vec<u64>>> + Sync + Copy
where
    G: AsyncFn(&Evaluator, Wire, Wire) -> Result<Share> + Sync,
{
    let (lo, hi) = range.into_inner();
    async move |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, wide(), LEN, lo..=hi).await?;
        let bit = evaluator.input(Party::Zero, Ring::BIT, LEN, 0..=1).await?;
        let opened = evaluator.open(gate(evaluator, x, bit).await?).await?;
        evaluator.reveal(&opened, Party::Zero)
    }
}

fn given_to_gate(value: u64) -> [Given; 2] {
    [(Party::One, vec![value; LEN]), (Party::Zero, vec![1; LEN])]
}

/// Examines a gate on one number and one bit.
fn examine_gate<G>(name: &str, value: u64, range: std::ops::RangeInclusive<i64>, covered: &[usize], gate: G)
where
    G: AsyncFn(&Evaluator, Wire, Wire) -> Result<Share> + Sync,
{
    examine(name, of_gate(range, &gate), &given_to_gate(value), covered);
}

/// Where most examined values lie.
const RANGE: std::ops::RangeInclusive<i64> = -(1 << 20)..=1 << 20;

#[test]
fn opened_bits_and_selections_are_uniform() {
    examine_gate("signs", 1000, RANGE, &[], async |evaluator, x, _| {
        let mut signs = evaluator.signs(&x, &[0, 5])?;
        evaluator.open(signs.remove(0)).await?;
        Ok(signs.remove(0))
    });
    examine_gate("intervals", 1000, RANGE, &[], async |evaluator, x, _| {
        let mut inside = evaluator.intervals(&x, &[(5, 2000), (77, 99)])?;
        evaluator.open(inside.remove(0)).await?;
        Ok(inside.remove(0))
    });
    examine_gate("select", 1000, RANGE, &[], async |evaluator, x, bit| evaluator.select(&bit, &x));
    examine_gate("bit value", 1000, RANGE, &[], async |evaluator, _, bit| evaluator.bit_value(&bit, wide()));
    examine_gate("and", 1000, RANGE, &[], async |evaluator, _, bit| evaluator.and(&bit, &bit));
    examine_gate("relu", 1000, RANGE, &[], async |evaluator, x, _| relu(evaluator, &x).await);
    // Its two selections are opened as one sum.
    examine_gate("clamp", 1000, RANGE, &[1, 2], async |evaluator, x, _| {
        clamp(evaluator, &x, -500, 500).await
    });
}

#[test]
fn opened_truncations_are_uniform() {
    let ring = |bits| Ring::new(bits).unwrap();
    examine_gate("gap truncation", 1000, RANGE, &[], async |evaluator, x, _| {
        evaluator.gap_truncate(&x, 8, ring(60)).await
    });
    examine_gate("two quotients", 1000, RANGE, &[], async |evaluator, x, _| {
        let [fine, coarse] = evaluator.two_quotients(&x, [8, 4], ring(50), ring(30)).await?;
        evaluator.open(fine).await?;
        Ok(coarse)
    });
    examine_gate("reducing truncation", 1000, RANGE, &[], async |evaluator, x, _| {
        evaluator.truncate_reduce(&x, 8, ring(42)).await
    });
    examine_gate("extension", 1000, RANGE, &[], async |evaluator, x, _| evaluator.extend(&x, ring(60)).await);
    examine_gate("faithful truncation", 1000, RANGE, &[], async |evaluator, x, _| {
        evaluator.faithful_truncate(&x, 8, wide()).await
    });
}

#[test]
fn opened_products_are_uniform() {
    examine_gate("product", 1000, RANGE, &[], async |evaluator, x, _| {
        let mask = evaluator.mask_share(&x)?;
        evaluator.product(&x, &mask, &x, &mask)
    });
    examine_gate("square sums", 1000, RANGE, &[], async |evaluator, x, _| {
        evaluator.square_sums(&x, &evaluator.mask_share(&x)?, 2, None)
    });
    examine_gate("matmul", 1000, RANGE, &[], async |evaluator, x, _| {
        let mask = evaluator.mask_share(&x)?;
        let shape = MatmulShape { batch: 1, rows: 64, inner: 64, columns: 64 };
        evaluator.matmul(&x, &mask, &x, &mask, shape)
    });
    examine_gate("transposed matmul", 1000, RANGE, &[], async |evaluator, x, _| {
        let mask = evaluator.mask_share(&x)?;
        let shape = MatmulShape { batch: 1, rows: 64, inner: 64, columns: 64 };
        evaluator.matmul_transposed(&x, &mask, &x, &mask, shape, Bound::proved(0, 1 << 40))
    });
}

#[test]
fn opened_lookups_are_uniform() {
    let table = Table::new(10, |x| 3 * x as i64 + 1).unwrap();
    let look_up =
        async |evaluator: &Evaluator, x: &Wire| evaluator.lookup(&x.low_bits(10)?, &table, wide()).await;
    let look_up_quotient = async |evaluator: &Evaluator, x: &Wire| {
        evaluator.lookup_quotient(&x.low_bits(14)?, 4, &table, wide()).await
    };
    examine_gate("lookup", 1000, RANGE, &[], async |evaluator, x, _| {
        evaluator.looked_up(&look_up(evaluator, &x).await?)
    });
    examine_gate("selected lookup", 1000, RANGE, &[], async |evaluator, x, bit| {
        evaluator.select_looked_up(&bit, &look_up(evaluator, &x).await?)
    });
    examine_gate("product of lookups", 1000, RANGE, &[], async |evaluator, x, bit| {
        let (left, right) = (look_up_quotient(evaluator, &x).await?, look_up(evaluator, &x).await?);
        evaluator.select_product(&bit, &left, &right)
    });
    examine_gate("lookup of a quotient", 1000, RANGE, &[], async |evaluator, x, _| {
        evaluator.looked_up(&look_up_quotient(evaluator, &x).await?)
    });
    examine_gate("rows scaled by quotients", 1000, RANGE, &[], async |evaluator, x, _| {
        let rows = look_up_quotient(evaluator, &x.part(0, LEN / 2)?).await?;
        evaluator.scale_rows(&x, &rows, &View::Each(2), None)
    });
    examine_gate("scaled rows", 1000, RANGE, &[], async |evaluator, x, _| {
        let rows = look_up(evaluator, &x.part(0, LEN / 2)?).await?;
        evaluator.scale_rows(&x, &rows, &View::Each(2), None)
    });
    let piece = |start: u64, words: &[u64]| Payload { start, words: words.to_vec() };
    let constants = [piece(0, &[7]), piece(500, &[9])];
    examine_gate("piecewise constants", 1000, RANGE, &[], async |evaluator, x, _| {
        let found = evaluator.piecewise(&x, &constants, wide()).await?;
        evaluator.polynomial(&found, 0, 0, &x, Bound::proved(0, 9))
    });
    let lines = [piece(0, &[7, 3]), piece(500, &[9, 1])];
    examine_gate("piecewise lines", 1000, RANGE, &[], async |evaluator, x, _| {
        let found = evaluator.piecewise(&x, &lines, wide()).await?;
        evaluator.polynomial(&found, 0, 1, &x, Bound::proved(-(1 << 30), 1 << 30))
    });
}

#[test]
fn opened_functions_are_uniform() {
    let gelu = Activation::gelu(12).unwrap();
    // The two selections are opened as one difference.
    examine_gate("gelu", 1000, RANGE, &[4, 5], async |evaluator, x, _| gelu.apply(evaluator, &x).await);
    let tanh = Tanh::new(6).unwrap();
    // As in its clamp.
    examine_gate("tanh", 100, RANGE, &[1, 2], async |evaluator, x, _| tanh.apply(evaluator, &x).await);
    let exponential = NegativeExponential::new(12).unwrap();
    examine_gate("nexp", 1000, 0..=1 << 30, &[], async |evaluator, x, _| {
        exponential.apply(evaluator, &x, wide()).await
    });
    let reciprocal = Reciprocal::new(12, 77).unwrap();
    examine_gate("reciprocal", 5 << 12, 1 << 12..=77 << 12, &[], async |evaluator, x, _| {
        evaluator.looked_up(&reciprocal.apply(evaluator, &x, wide()).await?)
    });
    let root = FloatingTable::reciprocal_root(3, 20, 12, 12).unwrap();
    examine_gate("reciprocal root", 5 << 12, 8..=(1 << 20) - 1, &[], async |evaluator, x, _| {
        evaluator.looked_up(&root.apply(evaluator, &x).await?)
    });
}

/// Two masks of which one sum is opened cover for each other, so that neither is missed alone. Both together
/// are: nothing else covers what they do. That each is there, the tests of the selections, truncations and
/// polynomials themselves see.
#[test]
fn masks_that_cover_for_each_other_are_missed_together() {
    fn examine_both<G>(
        name: &str,
        value: u64,
        range: std::ops::RangeInclusive<i64>,
        masks: [usize; 2],
        gate: G,
    ) where
        G: AsyncFn(&Evaluator, Wire, Wire) -> Result<Share> + Sync,
    {
        let inputs = [vec![MASK; LEN], vec![MASK; LEN]].to_vec();
        let missing = Missing::Both(masks[0], masks[1]);
        let seen = check_without(missing, of_gate(range, &gate), &given_to_gate(value), Some(inputs), 21);
        assert!(leak(&seen.opened).is_some(), "{name} without masks {masks:?}");
    }
    examine_both("clamp", 1000, RANGE, [1, 2], async |evaluator, x, _| clamp(evaluator, &x, -500, 500).await);
    let gelu = Activation::gelu(12).unwrap();
    examine_both("gelu", 1000, RANGE, [4, 5], async |evaluator, x, _| gelu.apply(evaluator, &x).await);
}

/// A line a + b x is opened under its own mask. Without it, it would be under ±(m_a − r m_b), where m_a and
/// m_b are the masks of the coefficients that are opened before: all three together, and x̂, would show the
/// line up to a sign.
#[test]
fn a_polynomial_is_under_a_mask_of_its_own() {
    let piece = |start: u64, words: &[u64]| Payload { start, words: words.to_vec() };
    let lines = [piece(0, &[7, 3]), piece(500, &[9, 1])];
    let gate = async |evaluator: &Evaluator, x: Wire, _: Wire| {
        let found = evaluator.piecewise(&x, &lines, wide()).await?;
        evaluator.polynomial(&found, 0, 1, &x, Bound::proved(-(1 << 30), 1 << 30))
    };
    let shown = |missing| {
        let inputs = [vec![MASK; LEN], vec![MASK; LEN]].to_vec();
        let seen = check_without(missing, of_gate(RANGE, &gate), &given_to_gate(1000), Some(inputs), 21);
        let opened: Vec<&OpenedWords> =
            seen.opened[0].iter().filter(|request| !request.from_one && request.ring == wide()).collect();
        let [coefficients, line] = opened[..] else { panic!("{} tensors of words", opened.len()) };
        let (first, second) = coefficients.words.split_at(LEN);
        let words: Vec<u64> = (first.iter().zip(second).zip(&line.words))
            .map(|((a, b), line)| wide().reduce(line.wrapping_sub(a.wrapping_sub(MASK.wrapping_mul(*b)))))
            .collect();
        uneven(&words, wide().bits())
    };
    assert!(!shown(Missing::Nothing), "the line is not to be seen");
    assert!(shown(Missing::Only(2)), "a missing mask must be found");
}

#[test]
fn opened_rows_are_uniform() {
    let rows = Rows::full(LEN / 2, 2).unwrap();
    let (rows_ref, softmax) = (&rows, Softmax::new(rows.clone(), 12).unwrap());
    let maxima = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::Zero, wide(), LEN, RANGE).await?;
        evaluator.reveal(&row_maxima(evaluator, &x, rows_ref).await?, Party::One)
    };
    examine("maxima", maxima, &[(Party::Zero, vec![1000; LEN])], &[]);
    examine_gate("softmax", 1000, RANGE, &[], async |evaluator, x, _| {
        softmax.apply(evaluator, &x, wide()).await
    });
}

#[test]
fn opened_norms_are_uniform() {
    let width = 2;
    let layer = &LayerNorm::new(width, 12, 1e-3, 44).unwrap();
    let rms = &RmsNorm::new(width, 12, 1e-3, 44).unwrap();
    let weights = (Party::Zero, vec![3000; width]);
    let given = [(Party::One, vec![1000; LEN]), weights.clone(), weights];
    let normal = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, wide(), LEN, RANGE).await?;
        let gamma = evaluator.weights(Party::Zero, wide(), width, -8192..=8192).await?;
        evaluator.reveal(&evaluator.open(rms.apply(evaluator, &x, &gamma).await?).await?, Party::One)
    };
    examine("RMSNorm", normal, &given[..2], &[]);
    let normal = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, wide(), LEN, RANGE).await?;
        let gamma = evaluator.weights(Party::Zero, wide(), width, -8192..=8192).await?;
        let beta = evaluator.weights(Party::Zero, wide(), width, -8192..=8192).await?;
        evaluator.reveal(&evaluator.open(layer.apply(evaluator, &x, &gamma, &beta).await?).await?, Party::One)
    };
    examine("LayerNorm", normal, &given, &[]);
}

/// A linear classifier, trained on the difference of the means of two classes of bit vectors. Its accuracy on
/// unseen ones.
fn trained_accuracy(classes: [&[Vec<bool>]; 2]) -> f64 {
    let means = classes.map(|class| {
        let training = &class[..class.len() / 2];
        let bits = training[0].len();
        let mean = |bit: usize| training.iter().filter(|key| key[bit]).count() as f64 / training.len() as f64;
        (0..bits).map(mean).collect::<Vec<f64>>()
    });
    let weights: Vec<f64> = means[1].iter().zip(&means[0]).map(|(one, zero)| one - zero).collect();
    let middle: f64 =
        weights.iter().zip(means[0].iter().zip(&means[1])).map(|(w, (a, b))| w * (a + b) / 2.0).sum();
    let score =
        |key: &Vec<bool>| key.iter().zip(&weights).map(|(&bit, w)| f64::from(u8::from(bit)) * w).sum::<f64>();
    let right = |class: usize| {
        let unseen = &classes[class][classes[class].len() / 2..];
        unseen.iter().filter(|key| (score(key) > middle) == (class == 1)).count() as f64 / unseen.len() as f64
    };
    (right(0) + right(1)) / 2.0
}

/// The bits of each key of a batch of trees, as they lie in a section.
fn keys_of(section: &[u8], len: usize, rows: usize) -> Vec<Vec<bool>> {
    let word = |key: usize, row: usize| {
        let (tile, in_tile) = (key / 32 * 32, 32.min(len - key / 32 * 32));
        let at = 16 * (tile * rows + row * in_tile + key % 32);
        &section[at..at + 16]
    };
    let bits = |bytes: &[u8]| {
        bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)).collect::<Vec<_>>()
    };
    (0..len).map(|key| (0..rows).flat_map(|row| bits(word(key, row))).collect()).collect()
}

#[test]
fn keys_for_two_thresholds_cannot_be_told_apart() {
    // Thresholds that differ in every bit, 3000 keys each.
    let (bits, half) = (17u32, 3000);
    let thresholds = [0x0_a5a5u64, 0x1_5a5a];
    let masks: Vec<u64> = (0..2 * half).map(|key| thresholds[key / half]).collect();
    let values = vec![0; 2 * half];
    let circuit = async |evaluator: &Evaluator| compare(evaluator, bits, 2 * half).await;
    let seen = check(circuit, &[(Party::One, values)], Some(vec![masks.clone()]), 7);
    let rows = (bits - 1 - 6) as usize;
    for (party, stream) in seen.keys.iter().enumerate() {
        let section = &stream[32..];
        // Party 1 is given the masks of the revealed bits as well.
        let revealed = if party == 1 { 2 * half / 8 } else { 0 };
        assert_eq!(section.len(), 16 * rows * 2 * half + revealed);
        let mut keys = keys_of(section, 2 * half, rows);
        let accuracy = trained_accuracy([&keys[..half], &keys[half..]]);
        // Four standard deviations of a coin.
        let chance = 4.0 * 0.5 / (half as f64).sqrt();
        assert!((accuracy - 0.5).abs() < chance, "party {party}: {accuracy}");
        // A key that shows one bit of its threshold, and that only with probability 3/4.
        for (index, key) in keys.iter_mut().enumerate() {
            let noise = random_words(1, 2, 100 + index as u64)[0] == 0;
            key[77] = (masks[index] & 1 == 1) ^ noise;
        }
        let accuracy = trained_accuracy([&keys[..half], &keys[half..]]);
        assert!(accuracy - 0.5 > chance, "a leaking bit must be found: {accuracy}");
    }
}

#[test]
fn two_deals_have_nothing_in_common() {
    let table = Table::new(10, |x| x as i64).unwrap();
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, Ring::new(10)?, 50, 0..=1023).await?;
        evaluator.looked_up(&evaluator.lookup(&x, &table, Ring::new(40)?).await?)
    };
    let format = FixedPoint::new(40, 12).unwrap();
    let blocks = |randomness: &mut Randomness| {
        let dealt = deal(randomness, Arc::new(CpuBackend), format, &circuit);
        let blocks = |held: Vec<u8>| held.chunks_exact(16).map(<[u8]>::to_vec).collect();
        dealt.held.map(blocks).map(|blocks: HashSet<Vec<u8>>| blocks)
    };
    let shared = |one: &[HashSet<Vec<u8>>; 2], two: &[HashSet<Vec<u8>>; 2]| {
        one.iter().zip(two).map(|(one, two)| one.intersection(two).count()).sum::<usize>()
    };
    let fresh = || blocks(&mut Randomness::from_os().unwrap());
    // The lengths of sections are public and the same.
    assert!(shared(&fresh(), &fresh()) <= 2);
    let seeded = || blocks(&mut Randomness::insecure_from_seed_for_tests(1));
    assert!(shared(&seeded(), &seeded()) > 50, "a constant seed must be found");
}
