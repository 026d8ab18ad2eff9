//! Causal attention and its gradient against plain loops in double precision.

use gatework_gpu::Stream;
use half::bf16;

use super::{numbers, stream};
use crate::cuda::{Attended, Heads, attend, attend_back};
use crate::random::Random;

struct Given {
    heads: Heads,
    read: Vec<bf16>,
    of_given: Vec<bf16>,
}

/// What the kernels leave: outputs, levels, gradients of what was read.
#[derive(Debug, PartialEq)]
struct Found {
    given: Vec<bf16>,
    levels: Vec<f32>,
    of_read: Vec<bf16>,
}

impl Given {
    fn new(seed: u64, heads: Heads, size: f32) -> Self {
        let mut random = Random::new(seed, "attention");
        let count = heads.places() * heads.numbers;
        let mut rounded = |count, size: f32| -> Vec<bf16> {
            numbers(&mut random, count).into_iter().map(|x| bf16::from_f32(size * x)).collect()
        };
        Self { heads, read: rounded(3 * count, size), of_given: rounded(count, 1.0) }
    }

    fn on(&self, stream: &Stream) -> Found {
        let (read, of_given) = (stream.upload(&self.read).unwrap(), stream.upload(&self.of_given).unwrap());
        let mut given = stream.alloc(of_given.len()).unwrap();
        let mut levels = stream.alloc(self.heads.places()).unwrap();
        attend(stream, self.heads, &read, &mut given, &mut levels).unwrap();
        let mut dots = stream.alloc(self.heads.places()).unwrap();
        let mut of_read = stream.alloc(read.len()).unwrap();
        let attended = Attended { read: &read, given: &given, of_given: &of_given, levels: &levels };
        attend_back(stream, self.heads, &attended, &mut dots, &mut of_read).unwrap();
        Found {
            given: stream.download(&given).unwrap(),
            levels: stream.download(&levels).unwrap(),
            of_read: stream.download(&of_read).unwrap(),
        }
    }

    /// Outputs, levels and gradients in double precision.
    fn plain(&self) -> [Vec<f64>; 3] {
        let Heads { windows, context, heads, numbers } = self.heads;
        let (width, scale) = (heads * numbers, 1.0 / (numbers as f64).sqrt());
        let (mut given, mut of_read) = (vec![0.0; self.of_given.len()], vec![0.0; self.read.len()]);
        let mut levels = vec![0.0; self.heads.places()];
        for number in 0..windows * heads {
            let (window, head) = (number / heads, number % heads);
            let at = |place: usize| (window * context + place) * width + head * numbers;
            let read_at = |kind: usize, place: usize| {
                3 * (window * context + place) * width + kind * width + head * numbers
            };
            let of = |kind: usize, place: usize, i: usize| self.read[read_at(kind, place) + i].to_f64();
            let delta = |row: usize, i: usize| self.of_given[at(row) + i].to_f64();
            for row in 0..context {
                let scores: Vec<f64> = (0..=row)
                    .map(|j| scale * (0..numbers).map(|i| of(0, row, i) * of(1, j, i)).sum::<f64>())
                    .collect();
                let top = scores.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
                levels[number * context + row] = (top + sum.ln()) / std::f64::consts::LN_2;
                let shares: Vec<f64> = scores.iter().map(|s| (s - top).exp() / sum).collect();
                let dp: Vec<f64> =
                    (0..=row).map(|j| (0..numbers).map(|i| delta(row, i) * of(2, j, i)).sum()).collect();
                let whole: f64 = shares.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
                for (j, (p, dp)) in shares.iter().zip(&dp).enumerate() {
                    let ds = p * (dp - whole) * scale;
                    for i in 0..numbers {
                        given[at(row) + i] += p * of(2, j, i);
                        of_read[read_at(0, row) + i] += ds * of(1, j, i);
                        of_read[read_at(1, j) + i] += ds * of(0, row, i);
                        of_read[read_at(2, j) + i] += p * delta(row, i);
                    }
                }
            }
        }
        [given, levels, of_read]
    }
}

/// How far they are apart, relative to how large they are.
fn error(found: &[bf16], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let off: f64 = found.iter().zip(wanted).map(|(found, wanted)| (found.to_f64() - wanted).powi(2)).sum();
    (off / wanted.iter().map(|x| x * x).sum::<f64>().max(1e-12)).sqrt()
}

fn heads([windows, context, heads, numbers]: [usize; 4]) -> Heads {
    Heads { windows, context, heads, numbers }
}

#[test]
fn attention_and_its_gradient_match_double_precision() {
    // One token; less than, exactly and more than a tile; heads that fill whole products and that do not, with rows that can be
    // read in groups and that cannot; the longest.
    let shapes = [
        [1, 1, 1, 1],
        [2, 5, 3, 5],
        [1, 64, 2, 16],
        [1, 65, 1, 24],
        [2, 130, 1, 8],
        [1, 70, 1, 128],
        [1, 20, 2, 100],
    ];
    for (seed, shape) in (0..).zip(shapes) {
        let given = Given::new(seed, heads(shape), 1.0);
        let found = given.on(&stream(seed));
        let [wanted, levels, of_read] = given.plain();
        assert!(error(&found.given, &wanted) < 5e-3, "{shape:?}: {}", error(&found.given, &wanted));
        for (found, wanted) in found.levels.iter().zip(&levels) {
            assert!((f64::from(*found) - wanted).abs() < 1e-4, "{shape:?}: level {found} and not {wanted}");
        }
        // A token alone has no gradient but that of its value.
        assert!(error(&found.of_read, &of_read) < 1e-2, "{shape:?}: {}", error(&found.of_read, &of_read));
        assert!(found.of_read.iter().all(|x| x.is_finite()), "{shape:?}");
    }
}

/// Scores of hundreds, of which nearly all powers vanish, and of zero.
#[test]
fn scores_of_any_size_give_a_softmax() {
    for (seed, size) in (0..).zip([0.0, 1e-3, 20.0, 200.0]) {
        let given = Given::new(seed, heads([1, 70, 1, 16]), size);
        let found = given.on(&stream(seed));
        let [wanted, levels, _] = given.plain();
        assert!(error(&found.given, &wanted) < 5e-3, "{size}: {}", error(&found.given, &wanted));
        for (found, wanted) in found.levels.iter().zip(&levels) {
            assert!(
                (f64::from(*found) - wanted).abs() < 1e-4 + 1e-6 * wanted.abs(),
                "{size}: {found} {wanted}"
            );
        }
        assert!(found.of_read.iter().all(|x| x.is_finite()), "{size}");
    }
}

/// What is no number stays with the rows that see it, and with what they see.
#[test]
fn what_is_no_number_stays_in_its_window_and_behind_its_place() {
    let mut given = Given::new(1, heads([2, 70, 1, 8]), 1.0);
    let width = 8;
    // The key of place 66 in the first window.
    given.read[66 * 3 * width + width] = bf16::NAN;
    let found = given.on(&stream(1));
    let is_nan = |place: usize| found.given[place * width..(place + 1) * width].iter().any(|x| x.is_nan());
    assert!(
        (0..66).all(|place| !is_nan(place)) && (66..70).all(is_nan) && (70..140).all(|place| !is_nan(place))
    );
    assert!(found.of_read[70 * 3 * width..].iter().all(|x| x.is_finite()));
}

#[test]
fn attention_has_the_same_bits_under_every_schedule() {
    let given = Given::new(3, heads([1, 130, 2, 24]), 1.0);
    let first = given.on(&stream(1));
    assert!((2..5).all(|seed| given.on(&stream(seed)) == first));
}

#[test]
fn what_does_not_fit_is_refused_with_a_sentence() {
    let stream = stream(0);
    let (six, mut two) = (stream.upload(&[bf16::ONE; 6]).unwrap(), stream.alloc(2).unwrap());
    let mut level = stream.alloc(1).unwrap();
    let mut says = |shape, part: &str| {
        let said = attend(&stream, heads(shape), &six, &mut two, &mut level).unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    };
    says([1, 1, 1, 3], "'read' has 6 numbers where 9 are needed");
    says([1, 2, 1, 1], "'levels' has 1 numbers where 2 are needed");
    says([0, 1, 1, 2], "0 windows of 1 tokens");
    says([1, 1, 1, 129], "heads of 129 numbers: on a device a head has 128 at most; take more heads");
    says([70_000, 1, 1, 2], "at most 65535 windows");
}
