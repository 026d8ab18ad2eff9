//! Statistics against sums in double precision.
#![expect(clippy::single_range_in_vec_init, reason = "a tensor is a range, and there may be one")]

use std::ops::Range;

use super::{numbers, stream, upload};
use crate::cuda::{DeviceStatistics, Moments, Segments, Tensor, TensorStatistics, Watched, noise};
use crate::random::Random;

/// Six arrays and the gradients of shards.
struct Arrays {
    of: [Vec<f32>; 6],
    shards: Vec<f32>,
}

impl Arrays {
    fn new(seed: u64, parameters: usize, shards: usize) -> Self {
        let mut random = Random::new(seed, "statistics");
        let mut of: [Vec<f32>; 6] = std::array::from_fn(|_| numbers(&mut random, parameters));
        // Arrays of different means and sizes, and second moments above zero.
        of[0].iter_mut().for_each(|w| *w = 3.0 + 0.1 * *w);
        of[5].iter_mut().for_each(|v| *v = 1e-4 * *v * *v);
        Self { of, shards: numbers(&mut random, shards * parameters) }
    }

    fn measure(&self, seed: u64, ranges: &[Range<usize>], chunk: usize) -> Vec<TensorStatistics> {
        let (stream, parameters) = (stream(seed), self.of[0].len());
        let tensors: Vec<Tensor> = ranges.iter().cloned().map(Tensor::new).collect();
        let segments = Segments::with_chunks(&stream, parameters, &tensors, chunk).unwrap();
        let mut statistics =
            DeviceStatistics::new(&stream, segments, self.shards.len() / parameters).unwrap();
        let [weights, gradient, displacement, before, first, second] =
            self.of.each_ref().map(|array| upload(&stream, array));
        let shards = upload(&stream, if self.shards.is_empty() { &[0.0] } else { &self.shards });
        let watched = Watched {
            weights: &weights,
            gradient: &gradient,
            displacement: &displacement,
            before: &before,
            first: &first,
            second: &second,
            shards: &shards,
        };
        // Twice: what counts the blocks is ready for the next launch.
        statistics.measure(&stream, &watched).unwrap();
        let once = statistics.download(&stream).unwrap();
        statistics.measure(&stream, &watched).unwrap();
        let again = statistics.download(&stream).unwrap();
        // By their text, in which what is no number equals itself.
        assert_eq!(format!("{once:?}"), format!("{again:?}"));
        once
    }

    fn plain(&self, range: &Range<usize>) -> TensorStatistics {
        let doubles =
            |array: &[f32]| array[range.clone()].iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let moments = |array: usize| {
            let x = doubles(&self.of[array]);
            Moments {
                sum: x.iter().sum(),
                squares: x.iter().map(|x| x * x).sum(),
                least: x.iter().copied().fold(f64::INFINITY, f64::min),
                most: x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                count: x.len() as f64,
            }
        };
        let shards = self.shards.chunks_exact(self.of[0].len());
        TensorStatistics {
            weights: moments(0),
            gradient: moments(1),
            displacement: moments(2),
            before: moments(3),
            first: moments(4),
            second: moments(5),
            along: doubles(&self.of[2]).iter().zip(doubles(&self.of[3])).map(|(x, y)| x * y).sum(),
            shards: shards.map(|shard| doubles(shard).iter().map(|x| x * x).sum()).collect(),
        }
    }
}

/// How far two are apart: 0 where extrema agree and sums do to 12 digits, else 1 and more.
fn apart(found: &TensorStatistics, wanted: &TensorStatistics) -> f64 {
    let close = |found: f64, wanted: f64, scale: f64| (found - wanted).abs() / (1e-12 * scale);
    let of = |found: &Moments, wanted: &Moments| {
        let extrema = (found.least != wanted.least || found.most != wanted.most) as u32;
        let scale = (wanted.squares * wanted.count).sqrt();
        let sums =
            close(found.sum, wanted.sum, scale).max(close(found.squares, wanted.squares, wanted.squares));
        sums.max(2.0 * f64::from(extrema))
    };
    let scale = (wanted.displacement.squares * wanted.before.squares).sqrt();
    let shards =
        found.shards.iter().zip(&wanted.shards).map(|(found, wanted)| close(*found, *wanted, *wanted));
    [
        of(&found.weights, &wanted.weights),
        of(&found.gradient, &wanted.gradient),
        of(&found.displacement, &wanted.displacement),
        of(&found.before, &wanted.before),
        of(&found.first, &wanted.first),
        of(&found.second, &wanted.second),
        close(found.along, wanted.along, scale),
    ]
    .into_iter()
    .chain(shards)
    .fold(0.0, f64::max)
}

/// Tensors of one number and of many, at odd places, with gaps; chunks of odd lengths.
fn shapes() -> Vec<(usize, Vec<Range<usize>>, usize, usize)> {
    vec![
        (1, vec![0..1], 0, 8),
        (7, vec![1..2, 3..7], 2, 4),
        (1030, vec![0..1029], 1, 1024),
        (5003, vec![3..4, 5..1031, 1031..1033, 1037..5003], 3, 96),
        (70_001, vec![0..35_001, 35_001..70_000], 8, 1 << 15),
    ]
}

#[test]
fn statistics_match_plain_sums() {
    for (seed, (parameters, ranges, shards, chunk)) in (0u64..).zip(shapes()) {
        let arrays = Arrays::new(seed, parameters, shards);
        let found = arrays.measure(seed, &ranges, chunk);
        assert_eq!(found.len(), ranges.len());
        for (found, range) in found.iter().zip(&ranges) {
            let wanted = arrays.plain(range);
            let apart = apart(found, &wanted);
            assert!(apart < 1.0, "{parameters} {range:?}: {apart}\n{found:?}\n{wanted:?}");
        }
    }
}

#[test]
fn statistics_are_the_same_bits_under_every_schedule() {
    let (parameters, ranges, shards, chunk) = shapes().swap_remove(3);
    let arrays = Arrays::new(1, parameters, shards);
    let first = arrays.measure(0, &ranges, chunk);
    for seed in 1..6 {
        assert_eq!(first, arrays.measure(seed, &ranges, chunk), "seed {seed}");
    }
}

/// Every number counts, those at the edges of chunks too, and only those of the tensor.
#[test]
fn one_number_changes_its_tensor_alone() {
    let (parameters, ranges, shards, chunk) = (300, vec![3..151, 155..299], 2, 32);
    let arrays = Arrays::new(5, parameters, shards);
    let found = arrays.measure(0, &ranges, chunk);
    for place in [2, 3, 31, 32, 150, 155, 299] {
        for array in 0..7 {
            let mut other = Arrays { of: arrays.of.clone(), shards: arrays.shards.clone() };
            match array {
                6 => other.shards[parameters + place] += 1e-3,
                _ => other.of[array][place] += 1e-3,
            }
            let moved = other.measure(0, &ranges, chunk);
            for ((range, before), after) in ranges.iter().zip(&found).zip(&moved) {
                assert_eq!(
                    range.contains(&place),
                    before != after,
                    "array {array}, place {place}, {range:?}"
                );
            }
        }
    }
}

#[test]
fn what_is_no_number_shows_in_the_sums() {
    let mut arrays = Arrays::new(2, 64, 0);
    arrays.of[1][63] = f32::NAN;
    arrays.of[2][0] = f32::INFINITY;
    let found = arrays.measure(0, &[0..64], 32);
    assert!(found[0].gradient.sum.is_nan() && found[0].gradient.squares.is_nan());
    assert_eq!(found[0].displacement.most, f64::INFINITY);
    assert!(found[0].weights.sum.is_finite());
}

#[test]
fn means_cosines_and_noise_come_from_the_sums() {
    let arrays = Arrays::new(3, 4096, 4);
    let found = arrays.measure(0, &[0..4096], 512);
    let plain = |x: &[f32]| {
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / 4096.0;
        (mean, x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / 4096.0)
    };
    let (mean, variance) = plain(&arrays.of[0]);
    assert!((found[0].weights.mean() - mean).abs() < 1e-12);
    assert!((found[0].weights.variance() - variance).abs() < 1e-12, "{variance}");
    assert!(found[0].cosine().abs() < 0.1);
    let same = Arrays { of: std::array::from_fn(|_| arrays.of[2].clone()), shards: Vec::new() };
    assert!((same.measure(0, &[0..4096], 512)[0].cosine() - 1.0).abs() < 1e-12);
    // Means over 16 examples that are 1 and noise of variance 1: tr Σ is 16 a parameter, |G|² is 1.
    let mut noisy = Arrays::new(4, 4096, 4);
    noisy.shards.iter_mut().for_each(|g| *g += 1.0);
    let mean = |i: usize| (0..4).map(|shard| 0.25 * noisy.shards[shard * 4096 + i]).sum();
    noisy.of[1] = (0..4096).map(mean).collect();
    let scale = noise(&noisy.measure(0, &[0..2048, 2048..4096], 512), &[16; 4]).unwrap();
    assert!((scale - 16.0).abs() < 2.0, "{scale}");
    assert_eq!(noise(&found, &[16; 3]), None);
    assert_eq!(noise(&same.measure(0, &[0..4096], 512), &[]), None);
}

#[test]
fn bad_tensors_are_refused_with_a_sentence() {
    let stream = stream(0);
    let refused = |parameters: usize, ranges: &[Range<usize>]| {
        let tensors: Vec<Tensor> = ranges.iter().cloned().map(Tensor::new).collect();
        Segments::new(&stream, parameters, &tensors).unwrap_err().to_string()
    };
    assert!(refused(8, &[]).contains("0 tensors"));
    assert!(refused(8, &[0..9]).contains("tensor 0 is 0..9 of 8"));
    assert!(refused(8, &[3..3]).contains("must have some"));
    assert!(refused(8, &[0..4, 3..8]).contains("may not overlap"));
    let segments = Segments::new(&stream, 8, &[Tensor::new(0..8)]).unwrap();
    let mut statistics = DeviceStatistics::new(&stream, segments, 0).unwrap();
    let (right, short) = (upload(&stream, &[0.0; 8]), upload(&stream, &[0.0; 7]));
    let watched = Watched {
        weights: &right,
        gradient: &short,
        displacement: &right,
        before: &right,
        first: &right,
        second: &right,
        shards: &right,
    };
    let refused = statistics.measure(&stream, &watched).unwrap_err().to_string();
    assert_eq!(refused, "'gradient' has 7 numbers where 8 are needed");
}
