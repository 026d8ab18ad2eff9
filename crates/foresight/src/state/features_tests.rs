//! Each feature reacts to what it names.

use super::*;
use crate::optimiser::Decay;

/// A made-up run, one step of which can be changed.
#[derive(Clone)]
struct Scene {
    losses: Vec<f64>,
    probes: Vec<Option<f64>>,
    groups: [Sums; 4],
    noise_scale: f64,
    schedule: Schedule,
    rate_factor: f64,
    first_step: u64,
    /// Applied to the statistics of the last step alone.
    last: fn(&mut Statistics),
}

fn sums(scale: f64) -> Sums {
    Sums {
        gradient: 4.0 * scale,
        weight: 100.0 * scale,
        update: 0.01 * scale,
        along: 0.002 * scale,
        before: 0.01 * scale,
        first_moment: 2.0 * scale,
        second_moment: 8.0 * scale,
        parameters: 50.0,
    }
}

impl Default for Scene {
    fn default() -> Self {
        let wave = |i: usize| 1.0 + 0.05 * ((i * 7 % 11) as f64 - 5.0) / 5.0;
        Self {
            losses: (0..100).map(|i| wave(i) * (-0.002 * i as f64).exp()).collect(),
            probes: (0..100).map(|i| (i >= 10).then_some(1.2 - 0.1 * (i / 25) as f64)).collect(),
            groups: [sums(1.0), sums(2.0), sums(3.0), sums(4.0)],
            noise_scale: 50.0,
            schedule: Schedule { peak: 0.01, warmup: 0, decay: Decay::Linear, decay_share: 0.2, steps: 1000 },
            rate_factor: 1.0,
            first_step: 0,
            last: |_| (),
        }
    }
}

impl Scene {
    fn features(&self) -> Features {
        let mut tracker = StateTracker::default();
        let mut found = [0.0; FEATURES];
        for (i, (&loss, &probe)) in self.losses.iter().zip(&self.probes).enumerate() {
            let groups = self.groups.to_vec();
            let mut statistics = Statistics { groups, noise_scale: self.noise_scale };
            // The gradient's length wavers as the loss does.
            statistics.groups.iter_mut().for_each(|sums| sums.gradient *= 1.0 + 0.1 * (i % 3) as f64);
            if i + 1 == self.losses.len() {
                (self.last)(&mut statistics);
            }
            let step = self.first_step + i as u64;
            let rate = self.rate_factor * self.schedule.rate(step);
            let schedule = &self.schedule;
            tracker.take_loss(loss);
            found = tracker.observe(&Observation { step, statistics: &statistics, probe, schedule, rate });
        }
        found
    }
}

/// The features that differ between two scenes.
fn moved(change: impl Fn(&mut Scene)) -> (Vec<usize>, Features, Features) {
    let before = Scene::default().features();
    let mut scene = Scene::default();
    change(&mut scene);
    let after = scene.features();
    let moved = (0..FEATURES).filter(|&i| (before[i] - after[i]).abs() > 1e-9).collect();
    (moved, before, after)
}

#[test]
fn all_have_names_of_their_own_and_are_finite() {
    let features = Scene::default().features();
    assert!(features.iter().all(|x| x.is_finite()), "{features:?}");
    let names: std::collections::BTreeSet<_> = NAMES.iter().collect();
    assert_eq!(names.len(), FEATURES);
}

#[test]
fn the_level_of_the_loss_moves_levels_and_not_trends() {
    let (found, before, after) = moved(|scene| scene.losses.iter_mut().for_each(|loss| *loss *= 2.0));
    // The gap to the probe loss moves, too.
    assert_eq!(found, [0, 1, 2, 3, 17]);
    assert!((after[0] - before[0] - 2f64.ln()).abs() < 1e-12);
}

#[test]
fn a_trend_moves_slopes_and_averages_apart() {
    let (found, before, after) = moved(|scene| {
        scene.losses.iter_mut().enumerate().for_each(|(i, loss)| *loss *= (-0.01 * i as f64).exp());
    });
    for i in [4, 5, 6, 7] {
        assert!(found.contains(&i) && after[i] < before[i], "{}", NAMES[i]);
    }
    assert!(found.contains(&13) && !found.contains(&20));
}

#[test]
fn noise_moves_deviations() {
    let (_, before, after) = moved(|scene| {
        scene
            .losses
            .iter_mut()
            .enumerate()
            .for_each(|(i, loss)| *loss *= if i % 2 == 0 { 1.2 } else { 0.85 });
    });
    assert!(after[8] > 1.5 * before[8] && after[9] > 1.5 * before[9]);
    assert!(after[10] < before[10], "a loss that alternates is anticorrelated");
}

#[test]
fn a_spike_moves_height_and_skewness() {
    let (_, before, after) = moved(|scene| scene.losses[80] *= 3.0);
    assert!(after[12] > before[12] + 0.5 && after[15] > before[15] + 1.0);
}

#[test]
fn getting_worse_moves_the_distance_to_the_best() {
    let (_, before, after) = moved(|scene| scene.losses[70..].iter_mut().for_each(|loss| *loss *= 1.5));
    assert!(after[11] > before[11] + 0.1 && after[14] > before[14]);
}

#[test]
fn probes_move_their_four_features_alone() {
    let (found, before, after) = moved(|scene| {
        scene.probes[90..].iter_mut().flatten().for_each(|probe| *probe *= 1.3);
    });
    assert_eq!(found, [16, 17, 18, 19]);
    assert!(after[19] > before[19] && after[18] > 0.0);
}

#[test]
fn every_feature_of_a_band_reacts_to_its_sums_alone() {
    for band in 0..BANDS {
        let at = |feature: usize| FIRST_OF_BANDS + band * OF_BAND + feature;
        let change = |change: fn(&mut Sums)| moved(move |scene| change(&mut scene.groups[band])).0;
        let only_in = |found: &[usize], wanted: &[usize]| {
            wanted
                .iter()
                .for_each(|&feature| assert!(found.contains(&at(feature)), "{}", NAMES[at(feature)]));
            let others = (FIRST_OF_BANDS..FIRST_OF_WHOLE).filter(|i| !(at(0)..at(OF_BAND)).contains(i));
            others
                .filter(|i| found.contains(i))
                .for_each(|i| assert!(NAMES[i].contains("share"), "{}", NAMES[i]));
        };
        let gradient = change(|sums| sums.gradient *= 4.0);
        only_in(&gradient, &[0, 5, 7]);
        assert!(gradient.contains(&52), "the whole gradient");
        only_in(&change(|sums| sums.weight *= 4.0), &[1]);
        only_in(&change(|sums| sums.update *= 4.0), &[2, 4]);
        only_in(&change(|sums| sums.along *= -1.0), &[4]);
        only_in(&change(|sums| sums.first_moment *= 4.0), &[5, 6]);
        only_in(&change(|sums| sums.second_moment *= 4.0), &[6]);
    }
    let (found, _, after) = moved(|scene| {
        scene.last = |statistics| statistics.groups.iter_mut().for_each(|sums| sums.weight *= 2.0);
    });
    for band in 0..BANDS {
        let grown = FIRST_OF_BANDS + band * OF_BAND + 3;
        assert!(found.contains(&grown) && after[grown] > 0.0);
    }
}

#[test]
fn a_frozen_band_keeps_what_it_had() {
    let last = |statistics: &mut Statistics| statistics.groups[0] = Sums::default();
    let mut scene = Scene { last, ..Scene::default() };
    let frozen = scene.features();
    scene.losses.pop();
    scene.last = |_| ();
    let before = scene.features();
    let band = FIRST_OF_BANDS..FIRST_OF_BANDS + OF_BAND;
    assert_eq!(frozen[band.clone()], before[band.clone()]);
    assert_ne!(Scene::default().features()[band.clone()], before[band]);
}

#[test]
fn the_whole_gradient_and_its_noise_have_features() {
    let (_, before, after) = moved(|scene| {
        scene.last = |statistics| statistics.groups.iter_mut().for_each(|sums| sums.gradient *= 100.0);
    });
    for i in [52, 53, 54] {
        assert!(after[i] > before[i], "{}", NAMES[i]);
    }
    let (found, before, after) = moved(|scene| scene.noise_scale *= 5.0);
    assert_eq!(found, [57, 58]);
    assert!(after[57] > before[57]);
    let (found, before, after) = moved(|scene| scene.groups.iter_mut().for_each(|sums| sums.along *= 3.0));
    assert!(found.contains(&55) && found.contains(&56) && after[56] > before[56]);
    let (found, ..) = moved(|scene| scene.groups.iter_mut().for_each(|sums| sums.update *= 3.0));
    assert!(found.contains(&63));
}

#[test]
fn the_schedule_moves_its_features_alone() {
    let (found, ..) = moved(|scene| scene.rate_factor = 0.5);
    assert_eq!(found, [59, 63], "the rate that was really taken");
    let (found, before, after) = moved(|scene| scene.first_step = 300);
    assert!([60, 61, 62].iter().all(|i| found.contains(i)), "{found:?}");
    assert!(after[60] > before[60] && after[61] < before[61] && after[62] < before[62]);
}

#[test]
fn numbers_that_are_none_do_not_spread() {
    let mut scene = Scene::default();
    scene.losses[99] = f64::NAN;
    scene.noise_scale = f64::INFINITY;
    assert!(scene.features().iter().all(|x| x.is_finite()));
    scene.losses[98] = f64::INFINITY;
    assert!(scene.features().iter().all(|x| x.is_finite()));
}

#[test]
fn losses_between_looks_count_and_averages_fade_by_steps() {
    let statistics = Statistics { groups: Scene::default().groups.to_vec(), noise_scale: 50.0 };
    let schedule = Scene::default().schedule;
    let look = |every: u64| {
        let mut tracker = StateTracker::default();
        let mut found = [0.0; FEATURES];
        for (step, &loss) in (0u64..).zip(&Scene::default().losses) {
            tracker.take_loss(loss);
            if (step + 1).is_multiple_of(every) {
                let rate = schedule.rate(step);
                let (statistics, schedule) = (&statistics, &schedule);
                found = tracker.observe(&Observation { step, statistics, probe: None, schedule, rate });
            }
        }
        found
    };
    // With statistics that stay, how often one looks makes no difference.
    let (often, rarely) = (look(1), look(10));
    for i in 0..FEATURES {
        assert!((often[i] - rarely[i]).abs() < 1e-9, "{}: {} {}", NAMES[i], often[i], rarely[i]);
    }
}
