//! What a party sees tells it nothing: tests that look for leaks, and deliberately broken variants that they must catch.

use std::collections::HashSet;

use crate::testing::check;
use crate::{Activation, Engine, Party, Randomness, Ring, Table, Wire, deal};

const BITS: u32 = 64;

/// A 64-bit comparison, whose key is nothing but a tree with its secret place at the mask.
async fn compare(engine: &Engine, bits: u32, len: usize) -> crate::Result<Option<Vec<u64>>> {
    let ring = Ring::new(bits)?;
    let least = ring.signed(1 << (bits - 1));
    let x = engine.input(Party::One, ring, len, least..=!least).await?;
    let sign = engine.signs(&x, &[0])?.remove(0);
    engine.reveal(&engine.open(sign).await?, Party::One)
}

/// Random words that no key has seen.
fn random_words(count: usize, bits: u32, seed: u64) -> Vec<u64> {
    let mut randomness = Randomness::insecure_from_seed_for_tests(seed);
    (0..count).map(|_| randomness.word() >> (64 - bits)).collect()
}

/// Whether a secret, its complement, its negative or a rotation of them lies anywhere in the bytes, at any bit.
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
    let circuit = async |engine: &Engine| compare(engine, BITS, len).await;
    let seen = check(circuit, &[(Party::One, values)], Some(vec![masks.clone()]), 3);
    for (party, key) in seen.keys.iter().enumerate() {
        assert!(!holds_a_trace(key, &masks), "the key of party {party}");
    }
    // Keys of gates that share the mask itself, parts of it, or products with it.
    let ring = Ring::new(BITS).unwrap();
    let table = Table::new(12, |x| x as i64).unwrap();
    let gates = async |engine: &Engine| {
        let x = engine.input(Party::One, ring, len, i64::MIN..=i64::MAX).await?;
        engine.mask_share(&x)?;
        let bit = engine.open(engine.signs(&x, &[0])?.remove(0)).await?;
        let selected = engine.open(engine.select(&bit, &x)?).await?;
        engine.lookup(&x.low_bits(12)?, &table, ring).await?;
        engine.intervals(&x, &[(5, 77)])?;
        let truncated = engine.open(engine.faithful_truncate(&x, 12, ring).await?).await?;
        engine.reveal(&Wire::concat(&[&selected, &truncated])?, Party::One)
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

/// χ² of the bytes at every place of the words, and of the differences of neighbouring words: the worst, as standard deviations from
/// what uniform words give.
fn worst_deviation(words: &[u64], bits: u32) -> f64 {
    let mask = u64::MAX >> (64 - bits);
    let differences = words.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) & mask).collect::<Vec<_>>();
    let mut worst = 0.0f64;
    for words in [words, &differences] {
        for shift in (0..=bits - 8).step_by(4) {
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
    let circuit = async |engine: &Engine| compare(engine, bits, len).await;
    let masked = |masks: Option<Vec<u64>>| {
        let seen = check(circuit, &[(Party::One, values.clone())], masks.map(|masks| vec![masks]), 5);
        let mut words = Vec::new();
        crate::unpack(&seen.sent[1][0][16..], len, bits, &mut words).unwrap();
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

#[test]
fn every_message_is_uniform() {
    let (ring, len) = (Ring::new(48).unwrap(), 1 << 12);
    let gelu = Activation::gelu(12).unwrap();
    let circuit = async |engine: &Engine| {
        let x = engine.input(Party::One, ring, len, -(1 << 30)..=1 << 30).await?;
        let opened = engine.open(gelu.apply(engine, &x).await?).await?;
        engine.reveal(&opened, Party::Zero)
    };
    let seen = check(circuit, &[(Party::One, vec![4096; len])], None, 6);
    for (party, messages) in seen.sent.iter().enumerate() {
        for (phase, message) in messages.iter().enumerate().filter(|(_, message)| message.len() > 2048) {
            let words: Vec<u64> = message[16..].iter().map(|&byte| u64::from(byte)).collect();
            let deviation = worst_deviation(&words, 8);
            assert!(deviation < SUSPICIOUS, "party {party}, phase {phase}: {deviation}");
        }
    }
    // Bits that are sent as they are, without a mask, are mostly the same here.
    let bare = vec![0x55; 4096];
    assert!(worst_deviation(&bare, 8) > SUSPICIOUS);
}

/// A linear classifier, trained on the difference of the means of two classes of bit vectors. Its accuracy on unseen ones.
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
    let circuit = async |engine: &Engine| compare(engine, bits, 2 * half).await;
    let seen = check(circuit, &[(Party::One, values)], Some(vec![masks.clone()]), 7);
    let rows = (bits - 1 - 6) as usize;
    for (party, stream) in seen.keys.iter().enumerate() {
        let section = &stream[crate::HEADER_BYTES + 8..];
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
    let circuit = async |engine: &Engine| {
        let x = engine.input(Party::One, Ring::new(10)?, 50, 0..=1023).await?;
        engine.looked_up(&engine.lookup(&x, &table, Ring::new(40)?).await?)
    };
    let format = crate::FixedPoint::new(40, 12).unwrap();
    let blocks = |randomness: &mut Randomness| {
        let dealt = deal(randomness, format, &[circuit]).unwrap();
        let blocks =
            |stream: &crate::KeyStream| stream.bytes()[24..].chunks_exact(16).map(<[u8]>::to_vec).collect();
        dealt.streams.each_ref().map(blocks).map(|blocks: HashSet<Vec<u8>>| blocks)
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
