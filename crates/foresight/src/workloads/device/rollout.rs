//! `foresight/rollout`: what an ensemble imagines under actions, tick by tick, in one launch.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Device, Stream};
use gatework_lab::{Bench, Case, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work};

use super::Job;
use super::gru::{format, reset, schedule, scheduled, specs};
use crate::cuda::{DeviceWorld, Team, WeightFormat};
use crate::random::Random;
use crate::state::FEATURES;
use crate::workloads::plain::PlainMember;
use crate::world::{ACTION, Ensemble, Path, States, Tick, WorldOptions};

/// Ticks of a run that the members have seen.
const SEEN: usize = 3;
/// Choices with a smaller margin may go the other way: what comes after them is not compared.
const MARGIN: f32 = 1e-3;
/// In place of what is not compared.
const NOT_COMPARED: u32 = u32::MAX;

#[derive(Clone, Copy)]
pub(super) struct Rollout;

fn case(members: usize, hidden: usize, [categories, classes]: [usize; 2], ticks: usize) -> Case {
    Case::new(format!("{ticks}x{members}x{hidden}-{categories}x{classes}"))
        .with("members", members)
        .with("hidden", hidden)
        .with("categories", categories)
        .with("classes", classes)
        .with("ticks", ticks)
        .with("reset_before", 0)
        .with("bf16", 0)
        .with("sampled", 0)
        .with("blocks", 0)
}

fn before(mut case: Case) -> Case {
    case.name += "-before";
    case.with("reset_before", 1)
}

fn halved(mut case: Case) -> Case {
    case.name += "-bf16";
    case.with("bf16", 1)
}

fn sampled(mut case: Case) -> Case {
    case.name += "-sampled";
    case.with("sampled", 1)
}

/// An ensemble in the middle of a run, and what it is asked.
struct Told {
    ensemble: Ensemble,
    seen: Vec<Tick>,
    actions: Vec<[f32; ACTION]>,
    states: States,
}

impl Told {
    fn new(case: &Case, seed: u64) -> Result<Self, RunError> {
        let [members, hidden, categories, classes] =
            ["members", "hidden", "categories", "classes"].map(|name| case.dimension(name));
        let reset = reset(case);
        let options = WorldOptions { members, hidden, categories, classes, reset, ..WorldOptions::default() };
        let mut ensemble = Ensemble::new(options, seed)?;
        let (mut inputs, mut random) = (Inputs::new(seed), Random::new(seed, "biases"));
        // Biases begin at zero, which would hide what is done with them.
        ensemble.alter(|w| *w = format(case).rounded(*w + 0.05 * random.normal() as f32));
        let mut action = || -> [f32; ACTION] {
            let numbers = inputs.normal(ACTION);
            std::array::from_fn(|i| numbers[i])
        };
        let (seen, actions): (Vec<_>, Vec<_>) =
            ((0..SEEN).map(|_| action()).collect(), (0..case.dimension("ticks")).map(|_| action()).collect());
        let seen: Vec<Tick> = seen
            .into_iter()
            .map(|action| Tick { features: inputs.normal(FEATURES), action, level: 0.0 })
            .collect();
        seen.iter().for_each(|tick| ensemble.observe(tick));
        let states = match case.dimension("sampled") {
            0 => States::Expected,
            _ => States::Sampled(Random::new(seed, "imagined")),
        };
        Ok(Self { ensemble, seen, actions, states })
    }

    /// Ticks of every member up to the first choice that is close on the CPU.
    fn compared(&self) -> Vec<usize> {
        let categories = self.ensemble.options().categories;
        let clear = |path: &Path| {
            let close = path.margins.iter().position(|margin| *margin <= MARGIN);
            close.map_or(self.actions.len(), |at| at / categories)
        };
        self.ensemble.paths(&self.actions, &self.states).iter().map(clear).collect()
    }

    /// Numbers of all members over the ticks that are compared, zeros for the others.
    fn outputs(&self, paths: &[Path]) -> Outputs {
        let categories = self.ensemble.options().categories;
        let (mut changes, mut metrics, mut features, mut classes) = (vec![], vec![], vec![], vec![]);
        for (path, compared) in paths.iter().zip(self.compared()) {
            for tick in 0..self.actions.len() {
                let told = tick < compared;
                let number = |x: f64| if told { x } else { 0.0 };
                changes.extend(path.changes[tick].map(number));
                metrics.extend([path.hidden_norms[tick], path.entropies[tick]].map(number));
                let of_tick = &path.features[tick * FEATURES..(tick + 1) * FEATURES];
                features.extend(of_tick.iter().map(|x| number(f64::from(*x))));
                if let States::Sampled(_) = self.states {
                    let of_tick = &path.classes[tick * categories..(tick + 1) * categories];
                    classes.extend(of_tick.iter().map(|class| if told { *class } else { NOT_COMPARED }));
                }
            }
        }
        let outputs =
            Outputs::new().with("changes", changes).with("metrics", metrics).with("features", features);
        if classes.is_empty() { outputs } else { outputs.with("classes", classes) }
    }

    /// In double precision; sampled states are the CPU's.
    fn plain(&self, actions: &[[f32; ACTION]]) -> Outputs {
        if let States::Sampled(_) = self.states {
            return self.outputs(&self.ensemble.paths(actions, &self.states));
        }
        let of_member = |parameters| {
            let mut member = PlainMember::new(parameters, *self.ensemble.options());
            self.seen.iter().for_each(|tick| member.observe(&tick.features, &tick.action));
            let (mut path, mut sum) = (Path::default(), [0.0; 2]);
            for action in actions {
                let tick = member.imagine_all(action);
                sum = [sum[0] + tick.change[0], sum[1] + tick.change[1]];
                path.changes.push(sum);
                path.hidden_norms.push(tick.norm);
                path.entropies.push(tick.entropy);
                path.features.extend(tick.features.iter().map(|x| *x as f32));
            }
            path
        };
        self.outputs(&self.ensemble.parameters().map(of_member).collect::<Vec<Path>>())
    }
}

impl Job for Rollout {
    fn name(&self) -> &'static str {
        "foresight/rollout"
    }

    fn summary(&self) -> &'static str {
        "losses, features and metrics that an ensemble imagines, tick by tick in one launch, its states sampled or not"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let mut kernels = specs("rollout", true);
        kernels.extend(specs("rollout", false).into_iter().take(1));
        kernels
    }

    fn cases(&self) -> Vec<Case> {
        vec![
            scheduled(before(sampled(case(2, 9, [3, 4], 3))), 2, Team::Cluster),
            scheduled(before(sampled(case(2, 9, [3, 4], 3))), 2, Team::Grid),
            case(1, 1, [1, 2], 2),
            case(5, 33, [8, 8], 4),
            sampled(case(7, 16, [5, 3], 6)),
            halved(before(case(3, 64, [8, 8], 3))),
            halved(sampled(case(5, 40, [32, 8], 4))),
        ]
    }

    fn few(&self) -> usize {
        2
    }

    fn large(&self) -> Vec<Case> {
        let members = [1, 3, 5, 7, 10].map(|members| sampled(halved(case(members, 256, [32, 8], 50))));
        let ticks = [10, 100].map(|ticks| sampled(halved(case(5, 256, [32, 8], ticks))));
        members.into_iter().chain(ticks).chain([sampled(case(5, 64, [8, 8], 50))]).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let (stream, told) = (device.stream()?, Told::new(case, seed)?);
        let mut world = DeviceWorld::new(&stream, &told.ensemble, format(case), schedule(case))?;
        world.imagine(&stream, &told.actions, &told.states)?;
        Ok(told.outputs(&world.paths(&stream)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let told = Told::new(case, seed)?;
        Ok(told.plain(&told.actions))
    }

    fn within(&self, _: &Case) -> [f64; 2] {
        [5e-5, 5e-4]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> Result<(&'static str, Outputs), RunError> {
        let told = Told::new(case, seed)?;
        let late: Vec<[f32; ACTION]> =
            told.actions[..1].iter().chain(&told.actions).take(told.actions.len()).copied().collect();
        Ok(("every action a tick late", told.plain(&late)))
    }

    fn work(&self, case: &Case) -> Work {
        let [members, hidden, ticks, categories, classes] =
            ["members", "hidden", "ticks", "categories", "classes"].map(|name| case.dimension(name) as u64);
        let stochastic = categories * classes;
        let of_gru = 3 * hidden * (stochastic + ACTION as u64 + hidden);
        let heads = hidden * stochastic + (FEATURES as u64 + 2) * (hidden + stochastic);
        let weights = members * (of_gru + heads);
        let bytes_of_weight = if format(case) == WeightFormat::Bf16 { 2 } else { 4 };
        let results = ticks * members * (4 * 8 + 4 * FEATURES as u64 + 8 * categories);
        Work { operations: 2 * ticks * weights, bytes: bytes_of_weight * weights + results }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Bench, RunError> {
        const SEED: u64 = 1;
        let stream = device.stream()?;
        let told = Rc::new(Told::new(case, SEED)?);
        let world = DeviceWorld::new(&stream, &told.ensemble, format(case), schedule(case))?;
        let world = Rc::new(RefCell::new(world));
        let (timed, spoilt, seen) = (world.clone(), world.clone(), world);
        let (asked, on_cpu, shown, expected) = (told.clone(), told.clone(), told.clone(), told);
        let candidate = Side::new("one launch", move |stream: &Stream| {
            timed.borrow_mut().imagine(stream, &asked.actions, &asked.states)
        });
        let baseline = Side::new("the CPU's code on one core", move |_: &Stream| -> Result<(), RunError> {
            std::hint::black_box(on_cpu.ensemble.paths(&on_cpu.actions, &on_cpu.states));
            Ok(())
        });
        let evidence = Evidence::new(
            gatework_lab::Workload::budget(&super::OnDevice { job: *self, cases: super::Cases::All }, case),
            move |_| {
                spoilt.borrow_mut().forget();
                Ok(())
            },
            move |stream| Ok(shown.outputs(&seen.borrow().paths(stream)?)),
            move |_| Ok(expected.plain(&expected.actions)),
        );
        stream.synchronize()?;
        let why = "five times the CPU's best code on sixteen cores, of which this is one";
        let bench = Bench::new(self.work(case), candidate, baseline).timing(Timing::Wall);
        Ok(bench.shown_by(evidence).expect_at_most(0.0125, why))
    }
}
