//! Rollouts against the CPU's.

use gatework_gpu::Stream;

use super::{numbers, stream};
use crate::cuda::{DeviceWorld, Residence, Schedule, Team, WeightFormat};
use crate::random::Random;
use crate::state::{FEATURES, Features, Normaliser};
use crate::world::{ACTION, Ensemble, Path, Reset, States, Tick, WorldOptions};

/// Choices with a smaller margin may go the other way.
const MARGIN: f32 = 1e-3;

fn options(members: usize, hidden: usize, [categories, classes]: [usize; 2], reset: Reset) -> WorldOptions {
    WorldOptions { members, hidden, categories, classes, reset, ..WorldOptions::default() }
}

/// An ensemble with biases that are not zero, after some ticks of a run.
fn ensemble(options: WorldOptions, format: WeightFormat, seed: u64) -> Ensemble {
    let mut ensemble = Ensemble::new(options, seed).unwrap();
    let mut random = Random::new(seed, "altered");
    ensemble.alter(|w| *w = format.rounded(1.5 * *w + 0.05 * random.normal() as f32));
    for _ in 0..3 {
        let features = numbers(&mut random, FEATURES);
        ensemble.observe(&Tick { features, action: action(&mut random), level: 0.0 });
    }
    ensemble
}

fn action(random: &mut Random) -> [f32; ACTION] {
    std::array::from_fn(|_| random.normal() as f32)
}

fn actions(seed: u64, ticks: usize) -> Vec<[f32; ACTION]> {
    let mut random = Random::new(seed, "actions");
    (0..ticks).map(|_| action(&mut random)).collect()
}

fn on_device(
    seed: u64,
    ensemble: &Ensemble,
    format: WeightFormat,
    schedule: Option<Schedule>,
    actions: &[[f32; ACTION]],
    states: &States,
) -> Vec<Path> {
    let stream = stream(seed);
    let mut world = DeviceWorld::new(&stream, ensemble, format, schedule).unwrap();
    world.imagine(&stream, actions, states).unwrap();
    world.paths(&stream).unwrap()
}

/// The largest difference of any number over the first so many ticks, relative to 1 or to its size.
fn apart(found: &Path, wanted: &Path, ticks: usize) -> f64 {
    let off = |found: f64, wanted: f64| {
        let off = (found - wanted).abs() / wanted.abs().max(1.0);
        if off.is_nan() { f64::INFINITY } else { off }
    };
    let changes = (0..2 * ticks).map(|i| off(found.changes[i / 2][i % 2], wanted.changes[i / 2][i % 2]));
    let norms = (0..ticks).map(|i| off(found.hidden_norms[i], wanted.hidden_norms[i]));
    let entropies = (0..ticks).map(|i| off(found.entropies[i], wanted.entropies[i]));
    let features =
        (0..FEATURES * ticks).map(|i| off(f64::from(found.features[i]), f64::from(wanted.features[i])));
    changes.chain(norms).chain(entropies).chain(features).fold(0.0, f64::max)
}

/// Compares sampled rollouts up to the first choice that goes the other way, which must have been close: its
/// margin is small on both sides. Returns how many choices were equal, and how many members parted.
fn follow(found: &[Path], wanted: &[Path], ticks: usize, categories: usize) -> [usize; 2] {
    let (mut equal, mut parted) = (0, 0);
    for (member, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(found.classes.len(), ticks * categories);
        let other = found.classes.iter().zip(&wanted.classes).position(|(found, wanted)| found != wanted);
        if let Some(at) = other {
            let margins = [found.margins[at], wanted.margins[at]];
            assert!(
                margins.iter().all(|margin| *margin <= MARGIN),
                "member {member}, choice {at}: {margins:?}"
            );
            parted += 1;
        }
        let together = other.unwrap_or(found.classes.len());
        equal += together;
        let whole = together / categories;
        let off = apart(found, wanted, whole);
        assert!(off < 1e-4, "member {member} over {whole} ticks: {off}");
        for (found, wanted) in found.margins.iter().zip(&wanted.margins).take(together) {
            assert!((found - wanted).abs() < MARGIN, "member {member}: {found} {wanted}");
        }
    }
    [equal, parted]
}

#[test]
fn expected_rollouts_match_cpu() {
    let shapes = [
        (1, 1, [1, 2], 3),
        (5, 33, [3, 5], 6),
        (7, 16, [8, 8], 4),
        (2, 64, [32, 8], 4),
        // More classes than a warp has lanes, more categories than a block has warps, one tick, two ticks.
        (1, 9, [2, 70], 1),
        (1, 5, [40, 2], 2),
    ];
    for (seed, (members, hidden, classes, ticks)) in (0u64..).zip(shapes) {
        for reset in [Reset::After, Reset::Before] {
            for format in [WeightFormat::F32, WeightFormat::Bf16] {
                let ensemble = ensemble(options(members, hidden, classes, reset), format, seed);
                let actions = actions(seed, ticks);
                let found = on_device(seed, &ensemble, format, None, &actions, &States::Expected);
                let wanted = ensemble.paths(&actions, &States::Expected);
                assert_eq!(found.len(), members);
                for (found, wanted) in found.iter().zip(&wanted) {
                    let off = apart(found, wanted, ticks);
                    assert!(off < 1e-4, "{members}x{hidden} {classes:?} {reset:?} {format:?}: {off}");
                }
            }
        }
    }
}

#[test]
fn sampled_states_are_the_cpus_wherever_the_choice_is_clear() {
    let (ticks, mut all, mut close) = (12, [0; 2], 0);
    for seed in 0..8 {
        let reset = if seed % 2 == 0 { Reset::After } else { Reset::Before };
        let classes = [[8, 8], [5, 3], [32, 8], [3, 45]][seed as usize % 4];
        let ensemble = ensemble(options(5, 24, classes, reset), WeightFormat::F32, seed);
        let (actions, states) = (actions(seed, ticks), States::Sampled(Random::new(seed, "imagined")));
        let found = on_device(seed, &ensemble, WeightFormat::F32, None, &actions, &states);
        let wanted = ensemble.paths(&actions, &states);
        let [equal, parted] = follow(&found, &wanted, ticks, classes[0]);
        close += wanted.iter().flat_map(|path| &path.margins).filter(|margin| **margin <= MARGIN).count();
        all = [all[0] + equal, all[1] + parted];
    }
    println!("{} choices are equal, {} members parted, {close} choices were close", all[0], all[1]);
    assert!(all[0] > 4000 && all[1] <= close, "{all:?} {close}");
}

#[test]
fn every_schedule_matches_cpu() {
    for reset in [Reset::After, Reset::Before] {
        let ensemble = ensemble(options(3, 13, [5, 4], reset), WeightFormat::F32, 2);
        let (actions, states) = (actions(2, 3), States::Sampled(Random::new(2, "imagined")));
        let wanted = ensemble.paths(&actions, &states);
        for team in [Team::Cluster, Team::Grid] {
            for residence in [Residence::Shared, Residence::Streamed] {
                for blocks in [1, 3, 8] {
                    let schedule = Schedule { blocks, team, residence };
                    let found = on_device(
                        blocks as u64,
                        &ensemble,
                        WeightFormat::F32,
                        Some(schedule),
                        &actions,
                        &states,
                    );
                    follow(&found, &wanted, 3, 5);
                }
            }
        }
    }
}

#[test]
fn other_numbers_actions_and_states_are_seen() {
    let ensemble = ensemble(options(2, 16, [8, 8], Reset::After), WeightFormat::F32, 1);
    let (first, second) = (actions(1, 5), actions(2, 5));
    let states = |seed| States::Sampled(Random::new(seed, "imagined"));
    let found = on_device(0, &ensemble, WeightFormat::F32, None, &first, &states(1));
    assert_ne!(found[0].classes, ensemble.paths(&first, &states(2))[0].classes);
    assert_ne!(found[0].classes, found[1].classes);
    let expected = on_device(0, &ensemble, WeightFormat::F32, None, &first, &States::Expected);
    assert!(apart(&expected[0], &ensemble.paths(&second, &States::Expected)[0], 5) > 1e-2);
    assert!(apart(&expected[0], &ensemble.paths(&first, &states(1))[0], 5) > 1e-2);
    assert!(expected[0].classes.is_empty() && expected[0].margins.is_empty());
}

#[test]
fn schedules_of_threads_change_no_bit_and_a_world_can_follow() {
    let mut ensemble = ensemble(options(2, 9, [3, 4], Reset::Before), WeightFormat::F32, 4);
    let (actions, states) = (actions(4, 3), States::Sampled(Random::new(4, "imagined")));
    let first = on_device(0, &ensemble, WeightFormat::F32, None, &actions, &states);
    for seed in 1..5 {
        assert_eq!(
            first,
            on_device(seed, &ensemble, WeightFormat::F32, None, &actions, &states),
            "seed {seed}"
        );
    }
    let stream = stream(0);
    let mut world = DeviceWorld::new(&stream, &ensemble, WeightFormat::F32, None).unwrap();
    ensemble.observe(&Tick { features: vec![0.3; FEATURES], action: actions[0], level: 0.0 });
    world.follow(&stream, &ensemble, &Normaliser::default()).unwrap();
    world.imagine(&stream, &actions, &states).unwrap();
    let found = world.paths(&stream).unwrap();
    assert_ne!(found, first);
    follow(&found, &ensemble.paths(&actions, &states), 3, 3);
}

#[test]
fn what_cannot_be_imagined_is_refused_with_a_sentence() {
    let stream = stream(0);
    let mut first = ensemble(options(1, 8, [2, 2], Reset::After), WeightFormat::F32, 1);
    let mut world = DeviceWorld::new(&stream, &first, WeightFormat::F32, None).unwrap();
    assert!(world.paths(&stream).unwrap_err().to_string().contains("nothing was imagined yet"));
    let refused = world.imagine(&stream, &[], &States::Expected).unwrap_err();
    assert!(refused.to_string().contains("one tick at least"));
    let other = ensemble(options(2, 8, [2, 2], Reset::After), WeightFormat::F32, 1);
    let refused = world.follow(&stream, &other, &Normaliser::default()).unwrap_err();
    assert!(refused.to_string().contains("other sizes"));
    first.alter(|w| *w = f32::INFINITY);
    let refused = DeviceWorld::new(&stream, &first, WeightFormat::F32, None).unwrap_err().to_string();
    assert!(refused.contains("weight 0 of member 0 is inf"), "{refused}");
    let large = Ensemble::new(options(1, 4, [1025, 4], Reset::After), 1).unwrap();
    let refused = DeviceWorld::new(&stream, &large, WeightFormat::F32, None).unwrap_err().to_string();
    assert!(refused.contains("4096 at most"), "{refused}");
}

/// Features of very different sizes, one of which never changes.
fn features(random: &mut Random) -> Features {
    std::array::from_fn(|i| {
        if i == 3 { 2.0 } else { 10f64.powi(i as i32 % 7 - 3) * (random.normal() + i as f64) }
    })
}

/// A world with a ring on a device, and the ensemble and the normaliser on the CPU that it is to keep up
/// with.
struct Followed {
    stream: Stream,
    world: DeviceWorld,
    ensemble: Ensemble,
    normaliser: Normaliser,
    random: Random,
}

impl Followed {
    fn new(seed: u64, ensemble: Ensemble, places: usize, schedule: Option<Schedule>) -> Self {
        let (stream, mut random) = (stream(seed), Random::new(seed, "ring"));
        let mut normaliser = Normaliser::default();
        normaliser.take(&features(&mut random));
        let format = WeightFormat::F32;
        let world =
            DeviceWorld::with_history(&stream, &ensemble, &normaliser, places, format, schedule).unwrap();
        Self { stream, world, ensemble, normaliser, random }
    }

    /// A tick of the run, as it comes.
    fn next(&mut self) -> (Features, [f32; ACTION]) {
        (features(&mut self.random), action(&mut self.random))
    }

    fn push(&mut self, (raw, action): &(Features, [f32; ACTION])) {
        self.world.push(&self.stream, raw, action).unwrap();
    }

    fn observe(&mut self, (raw, action): &(Features, [f32; ACTION])) {
        let features = self.normaliser.take(raw).to_vec();
        self.ensemble.observe(&Tick { features, action: *action, level: 0.0 });
    }

    /// So many ticks on both sides.
    fn see(&mut self, ticks: usize) {
        for _ in 0..ticks {
            let tick = self.next();
            self.push(&tick);
            self.observe(&tick);
        }
    }

    fn follow(&mut self) {
        self.world.follow(&self.stream, &self.ensemble, &self.normaliser).unwrap();
    }

    /// Imagines on both sides, and asserts that they agree.
    fn agree(&mut self, states: &States, told: &str) {
        let actions: Vec<[f32; ACTION]> = (0..3).map(|_| action(&mut self.random)).collect();
        self.world.imagine(&self.stream, &actions, states).unwrap_or_else(|error| panic!("{told}: {error}"));
        let found = self.world.paths(&self.stream).unwrap_or_else(|error| panic!("{told}: {error}"));
        let wanted = self.ensemble.paths(&actions, states);
        if *states != States::Expected {
            follow(&found, &wanted, actions.len(), self.ensemble.options().categories);
            return;
        }
        for (member, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let off = apart(found, wanted, actions.len());
            assert!(off < 1e-4, "{told}, member {member}: {off}");
        }
    }
}

#[test]
fn ticks_of_a_ring_are_followed_as_the_cpu_follows_them() {
    let shapes = [(1, 1, [1, 2]), (3, 21, [5, 4]), (2, 33, [8, 8])];
    for (seed, (members, hidden, classes)) in (0u64..).zip(shapes) {
        for (reset, team) in [(Reset::After, Team::Cluster), (Reset::Before, Team::Grid)] {
            let ensemble = ensemble(options(members, hidden, classes, reset), WeightFormat::F32, seed);
            let schedule = Schedule { blocks: 2, team, residence: Residence::Shared };
            let mut followed = Followed::new(seed, ensemble, 5, Some(schedule));
            // Nothing to look back on, then some ticks, then so many that the ring begins again.
            for (ticks, states) in [
                (0, States::Expected),
                (3, States::Expected),
                (5, States::Sampled(Random::new(seed, "imagined"))),
                (1, States::Expected),
            ] {
                followed.see(ticks);
                followed
                    .agree(&states, &format!("{members}x{hidden} {reset:?} {team:?} after {ticks} ticks"));
            }
        }
    }
}

/// The first step of a launch reads the states that its last step back replaces. With one tick to look back
/// on these are the same step, and a block that is ahead of its team must not replace what another has yet to
/// read.
#[test]
fn states_are_replaced_only_after_every_block_has_read_them() {
    for (reset, team) in [
        (Reset::After, Team::Cluster),
        (Reset::After, Team::Grid),
        (Reset::Before, Team::Cluster),
        (Reset::Before, Team::Grid),
    ] {
        let schedule = Schedule { blocks: 3, team, residence: Residence::Shared };
        for history in 1..=3 {
            for seed in 0..4 {
                let ensemble = ensemble(options(2, 13, [4, 3], reset), WeightFormat::F32, seed);
                let mut followed = Followed::new(seed, ensemble, history, Some(schedule));
                // The second launch shows which states the first left; the third, which action and which
                // normaliser.
                for ticks in [history, 0, 1] {
                    followed.see(ticks);
                    let told = format!("{reset:?} {team:?}, {ticks} of {history} ticks, seed {seed}");
                    followed.agree(&States::Expected, &told);
                }
            }
        }
    }
}

#[test]
fn a_world_that_follows_looks_back_on_no_tick_twice() {
    let ensemble = ensemble(options(2, 13, [4, 3], Reset::After), WeightFormat::F32, 5);
    let mut followed = Followed::new(5, ensemble, 3, None);
    // Both sides have seen these when the world takes over what the host made of them.
    followed.see(2);
    followed.follow();
    followed.agree(&States::Expected, "pushed and observed, then followed");
    // These only the host has seen; the normaliser has them too.
    for _ in 0..2 {
        let tick = followed.next();
        followed.observe(&tick);
    }
    followed.follow();
    followed.agree(&States::Expected, "observed, then followed");
    // All places are free again, and what is pushed into them is looked back on.
    followed.see(3);
    followed.agree(&States::Expected, "a full ring after all that");
    followed.see(1);
    followed.agree(&States::Expected, "one tick more");
}

#[test]
fn a_tick_more_is_seen_and_a_full_ring_is_refused() {
    let ensemble = ensemble(options(1, 8, [2, 3], Reset::After), WeightFormat::F32, 3);
    let (stream, actions, mut random) = (stream(0), actions(1, 2), Random::new(3, "ring"));
    let mut worlds = [1, 2].map(|places| {
        let normaliser = Normaliser::default();
        DeviceWorld::with_history(&stream, &ensemble, &normaliser, places, WeightFormat::F32, None).unwrap()
    });
    let ticks = [features(&mut random), features(&mut random)];
    for (world, ticks) in worlds.iter_mut().zip([&ticks[..1], &ticks[..]]) {
        ticks.iter().for_each(|tick| world.push(&stream, tick, &actions[0]).unwrap());
        world.imagine(&stream, &actions, &States::Expected).unwrap();
    }
    let [one, two] = worlds.each_ref().map(|world| world.paths(&stream).unwrap());
    assert!(apart(&one[0], &two[0], 2) > 1e-4);
    worlds[0].push(&stream, &ticks[0], &actions[0]).unwrap();
    let refused = worlds[0].push(&stream, &ticks[0], &actions[0]).unwrap_err().to_string();
    assert!(refused.contains("1 ticks wait in a ring of 1 places"), "{refused}");
    let mut none = DeviceWorld::new(&stream, &ensemble, WeightFormat::F32, None).unwrap();
    assert!(none.push(&stream, &ticks[0], &actions[0]).is_err());
}
