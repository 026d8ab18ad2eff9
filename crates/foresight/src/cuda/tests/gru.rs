//! Gated recurrent units against plain loops in double precision.

use super::{numbers, stream, upload};
use crate::cuda::{DeviceGru, GruSizes, MOST_HIDDEN, Residence, Schedule, Team, WeightFormat};
use crate::random::Random;
use crate::world::Reset;

const BOTH: [Reset; 2] = [Reset::After, Reset::Before];

/// Weights of every member, inputs of every step, states before the first.
struct Units {
    sizes: GruSizes,
    weights: Vec<Vec<f32>>,
    inputs: Vec<f32>,
    start: Vec<f32>,
}

impl Units {
    fn new(seed: u64, sizes: GruSizes, steps: usize) -> Self {
        let mut random = Random::new(seed, "units");
        let GruSizes { members, inputs, hidden, .. } = sizes;
        let scale = 1.0 / (hidden as f32).sqrt();
        let weights =
            (0..members).map(|_| numbers(&mut random, sizes.weights()).iter().map(|w| scale * w).collect());
        Self {
            weights: weights.collect(),
            inputs: numbers(&mut random, steps * members * inputs),
            start: numbers(&mut random, members * hidden),
            sizes,
        }
    }

    fn on_device(&self, seed: u64, format: WeightFormat, schedule: Option<Schedule>) -> Vec<f32> {
        let stream = stream(seed);
        let GruSizes { members, inputs, hidden, .. } = self.sizes;
        let weights: Vec<&[f32]> = self.weights.iter().map(Vec::as_slice).collect();
        let mut gru = DeviceGru::new(&stream, self.sizes, &weights, format, schedule).unwrap();
        let steps = self.inputs.len() / (members * inputs);
        let mut states = stream.alloc(steps * members * hidden).unwrap();
        let (inputs, start) = (upload(&stream, &self.inputs), upload(&stream, &self.start));
        gru.advance(&stream, &inputs, &start, &mut states).unwrap();
        stream.download(&states).unwrap()
    }

    /// The same in double precision.
    fn plain(&self, format: WeightFormat, reset: Reset) -> Vec<f64> {
        let GruSizes { members, inputs, hidden, .. } = self.sizes;
        let mut h: Vec<Vec<f64>> =
            self.start.chunks(hidden).map(|h| h.iter().map(|x| f64::from(*x)).collect()).collect();
        let mut states = Vec::new();
        for x in self.inputs.chunks(members * inputs) {
            for (member, x) in x.chunks(inputs).enumerate() {
                let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
                h[member] = step(&self.weights[member], format, &x, &h[member], reset);
                states.extend(&h[member]);
            }
        }
        states
    }
}

fn step(weights: &[f32], format: WeightFormat, x: &[f64], h: &[f64], reset: Reset) -> Vec<f64> {
    let mut at = 0;
    let mut linear = |x: &[f64], outputs: usize| -> Vec<f64> {
        let (matrix, bias) = weights[at..at + (x.len() + 1) * outputs].split_at(x.len() * outputs);
        at += (x.len() + 1) * outputs;
        let mut y: Vec<f64> = bias.iter().map(|b| f64::from(*b)).collect();
        for (x, row) in x.iter().zip(matrix.chunks(outputs)) {
            y.iter_mut().zip(row).for_each(|(y, w)| *y += x * f64::from(format.rounded(*w)));
        }
        y
    };
    let hidden = h.len();
    let gates = linear(x, 3 * hidden);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut gate = |place: usize| -> Vec<f64> {
        linear(h, hidden).iter().zip(&gates[place * hidden..]).map(|(h, x)| sigmoid(h + x)).collect()
    };
    let (z, r) = (gate(0), gate(1));
    let inner: Vec<f64> = match reset {
        Reset::After => linear(h, hidden).iter().zip(&r).map(|(h, r)| r * h).collect(),
        Reset::Before => linear(&h.iter().zip(&r).map(|(h, r)| r * h).collect::<Vec<f64>>(), hidden),
    };
    let n = |i: usize| (gates[2 * hidden + i] + inner[i]).tanh();
    (0..hidden).map(|i| (1.0 - z[i]) * h[i] + z[i] * n(i)).collect()
}

fn apart(found: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    found.iter().zip(wanted).map(|(found, wanted)| (f64::from(*found) - wanted).abs()).fold(0.0, f64::max)
}

fn sizes(members: usize, inputs: usize, hidden: usize, reset: Reset) -> GruSizes {
    GruSizes { members, inputs, hidden, reset }
}

#[test]
fn units_of_any_size_match_double_precision() {
    let shapes = [(1, 3, 1, 3), (5, 7, 33, 4), (7, 9, 64, 2), (1, 70, 256, 2), (5, 1, 5, 3), (1, 5, 1025, 1)];
    for (seed, (members, inputs, hidden, steps)) in (0u64..).zip(shapes) {
        for reset in BOTH {
            for format in [WeightFormat::F32, WeightFormat::Bf16] {
                let units = Units::new(seed, sizes(members, inputs, hidden, reset), steps);
                let apart = apart(&units.on_device(seed, format, None), &units.plain(format, reset));
                assert!(apart < 1e-4, "{members}x{hidden} {reset:?} {format:?}: {apart}");
            }
        }
    }
}

/// Every way to run it: more or fewer blocks, clusters and grids, weights that stay and weights that are
/// streamed.
#[test]
fn every_schedule_matches_double_precision() {
    for reset in BOTH {
        let units = Units::new(3, sizes(3, 6, 37, reset), 3);
        for team in [Team::Cluster, Team::Grid] {
            for residence in [Residence::Shared, Residence::Streamed] {
                for blocks in [1, 3, 8] {
                    let schedule = Schedule { blocks, team, residence };
                    let found = units.on_device(blocks as u64, WeightFormat::F32, Some(schedule));
                    let apart = apart(&found, &units.plain(WeightFormat::F32, reset));
                    assert!(apart < 1e-5, "{schedule:?} {reset:?}: {apart}");
                }
            }
        }
    }
}

/// Registers hold the first rows of the state's matrix, shared memory the others.
#[test]
fn a_state_that_registers_hold_in_part_matches_double_precision() {
    for reset in BOTH {
        for format in [WeightFormat::F32, WeightFormat::Bf16] {
            let units = Units::new(6, sizes(2, 5, 130, reset), 3);
            let schedule = Schedule { blocks: 1, team: Team::Cluster, residence: Residence::Shared };
            let found = units.on_device(6, format, Some(schedule));
            let apart = apart(&found, &units.plain(format, reset));
            assert!(apart < 1e-5, "{reset:?} {format:?}: {apart}");
        }
    }
}

#[test]
fn the_other_form_and_the_other_format_are_seen() {
    for reset in BOTH {
        let units = Units::new(1, sizes(2, 5, 19, reset), 2);
        let found = units.on_device(0, WeightFormat::F32, None);
        let other = if reset == Reset::After { Reset::Before } else { Reset::After };
        assert!(apart(&found, &units.plain(WeightFormat::F32, other)) > 1e-3);
        assert!(apart(&found, &units.plain(WeightFormat::Bf16, reset)) > 1e-4);
    }
}

#[test]
fn schedules_of_threads_change_no_bit() {
    let units = Units::new(2, sizes(2, 4, 21, Reset::Before), 3);
    for team in [Team::Cluster, Team::Grid] {
        let schedule = Some(Schedule { blocks: 2, team, residence: Residence::Shared });
        let first = units.on_device(0, WeightFormat::F32, schedule);
        for seed in 1..5 {
            assert_eq!(first, units.on_device(seed, WeightFormat::F32, schedule), "{team:?}, seed {seed}");
        }
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_a_sentence() {
    let stream = stream(0);
    let refused = |sizes: GruSizes, weights: &[&[f32]], schedule: Option<Schedule>| {
        DeviceGru::new(&stream, sizes, weights, WeightFormat::F32, schedule).unwrap_err().to_string()
    };
    let right = sizes(1, 2, 3, Reset::After);
    let weights = vec![0.5; right.weights()];
    for wrong in [sizes(0, 2, 3, Reset::After), sizes(1, 0, 3, Reset::After), sizes(1, 2, 0, Reset::After)] {
        assert!(refused(wrong, &[&weights], None).contains("members start at 1"));
    }
    assert!(refused(sizes(1, 2, 4097, Reset::After), &[&weights], None).contains("1 to 4096"));
    assert!(refused(right, &[], None).contains("'members' has 0"));
    assert!(refused(right, &[&weights[1..]], None).contains("'weights of a member' has"));
    let mut broken = weights.clone();
    broken[4] = f32::NAN;
    assert!(refused(right, &[&broken], None).contains("weight 4 of member 0 is NaN"));
    let schedule = |blocks, team| Some(Schedule { blocks, team, residence: Residence::Shared });
    assert!(refused(right, &[&weights], schedule(0, Team::Cluster)).contains("no block"));
    assert!(refused(right, &[&weights], schedule(17, Team::Cluster)).contains("17 blocks where a cluster"));
    assert!(refused(right, &[&weights], schedule(1000, Team::Grid)).contains("cooperative grid"));
    let large = sizes(1, 2, 512, Reset::After);
    let many = vec![0.0; large.weights()];
    assert!(refused(large, &[&many], schedule(1, Team::Cluster)).contains("take more blocks"));
    let mut gru = DeviceGru::new(&stream, right, &[&weights], WeightFormat::F32, None).unwrap();
    let (inputs, start, mut states) =
        (upload(&stream, &[0.0; 5]), upload(&stream, &[0.0; 3]), upload(&stream, &[0.0; 6]));
    let error = gru.advance(&stream, &inputs, &start, &mut states).unwrap_err().to_string();
    assert_eq!(error, "'inputs' has 5 numbers where 4 are needed");
}

#[test]
fn the_largest_state_matches_double_precision() {
    let format = WeightFormat::Bf16;
    let units = Units::new(9, sizes(1, 1, MOST_HIDDEN, Reset::After), 1);
    let apart = apart(&units.on_device(0, format, None), &units.plain(format, Reset::After));
    assert!(apart < 1e-4, "{apart}");
}
