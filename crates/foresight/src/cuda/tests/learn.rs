//! The world model's training on the emulated device, against the CPU's and against finite differences.

use std::ops::Range;

use super::stream;
use crate::cuda::WorldTrainer;
use crate::random::Random;
use crate::state::FEATURES;
use crate::world::inside::{Linear, Member, Slice};
use crate::world::{ACTION, Ensemble, Episode, Reset, Tick, WorldOptions};

fn options(hidden: usize, [categories, classes]: [usize; 2], members: usize, reset: Reset) -> WorldOptions {
    WorldOptions {
        members,
        hidden,
        categories,
        classes,
        reset,
        window: 4,
        batch: 2,
        divergence: 0.7,
        ..WorldOptions::default()
    }
}

fn episode(seed: u64, ticks: usize, end: bool) -> Episode {
    let mut random = Random::new(seed, "episode");
    let mut level = 1.0f32;
    let mut episode = Episode::default();
    for _ in 0..ticks {
        let features = (0..FEATURES).map(|_| 0.5 * random.normal() as f32).collect();
        let action = std::array::from_fn(|_| random.uniform() as f32);
        episode.ticks.push(Tick { features, action, level });
        level -= 0.1 * random.normal() as f32;
    }
    episode.end = end.then_some(level);
    episode
}

fn ensemble(options: WorldOptions, seed: u64) -> Ensemble {
    let mut ensemble = Ensemble::new(options, seed).unwrap();
    let mut random = Random::new(seed, "alter");
    // Biases too.
    ensemble.alter(|w| *w += 0.1 * random.normal() as f32);
    ensemble
}

/// Matrix and bias of every layer.
fn layers(member: &Member) -> Vec<Range<usize>> {
    let Member { gru, prior, posterior, features, change, end, .. } = member;
    let [z, r, n] = &gru.state;
    let range = |layer: &Linear| [layer.matrix.clone(), layer.bias.clone()];
    [&gru.input, z, r, n, prior, posterior, features, change, end].into_iter().flat_map(range).collect()
}

fn apart(found: &[f32], wanted: &[f32]) -> f64 {
    let length = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let difference = length(&mut found.iter().zip(wanted).map(|(a, b)| f64::from(a - b)));
    difference / length(&mut wanted.iter().map(|x| f64::from(*x))).max(1e-30)
}

/// The first moments after one update are the clipped gradients, times 0.1.
#[test]
fn gradients_and_updates_match_cpu() {
    let cases = [
        (1, [1, 2], 1, Reset::After),
        (1, [2, 3], 5, Reset::Before),
        (33, [3, 5], 5, Reset::After),
        (33, [5, 3], 1, Reset::Before),
        (64, [2, 8], 2, Reset::Before),
        (5, [3, 2], 7, Reset::After),
        // More columns, and more categories, than a block has threads.
        (70, [260, 2], 1, Reset::After),
    ];
    let (finished, running) = (episode(1, 9, true), episode(2, 7, false));
    for (seed, (hidden, classes, members, reset)) in (0..).zip(cases) {
        let options = options(hidden, classes, members, reset);
        let mut here = ensemble(options, seed);
        let start: Vec<Vec<f32>> = here.parameters().map(<[f32]>::to_vec).collect();
        let mut there = WorldTrainer::new(&stream(seed), here.clone()).unwrap();
        for update in 0..3 {
            let wanted = here.update(&[&finished, &running]).unwrap();
            let found = there.update(&[&finished, &running]).unwrap().unwrap();
            for (found, wanted) in [
                (found.features, wanted.features),
                (found.change, wanted.change),
                (found.end, wanted.end),
                (found.divergence, wanted.divergence),
            ] {
                let off = (found - wanted).abs();
                assert!(off < 1e-4 * wanted.abs().max(0.1), "{hidden} {members} {reset:?}: {found} {wanted}");
            }
            if update > 0 {
                continue;
            }
            let member = options.member();
            for (found, wanted) in there.ensemble().unwrap().learnt().zip(here.learnt()) {
                for range in layers(&member) {
                    let [found, wanted] = [found[1], wanted[1]].map(|moments| &moments[range.clone()]);
                    // The head of the end learns nothing from windows of a run that goes on.
                    let learns = wanted.iter().any(|g| *g != 0.0);
                    assert!(learns || range.start >= member.end.matrix.start, "{hidden} {range:?}");
                    let apart = apart(found, wanted);
                    assert!(apart < 3e-5, "{hidden} {members} {reset:?} at {range:?}: {apart}");
                }
            }
        }
        let found = there.ensemble().unwrap();
        for ((found, wanted), start) in found.learnt().zip(here.learnt()).zip(&start) {
            let moved = |now: &[f32]| now.iter().zip(start).map(|(a, b)| a - b).collect::<Vec<f32>>();
            let (found, wanted) = (moved(found[0]), moved(wanted[0]));
            assert!(wanted.iter().any(|w| w.abs() > 1e-3));
            assert!(apart(&found, &wanted) < 1e-4, "{hidden} {members}: {}", apart(&found, &wanted));
        }
    }
}

/// What is compared can differ: another form, another balance and other random numbers are seen.
#[test]
fn other_models_have_other_gradients() {
    let seen = episode(1, 9, true);
    let right = options(7, [2, 3], 2, Reset::After);
    let mut here = ensemble(right, 1);
    let moments = |options: WorldOptions, draws: u64| {
        let mut other = ensemble(options, 1);
        other.take_numbers(draws);
        let mut there = WorldTrainer::new(&stream(1), other).unwrap();
        there.update(&[&seen]).unwrap();
        there.ensemble().unwrap().learnt().next().unwrap()[1].to_vec()
    };
    let found = moments(right, 0);
    here.update(&[&seen]).unwrap();
    let wanted = here.learnt().next().unwrap()[1].to_vec();
    assert!(apart(&found, &wanted) < 1e-4);
    for (options, draws) in [
        (WorldOptions { reset: Reset::Before, ..right }, 0),
        (WorldOptions { balance: 0.2, ..right }, 0),
        (WorldOptions { divergence: 0.1, ..right }, 0),
        (right, 1),
    ] {
        assert!(apart(&moments(options, draws), &wanted) > 1e-3, "{options:?} {draws}");
    }
}

/// With means for samples and both weights of the divergence 1, the loss is one smooth function.
#[test]
fn gradients_match_finite_differences() {
    for reset in [Reset::After, Reset::Before] {
        let options = options(5, [2, 3], 1, reset);
        let mut random = Random::new(4, "differences");
        let mut numbers = |n: usize| (0..n).map(|_| random.normal() as f32).collect::<Vec<f32>>();
        let slices: Vec<Slice> = (0..options.window)
            .map(|tick| Slice {
                x: numbers(2 * FEATURES),
                a: numbers(2 * ACTION),
                change: numbers(2).into_iter().map(|x| (tick > 0).then_some(0.3 * x)).collect(),
                end: numbers(2).into_iter().enumerate().map(|(i, x)| (i > 0).then_some(x)).collect(),
            })
            .collect();
        let there = stream(2);
        let mut trainer = WorldTrainer::new(&there, ensemble(options, 4)).unwrap();
        trainer.smooth();
        let parameters = trainer.download_parameters();
        let mut value = |parameters: &[f32]| -> (f64, Vec<f32>) {
            let (losses, gradient) = trainer.losses_and_gradient(parameters, std::slice::from_ref(&slices));
            (losses.iter().sum(), gradient)
        };
        let (_, gradient) = value(&parameters);
        let (mut wrong, mut large) = (Vec::new(), 0);
        // Some of every layer.
        for at in (0..parameters.len()).step_by(parameters.len() / 60) {
            let step = 1e-2f32;
            let mut moved = |by: f32| {
                let mut moved = parameters.clone();
                moved[at] += by;
                value(&moved).0
            };
            let difference = (moved(step) - moved(-step)) / f64::from(2.0 * step);
            let found = f64::from(gradient[at]);
            if (difference - found).abs() > 1e-3 + 2e-2 * found.abs() {
                wrong.push((at, found, difference));
            }
            large += usize::from(found.abs() > 1e-4);
        }
        assert!(wrong.is_empty(), "{reset:?}: {wrong:?}");
        assert!(large > 30, "{large}");
    }
}

#[test]
fn updates_are_the_same_bits_under_every_schedule_and_after_being_saved() {
    let seen = episode(3, 8, true);
    let begin = ensemble(options(9, [3, 4], 3, Reset::After), 2);
    let learn = |seed: u64, begin: &Ensemble, updates: usize| -> Ensemble {
        let mut trainer = WorldTrainer::new(&stream(seed), begin.clone()).unwrap();
        (0..updates).for_each(|_| assert!(trainer.update(&[&seen]).unwrap().is_some()));
        trainer.ensemble().unwrap().clone()
    };
    let whole = learn(0, &begin, 3);
    for seed in 1..4 {
        assert!(learn(seed, &begin, 3) == whole, "seed {seed}");
    }
    let saved = postcard::to_stdvec(&learn(5, &begin, 2)).unwrap();
    let read: Ensemble = postcard::from_bytes(&saved).unwrap();
    assert!(learn(6, &read, 1) == whole);
    assert!(learn(6, &begin, 2) != whole);
}

#[test]
fn a_window_that_no_number_describes_teaches_nothing_but_what_it_describes() {
    let mut seen = episode(3, 4, true);
    seen.ticks[2].features[5] = f32::NAN;
    let begin = ensemble(options(6, [2, 2], 2, Reset::Before), 2);
    let mut trainer = WorldTrainer::new(&stream(0), begin.clone()).unwrap();
    assert!(trainer.update(&[&seen]).unwrap().unwrap().features.is_nan());
    assert!(trainer.ensemble().unwrap().learnt().zip(begin.learnt()).all(|(found, wanted)| found == wanted));
    // It goes on with windows that are sound, as the CPU does.
    let sound = episode(4, 6, true);
    let mut here = begin;
    here.update(&[&seen]).unwrap();
    here.update(&[&sound]).unwrap();
    assert!(trainer.update(&[&sound]).unwrap().unwrap().features.is_finite());
    for (found, wanted) in trainer.ensemble().unwrap().learnt().zip(here.learnt()) {
        assert!(apart(found[1], wanted[1]) < 1e-4);
    }
}

#[test]
fn it_learns_and_what_does_not_fit_is_refused_with_a_sentence() {
    let there = stream(1);
    let small = options(8, [2, 2], 2, Reset::After);
    let seen = episode(5, 12, true);
    let mut trainer = WorldTrainer::new(&there, ensemble(WorldOptions { rate: 2e-2, ..small }, 1)).unwrap();
    let losses: Vec<f64> = (0..40).map(|_| trainer.update(&[&seen]).unwrap().unwrap().change).collect();
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(mean(&losses[30..]) < mean(&losses[..5]) - 0.3, "{losses:?}");
    let held = there.device().budget().held() as usize;
    let planned = WorldTrainer::bytes(&small).unwrap();
    assert!(held < planned + planned / 4 && held > planned / 2, "{held} {planned}");
    assert!(trainer.update(&[&episode(1, 3, true)]).unwrap().is_none());
    let mut wrong = episode(1, 9, true);
    wrong.ticks[3].features.pop();
    let said = trainer.update(&[&wrong]).unwrap_err().to_string();
    assert!(said.contains("has not 64 features"), "{said}");
    drop(trainer);
    let said = |options: WorldOptions| {
        WorldTrainer::new(&there, Ensemble::new(options, 1).unwrap()).unwrap_err().to_string()
    };
    assert!(said(WorldOptions { hidden: 4097, ..small }).contains("4096 hidden numbers"));
    assert!(said(WorldOptions { window: usize::MAX / 2, ..small }).contains("lower 'world.hidden'"));
    there.device().budget().set_limit(planned as u64 / 2);
    assert!(said(small).contains("of the device's memory") && said(small).contains("lower 'world.hidden'"));
}
