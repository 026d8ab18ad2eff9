//! `foresight/rollout`: what an ensemble imagines under actions, tick by tick, in one launch;
//! `foresight/encode`: the same after ticks of a ring on the device that it looks back on first.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Device, Stream};
use gatework_lab::{Bench, Case, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work};

use super::Job;
use super::gru::{format, reset, schedule, scheduled, specs};
use crate::cuda::kernels::Beside;
use crate::cuda::{DeviceWorld, Team, WeightFormat};
use crate::random::Random;
use crate::state::{FEATURES, Features, Normaliser};
use crate::workloads::plain::PlainMember;
use crate::world::{ACTION, Ensemble, Path, States, Tick, WorldOptions};

/// Ticks of a run that the members have seen.
const SEEN: usize = 3;
/// Choices with a smaller margin may go the other way: what comes after them is not compared.
const MARGIN: f32 = 1e-3;
/// In place of what is not compared.
const NOT_COMPARED: u32 = u32::MAX;

#[derive(Clone, Copy)]
pub(super) enum Rollout {
    /// From states that the host gives.
    Imagine,
    /// From what ticks of a ring lead to.
    Encode,
}

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
        .with("history", 0)
        .with("blocks", 0)
}

fn after(mut case: Case, history: usize) -> Case {
    case.name = format!("{}-after-{history}", case.name);
    case.with("history", history)
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
    /// Before the ticks that the device looks back on.
    start: Ensemble,
    normaliser: Normaliser,
    /// Those ticks: features as they are, and actions.
    history: Vec<(Features, [f32; ACTION])>,
    /// After them.
    ensemble: Ensemble,
    /// All ticks, with features on one scale.
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
        let [before, past, ahead] = [SEEN, case.dimension("history"), case.dimension("ticks")]
            .map(|count| (0..count).map(|_| action()).collect::<Vec<[f32; ACTION]>>());
        let mut features = || -> Features {
            let numbers = inputs.normal(FEATURES);
            std::array::from_fn(|i| 10f64.powi(i as i32 % 5 - 2) * (f64::from(numbers[i]) + i as f64))
        };
        let (mut normaliser, mut seen) = (Normaliser::default(), Vec::new());
        for action in before {
            let features = normaliser.take(&features()).to_vec();
            seen.push(Tick { features, action, level: 0.0 });
        }
        seen.iter().for_each(|tick| ensemble.observe(tick));
        let (start, at_start) = (ensemble.clone(), normaliser.clone());
        let history: Vec<(Features, [f32; ACTION])> =
            past.into_iter().map(|action| (features(), action)).collect();
        for (raw, action) in &history {
            let tick = Tick { features: normaliser.take(raw).to_vec(), action: *action, level: 0.0 };
            ensemble.observe(&tick);
            seen.push(tick);
        }
        let states = match case.dimension("sampled") {
            0 => States::Expected,
            _ => States::Sampled(Random::new(seed, "imagined")),
        };
        Ok(Self { start, normaliser: at_start, history, ensemble, seen, actions: ahead, states })
    }

    /// The ensemble on a device, with what it is to look back on.
    fn on_device(&self, stream: &Stream, case: &Case) -> Result<DeviceWorld, RunError> {
        let places = self.history.len();
        let (format, schedule) = (format(case), schedule(case));
        let mut world =
            DeviceWorld::with_history(stream, &self.start, &self.normaliser, places, format, schedule)?;
        self.history.iter().try_for_each(|(features, action)| world.push(stream, features, action))?;
        Ok(world)
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
        self.plain_after(&self.ensemble, &self.seen, actions)
    }

    /// The same from where so many ticks led to.
    fn plain_after(&self, ensemble: &Ensemble, seen: &[Tick], actions: &[[f32; ACTION]]) -> Outputs {
        if let States::Sampled(_) = self.states {
            return self.outputs(&ensemble.paths(actions, &self.states));
        }
        let of_member = |parameters| {
            let mut member = PlainMember::new(parameters, *self.ensemble.options());
            seen.iter().for_each(|tick| member.observe(&tick.features, &tick.action));
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
        match self {
            Self::Imagine => "foresight/rollout",
            Self::Encode => "foresight/encode",
        }
    }

    fn summary(&self) -> &'static str {
        match self {
            Self::Imagine => {
                "losses, features and metrics that an ensemble imagines, tick by tick in one launch, its states sampled or not"
            }
            Self::Encode => {
                "ticks of a ring normalised and followed by an ensemble, which imagines from there, in one launch"
            }
        }
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        match self {
            Self::Imagine => [true, false]
                .map(|sampled| specs("rollout", Beside { sampled, encoded: false }))
                .into_iter()
                .flat_map(|specs| specs.into_iter().take(2))
                .collect(),
            Self::Encode => specs("rollout", Beside { sampled: true, encoded: true }),
        }
    }

    fn cases(&self) -> Vec<Case> {
        match self {
            Self::Imagine => vec![
                scheduled(before(sampled(case(2, 9, [3, 4], 3))), 2, Team::Cluster),
                case(1, 1, [1, 2], 2),
                case(5, 33, [8, 8], 4),
                sampled(case(7, 16, [5, 3], 6)),
                halved(before(case(3, 64, [8, 8], 3))),
                halved(sampled(case(5, 40, [32, 8], 4))),
            ],
            Self::Encode => vec![
                scheduled(after(before(sampled(case(2, 9, [3, 4], 2))), 3), 2, Team::Cluster),
                scheduled(after(before(sampled(case(2, 9, [3, 4], 2))), 3), 2, Team::Grid),
                scheduled(after(case(2, 13, [4, 3], 2), 1), 3, Team::Grid),
                after(case(1, 1, [1, 2], 1), 1),
                after(halved(case(5, 33, [8, 8], 2)), 7),
                after(case(2, 16, [5, 3], 1), 50),
            ],
        }
    }

    fn few(&self) -> usize {
        2
    }

    /// A launch that looks back leaves other states behind than it found: what it takes is not timed again
    /// and again.
    fn large(&self) -> Vec<Case> {
        if let Self::Encode = self {
            return Vec::new();
        }
        let members = [1, 3, 5, 7, 10].map(|members| sampled(halved(case(members, 256, [32, 8], 50))));
        let ticks = [10, 100].map(|ticks| sampled(halved(case(5, 256, [32, 8], ticks))));
        members.into_iter().chain(ticks).chain([sampled(case(5, 64, [8, 8], 50))]).collect()
    }

    fn tried(&self) -> Option<Case> {
        match self {
            Self::Imagine => Some(sampled(case(2, 17, [4, 4], 3))),
            Self::Encode => None,
        }
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let (stream, told) = (device.stream()?, Told::new(case, seed)?);
        let mut world = told.on_device(&stream, case)?;
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
        if !told.history.is_empty() {
            let (mut ensemble, seen) = (told.start.clone(), &told.seen[..told.seen.len() - 1]);
            seen[SEEN..].iter().for_each(|tick| ensemble.observe(tick));
            return Ok(("the last tick left out", told.plain_after(&ensemble, seen, &told.actions)));
        }
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
        let history = case.dimension("history") as u64;
        let posterior = (hidden + FEATURES as u64) * stochastic;
        let looked_back = history * members * (of_gru + posterior);
        let kept = if history > 0 { posterior } else { 0 };
        let weights = members * (of_gru + heads + kept);
        let bytes_of_weight = if format(case) == WeightFormat::Bf16 { 2 } else { 4 };
        let results = ticks * members * (4 * 8 + 4 * FEATURES as u64 + 8 * categories);
        let operations = 2 * (ticks * members * (of_gru + heads) + looked_back);
        let ring = history * (8 * FEATURES as u64 + 4 * ACTION as u64);
        Work { operations, bytes: bytes_of_weight * weights + results + ring }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Bench, RunError> {
        const SEED: u64 = 1;
        let stream = device.stream()?;
        let told = Rc::new(Told::new(case, SEED)?);
        let world = Rc::new(RefCell::new(told.on_device(&stream, case)?));
        let (timed, spoilt, seen) = (world.clone(), world.clone(), world);
        let (asked, on_cpu, shown, expected) = (told.clone(), told.clone(), told.clone(), told);
        let candidate = Side::new("one launch", move |stream: &Stream| {
            timed.borrow_mut().imagine(stream, &asked.actions, &asked.states)
        });
        let baseline =
            Side::new("the CPU's code, a core a member", move |_: &Stream| -> Result<(), RunError> {
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
        let bench = Bench::new(self.work(case), candidate, baseline).timing(Timing::Wall).shown_by(evidence);
        // Smaller ones are mostly barriers.
        if case.dimension("hidden") < 256 {
            return Ok(bench.expect_recorded(1.10, super::AS_BEFORE));
        }
        Ok(bench.expect_at_most(0.2, "a fifth of what the CPU takes, all members side by side"))
    }
}
