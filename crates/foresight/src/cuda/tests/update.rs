//! Steps and combinations against the CPU's, bit for bit.

use super::{numbers, stream, upload};
use crate::cuda::{DeviceOptimiser, Snapshots};
use crate::network::{Architecture, Parameters};
use crate::optimiser::{Average, Method, Optimiser, OptimiserOptions, Sums, orthogonalise};
use crate::random::Random;

const RATE: f32 = 1e-2;

fn groups(width: usize) -> Vec<Parameters> {
    Architecture::mlp([1, 1, 9], &[width, width + 3], 5).unwrap().parameters()
}

/// Weights, first moments, second moments and the last step after some steps on the device, and the last
/// sums.
fn on_device(
    seed: u64,
    options: OptimiserOptions,
    groups: &[Parameters],
    frozen: usize,
    weights: &[f32],
    gradients: &[Vec<f32>],
) -> ([Vec<f32>; 4], Vec<Sums>) {
    let stream = stream(seed);
    let mut optimiser = DeviceOptimiser::new(&stream, options, groups, frozen).unwrap();
    let mut weights = upload(&stream, weights);
    for gradient in gradients {
        let gradient = upload(&stream, gradient);
        optimiser.begin(&stream, &gradient).unwrap();
        optimiser.adamw(&stream, &mut weights, &gradient, RATE, true).unwrap();
        optimiser.muon_direction(&stream, &gradient).unwrap();
        if let Some((matrices, direction, squared)) = optimiser.direction() {
            let mut numbers = stream.download(direction).unwrap();
            for (group, squared) in matrices.iter().zip(stream.download(squared).unwrap()) {
                let matrix = &mut numbers[group.matrix.clone()];
                let length: f64 = matrix.iter().map(|x| f64::from(*x).powi(2)).sum();
                assert!((squared - length).abs() <= 1e-12 * length, "{squared} {length}");
                orthogonalise(matrix, group.sides);
            }
            stream.copy_from_host(&numbers, direction).unwrap();
        }
        optimiser.muon_step(&stream, &mut weights, &gradient, RATE, true).unwrap();
    }
    let [first, second, last] = optimiser.moments().map(|array| stream.download(array).unwrap());
    let sums = optimiser.sums(&stream).unwrap();
    ([stream.download(&weights).unwrap(), first, second, last], sums)
}

fn on_cpu(
    options: OptimiserOptions,
    groups: &[Parameters],
    frozen: usize,
    weights: &[f32],
    gradients: &[Vec<f32>],
) -> (Vec<f32>, Vec<Sums>) {
    let mut weights = weights.to_vec();
    let mut optimiser = Optimiser::new(options, weights.len());
    let mut sums = Vec::new();
    for gradient in gradients {
        (_, sums) = optimiser.step(groups, &mut weights, &mut gradient.clone(), RATE, frozen, true);
    }
    (weights, sums)
}

fn close(found: &[Sums], wanted: &[Sums]) -> bool {
    let numbers = |sums: &Sums| {
        let Sums { gradient, weight, update, along, before, first_moment, second_moment, parameters } = *sums;
        [gradient, weight, update, along, before, first_moment, second_moment, parameters]
    };
    found.len() == wanted.len()
        && found.iter().zip(wanted).all(|(found, wanted)| {
            let scale = (wanted.update * wanted.before).sqrt();
            numbers(found).iter().zip(numbers(wanted)).enumerate().all(|(place, (found, wanted))| {
                (found - wanted).abs() <= 1e-11 * if place == 3 { scale } else { wanted.abs() }
            })
        })
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn steps_match_cpu_bit_for_bit() {
    for (seed, (method, width, frozen)) in (0u64..).zip([
        (Method::AdamW, 5, 0),
        (Method::AdamW, 64, 1),
        (Method::Muon, 8, 0),
        (Method::Muon, 33, 1),
    ]) {
        let groups = groups(width);
        let mut random = Random::new(seed, "update");
        let count = groups.last().unwrap().bias.end;
        let weights = numbers(&mut random, count);
        let gradients: Vec<Vec<f32>> = (0..3).map(|_| numbers(&mut random, count)).collect();
        let options = OptimiserOptions { method, ..OptimiserOptions::default() };
        let ([found, ..], sums) = on_device(seed, options, &groups, frozen, &weights, &gradients);
        let (wanted, wanted_sums) = on_cpu(options, &groups, frozen, &weights, &gradients);
        assert_eq!(bits(&found), bits(&wanted), "{method:?} {width}");
        assert!(close(&sums, &wanted_sums), "{sums:?}\n{wanted_sums:?}");
        // Another decay is another step: what is compared can differ.
        let other = OptimiserOptions { weight_decay: 0.02, ..options };
        let (wrong, wrong_sums) = on_cpu(other, &groups, frozen, &weights, &gradients);
        assert_ne!(bits(&found), bits(&wrong));
        assert!(!close(&sums, &wrong_sums));
    }
}

#[test]
fn clipped_steps_match_cpu() {
    let groups = groups(21);
    let count = groups.last().unwrap().bias.end;
    for (seed, scale) in (0u64..).zip([1.0f32, 1e-3, 3e18, 1e-20]) {
        let mut random = Random::new(seed, "clip");
        let weights = numbers(&mut random, count);
        let gradients: Vec<Vec<f32>> =
            (0..3).map(|_| numbers(&mut random, count).iter().map(|g| scale * g).collect()).collect();
        let clip = 0.5 * f64::from(scale);
        let options = OptimiserOptions { clip, ..OptimiserOptions::default() };
        let ([found, ..], _) = on_device(seed, options, &groups, 0, &weights, &gradients);
        let (wanted, _) = on_cpu(options, &groups, 0, &weights, &gradients);
        let apart =
            found.iter().zip(&wanted).map(|(found, wanted)| (found - wanted).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-6, "scale {scale}: {apart}");
    }
}

#[test]
fn steps_are_the_same_bits_under_every_schedule() {
    let groups = groups(17);
    let mut random = Random::new(3, "schedules");
    let count = groups.last().unwrap().bias.end;
    let weights = numbers(&mut random, count);
    let gradients = vec![numbers(&mut random, count)];
    let options = OptimiserOptions { method: Method::Muon, clip: 1.0, ..OptimiserOptions::default() };
    let first = on_device(0, options, &groups, 0, &weights, &gradients);
    for seed in 1..8 {
        assert_eq!(first, on_device(seed, options, &groups, 0, &weights, &gradients), "seed {seed}");
    }
}

#[test]
fn a_gradient_that_is_no_number_reaches_its_own_weight_alone() {
    let groups = groups(6);
    let count = groups.last().unwrap().bias.end;
    let mut gradient = vec![0.5; count];
    gradient[7] = f32::NAN;
    let options = OptimiserOptions::default();
    let ([found, ..], _) = on_device(0, options, &groups, 0, &vec![1.0; count], &[gradient]);
    assert_eq!(found.iter().filter(|w| w.is_nan()).count(), 1);
    assert!(found[7].is_nan());
}

#[test]
fn combinations_match_cpu_bit_for_bit() {
    for (seed, (parameters, places)) in (0u64..).zip([(1, 1), (6, 2), (1023, 3), (4100, 9)]) {
        let stream = stream(seed);
        let mut random = Random::new(seed, "combine");
        let rows: Vec<Vec<f32>> = (0..places).map(|_| numbers(&mut random, parameters)).collect();
        let factors = numbers(&mut random, places);
        let mut snapshots = Snapshots::new(&stream, places, parameters).unwrap();
        for (place, row) in rows.iter().enumerate() {
            snapshots.take(&stream, place, &upload(&stream, row)).unwrap();
        }
        let mut to = stream.alloc(parameters).unwrap();
        snapshots.combine(&stream, &factors, &mut to).unwrap();
        let mut wanted = vec![0.0f32; parameters];
        for (factor, row) in factors.iter().zip(&rows) {
            wanted.iter_mut().zip(row).for_each(|(sum, x)| *sum += factor * x);
        }
        assert_eq!(bits(&stream.download(&to).unwrap()), bits(&wanted));
        wanted[parameters - 1] += 1e-3;
        assert_ne!(bits(&stream.download(&to).unwrap()), bits(&wanted));
    }
}

/// The running average of the CPU is a combination of two: what it was, and the weights.
#[test]
fn an_average_is_a_combination() {
    let stream = stream(0);
    let mut random = Random::new(1, "average");
    let (start, next) = (numbers(&mut random, 37), numbers(&mut random, 37));
    let mut average = Average::new(0.9, &start);
    average.take(&next);
    let mut snapshots = Snapshots::new(&stream, 2, 37).unwrap();
    snapshots.take(&stream, 0, &upload(&stream, &start)).unwrap();
    snapshots.take(&stream, 1, &upload(&stream, &next)).unwrap();
    let (mut to, keep) = (stream.alloc(37).unwrap(), 1.0f32 / 11.0);
    snapshots.combine(&stream, &[keep, 1.0 - keep], &mut to).unwrap();
    assert_eq!(bits(&stream.download(&to).unwrap()), bits(average.weights()));
}

#[test]
fn what_does_not_fit_is_refused_with_a_sentence() {
    let stream = stream(0);
    let says = |error: crate::Error, part: &str| {
        assert!(error.to_string().contains(part), "{error}");
    };
    let options = OptimiserOptions::default();
    says(DeviceOptimiser::new(&stream, options, &[], 0).unwrap_err(), "one at least must move");
    says(
        DeviceOptimiser::new(&stream, options, &groups(4), 3).unwrap_err(),
        "3 groups of which 3 are frozen",
    );
    let mut optimiser = DeviceOptimiser::new(&stream, options, &groups(4), 0).unwrap();
    let count = groups(4).last().unwrap().bias.end;
    let (mut weights, gradient) = (upload(&stream, &vec![0.0; count]), upload(&stream, &vec![0.0; count]));
    says(optimiser.adamw(&stream, &mut weights, &gradient, RATE, false).unwrap_err(), "begin");
    let short = upload(&stream, &[0.0; 3]);
    says(optimiser.begin(&stream, &short).unwrap_err(), "'gradient' has 3 numbers");
    says(Snapshots::new(&stream, 0, 5).unwrap_err(), "both start at 1");
    let mut snapshots = Snapshots::new(&stream, 2, 3).unwrap();
    let mut to = stream.alloc(3).unwrap();
    says(snapshots.take(&stream, 2, &short).unwrap_err(), "place 2 of 2");
    snapshots.take(&stream, 0, &short).unwrap();
    says(snapshots.combine(&stream, &[1.0, 1.0], &mut to).unwrap_err(), "snapshot 1 was not taken");
    says(snapshots.combine(&stream, &[], &mut to).unwrap_err(), "0 factors");
}
