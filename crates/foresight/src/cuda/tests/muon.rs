//! Muon's directions by products of bf16, against the CPU's in single precision.

use super::{numbers, stream, upload};
use crate::cuda::{DeviceOptimiser, Products, ProductsBy};
use crate::network::{Architecture, Parameters};
use crate::optimiser::{Method, Optimiser, OptimiserOptions, orthogonalise};
use crate::random::Random;

fn options() -> OptimiserOptions {
    OptimiserOptions { method: Method::Muon, ..OptimiserOptions::default() }
}

/// Groups whose matrices between the first and the last have these sides, one after another.
fn groups(widths: &[usize]) -> Vec<Parameters> {
    Architecture::mlp([1, 1, 3], widths, 2).unwrap().parameters()
}

/// Directions of these gradients, where all of them are not frozen; and the lengths they had before.
fn directions(seed: u64, groups: &[Parameters], gradient: &[f32]) -> (Vec<Vec<f32>>, Vec<f64>) {
    let stream = stream(seed);
    let products = Products::new(&stream, ProductsBy::Own).unwrap();
    // What is frozen at first has its memory all the same.
    let mut optimiser = DeviceOptimiser::new(&stream, options(), groups, groups.len() - 1).unwrap();
    optimiser.freeze(&stream, 0).unwrap();
    let gradient = upload(&stream, gradient);
    optimiser.begin(&stream, &gradient).unwrap();
    optimiser.muon_direction(&stream, &gradient).unwrap();
    optimiser.orthogonalise(&stream, &products).unwrap();
    let (matrices, direction, squared) = optimiser.direction().unwrap();
    let numbers = stream.download(direction).unwrap();
    let found = matrices.iter().map(|group| numbers[group.matrix.clone()].to_vec()).collect();
    (found, stream.download(squared).unwrap())
}

/// How far apart two lists are, over the length of the second.
fn apart(found: &[f32], wanted: &[f32]) -> f64 {
    let length = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let difference = length(&mut found.iter().zip(wanted).map(|(a, b)| f64::from(a - b)));
    difference / length(&mut wanted.iter().map(|x| f64::from(*x)))
}

#[test]
fn directions_match_cpu_within_bf16() {
    // Wide, tall and square, sides of whole groups and odd ones, more than one tile, a single row.
    for (seed, widths) in (0..).zip([vec![6, 20, 6], vec![8, 8, 1, 7], vec![33, 65, 31], vec![70, 16]]) {
        let groups = groups(&widths);
        let mut random = Random::new(seed, "muon");
        let gradient = numbers(&mut random, groups.last().unwrap().bias.end);
        let (found, _) = directions(seed, &groups, &gradient);
        assert_eq!(found.len(), widths.len() - 1);
        for (group, found) in groups[1..].iter().zip(&found) {
            let mut wanted = gradient[group.matrix.clone()].to_vec();
            orthogonalise(&mut wanted, group.sides);
            assert!(apart(found, &wanted) < 0.05, "{:?}: {}", group.sides, apart(found, &wanted));
            // It is another matrix than the one that it came from.
            let given = &gradient[group.matrix.clone()];
            assert!(group.sides.contains(&1) || apart(given, &wanted) > 0.2, "{:?}", group.sides);
        }
        assert!(found == directions(seed + 100, &groups, &gradient).0, "another schedule, other bits");
    }
}

#[test]
fn steps_match_cpu_and_what_is_nothing_stays_nothing() {
    let groups = groups(&[9, 14, 5]);
    let count = groups.last().unwrap().bias.end;
    let mut random = Random::new(5, "muon");
    let (start, gradient) = (numbers(&mut random, count), numbers(&mut random, count));
    let stream = stream(1);
    let products = Products::new(&stream, ProductsBy::Own).unwrap();
    let (mut there, mut here) = (upload(&stream, &start), start.clone());
    let mut device = DeviceOptimiser::new(&stream, options(), &groups, 0).unwrap();
    let mut optimiser = Optimiser::new(options(), count);
    for _ in 0..3 {
        let uploaded = upload(&stream, &gradient);
        device.begin(&stream, &uploaded).unwrap();
        device.adamw(&stream, &mut there, &uploaded, 1e-2, true).unwrap();
        device.muon_direction(&stream, &uploaded).unwrap();
        device.orthogonalise(&stream, &products).unwrap();
        device.muon_step(&stream, &mut there, &uploaded, 1e-2, true).unwrap();
        optimiser.step(&groups, &mut here, &mut gradient.clone(), 1e-2, 0, false);
    }
    let moved = |now: &[f32]| now.iter().zip(&start).map(|(now, start)| now - start).collect::<Vec<f32>>();
    let (there, here) = (moved(&stream.download(&there).unwrap()), moved(&here));
    assert!(apart(&there, &here) < 0.02, "{}", apart(&there, &here));
    let matrix = groups[1].matrix.clone();
    assert!(there[matrix.clone()] != here[matrix], "products of bf16 round");
    // A gradient of zeros has no direction, and one that is no number has none either.
    let (none, squared) = directions(2, &groups, &vec![0.0; count]);
    assert!(none.iter().flatten().all(|x| *x == 0.0) && squared == [0.0, 0.0]);
    let (lost, _) = directions(3, &groups, &vec![f32::NAN; count]);
    assert!(lost.iter().flatten().all(|x| x.is_nan()));
}

#[test]
fn a_direction_before_a_step_is_refused_with_a_sentence() {
    let stream = stream(0);
    let mut optimiser = DeviceOptimiser::new(&stream, options(), &groups(&[4, 4]), 0).unwrap();
    let products = Products::new(&stream, ProductsBy::Own).unwrap();
    let said = optimiser.orthogonalise(&stream, &products).unwrap_err().to_string();
    assert!(said.contains("call DeviceOptimiser::begin"), "{said}");
}
