//! Exhaustive on small domains, sampled on large ones; every cipher gives the same keys and bits.

use proptest::prelude::*;

use crate::prg::{Calls, Cipher, Stream};
use crate::secret::{Secret, SharedBytes};

use super::*;

/// Trees of any domain above a leaf, whether or not a table would be smaller.
fn trees(hash: &TreeHash, domain: u32, alphas: &[u64], seed: u128) -> [PointKeys; 2] {
    let roots = [0u128, 1].map(|party| {
        let blocks = Stream::new(seed + party, Calls::default()).blocks(alphas.len());
        Secret::new(blocks.into_iter().map(|block| block & !1 | party).collect::<Vec<_>>())
    });
    roots.clone().map(|own| {
        let (words, _) = generate(hash, domain, roots.clone(), alphas);
        let bytes = SharedBytes::new(words.iter().flat_map(|word| word.to_le_bytes()).collect());
        let corrections = Corrections::new(domain, alphas.len(), bytes);
        PointKeys { domain, count: alphas.len(), form: Form::Tree { roots: own, corrections } }
    })
}

fn tables(domain: u32, alphas: &[u64]) -> [PointKeys; 2] {
    let width = words_per_table(domain);
    let mut vectors = [Vec::new(), Vec::new()];
    Stream::new(9, Calls::default()).words(alphas.len() * width, 64, &mut vectors[0]);
    vectors[1] = vectors[0].clone();
    for (key, alpha) in alphas.iter().enumerate() {
        vectors[1][key * width + (alpha >> 6) as usize] ^= 1 << (alpha & 63);
    }
    let keys = |words| PointKeys { domain, count: alphas.len(), form: Form::Table(Secret::new(words)) };
    vectors.map(keys)
}

fn check_all(hash: &TreeHash, keys: [PointKeys; 2], alphas: &[u64], domain: u32) {
    let table = Table::new(domain, |x| (x as i64) * 7 - 100).unwrap();
    for x in 0..1u64 << domain {
        let points = vec![x; alphas.len()];
        let bits = keys.each_ref().map(|keys| keys.less_than(hash, &points));
        let sums = keys.each_ref().map(|keys| keys.lookup(hash, &points, &table));
        for (key, &alpha) in alphas.iter().enumerate() {
            assert_eq!(bits[0][key] ^ bits[1][key], u64::from(x < alpha), "{x} < {alpha} of {domain} bits");
            let value = table.value(x.wrapping_sub(alpha));
            let found = sums[0][key].wrapping_sub(sums[1][key]);
            assert!(found == value || found == value.wrapping_neg(), "{x} − {alpha} of {domain} bits");
        }
    }
}

#[test]
fn trees_match_for_all_points_and_places() {
    let hash = TreeHash::new(77, Calls::default());
    for domain in 8..=10 {
        let alphas: Vec<u64> = (0..1 << domain).collect();
        check_all(&hash, trees(&hash, domain, &alphas, 1), &alphas, domain);
    }
}

#[test]
fn tables_match_for_all_points_and_places() {
    for domain in 1..=TABLE_BITS {
        let alphas: Vec<u64> = (0..1 << domain).collect();
        check_all(&TreeHash::new(0, Calls::default()), tables(domain, &alphas), &alphas, domain);
    }
}

#[test]
fn a_whole_domain_expands_to_one_place() {
    let hash = TreeHash::new(3, Calls::default());
    let alphas = [0, 1, 4095, 2048, 2047, 77];
    let keys = trees(&hash, 12, &alphas, 5);
    for (key, &alpha) in alphas.iter().enumerate() {
        let leaves = keys.each_ref().map(|keys| match &keys.form {
            Form::Tree { roots, corrections } => tree::expand(&hash, 12, roots, corrections, key),
            Form::Table(_) => unreachable!("these are trees"),
        });
        let ones: Vec<u64> = (0..4096u64)
            .filter(|&place| {
                let [zero, one] = leaves.each_ref().map(|leaves| leaves[(place / 128) as usize]);
                (zero ^ one) >> (place % 128) & 1 == 1
            })
            .collect();
        assert_eq!(ones, [alpha]);
    }
}

#[test]
fn every_cipher_walks_the_same_way() {
    let alphas: Vec<u64> = (0..75u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let points: Vec<u64> = (0..225u64).map(|i| i.wrapping_mul(0xd134_2543_de82_ef95)).collect();
    let portable = TreeHash { cipher: Cipher::portable(8), calls: Calls::default() };
    let expected = trees(&portable, 64, &alphas, 2).map(|keys| keys.less_than(&portable, &points));
    #[cfg(target_arch = "x86_64")]
    for width in crate::prg::vector::Width::available() {
        let hash = TreeHash {
            cipher: Cipher::Vector(Box::new(crate::prg::vector::RoundKeys::expand(8)), width),
            calls: Calls::default(),
        };
        let found = trees(&hash, 64, &alphas, 2).map(|keys| keys.less_than(&hash, &points));
        assert_eq!(found, expected, "{width:?}");
    }
    for (index, &point) in points.iter().enumerate() {
        assert_eq!(expected[0][index] ^ expected[1][index], u64::from(point < alphas[index % 75]));
    }
}

proptest! {
    #[test]
    fn comparisons_hold_at_every_width(
        domain in prop::sample::select(vec![36u32, 37, 47, 48, 49, 50, 51, 63, 64]),
        words in prop::collection::vec(any::<(u64, u64)>(), 1..40),
        near in -2i64..3,
    ) {
        let mask = u64::MAX >> (64 - domain);
        let alphas: Vec<u64> = words.iter().map(|(alpha, _)| alpha & mask).collect();
        let mut points: Vec<u64> = words.iter().map(|(_, point)| point & mask).collect();
        points.extend(alphas.iter().map(|alpha| alpha.wrapping_add_signed(near) & mask));
        let hash = TreeHash::new(u128::from(alphas[0]), Calls::default());
        let [zero, one] = trees(&hash, domain, &alphas, 11).map(|keys| keys.less_than(&hash, &points));
        for (index, &point) in points.iter().enumerate() {
            let alpha = alphas[index % alphas.len()];
            prop_assert_eq!(zero[index] ^ one[index], u64::from(point < alpha));
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same() {
    let hash = TreeHash::new(5, Calls::default());
    let (domain, count) = (12, 5000);
    let alphas: Vec<u64> = (0..count).map(|key| key * 977 % (1 << domain)).collect();
    let points: Vec<u64> = (0..3 * count).map(|at| at * 31 % (1 << domain)).collect();
    let [keys, _] = trees(&hash, domain, &alphas, 3);
    let table = Table::new(domain, |x| 5 * x as i64).unwrap();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            (keys.less_than(&hash, &points), keys.lookup(&hash, &points[..count as usize], &table))
        })
    };
    let alone = run(1);
    for threads in [2, 3, 8] {
        assert!(run(threads) == alone, "{threads} threads");
    }
}
