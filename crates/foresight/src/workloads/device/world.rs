//! `foresight/world-step`: updates of the world model, backward through time for all members, against formulas
//! in double precision whose derivatives are taken by a tape.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Device, Stream};
use gatework_lab::{
    Bench, Bounds, Case, ErrorBudget, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work,
};

use super::Job;
use crate::cuda::WorldTrainer;
use crate::cuda::kernels::learn;
use crate::random::Random;
use crate::state::FEATURES;
use crate::workloads::lesson::{self, Through};
use crate::world::inside::{BETAS, CLIP, corrections};
use crate::world::{ACTION, Ensemble, Episode, Reset, Tick, WorldOptions};

#[derive(Clone, Copy)]
pub(super) struct WorldStep;

/// Updates that are compared.
const UPDATES: usize = 2;

fn case(hidden: usize, [categories, classes]: [usize; 2], members: usize, reset: Reset) -> Case {
    let (name, before) = match reset {
        Reset::After => ("after", 0),
        Reset::Before => ("before", 1),
    };
    Case::new(format!("{members}x{hidden}-{categories}x{classes}-{name}"))
        .with("hidden", hidden)
        .with("categories", categories)
        .with("classes", classes)
        .with("members", members)
        .with("before", before)
        .with("window", 3)
        .with("batch", 2)
}

fn options(case: &Case) -> WorldOptions {
    let [members, hidden, categories, classes, window, batch] =
        ["members", "hidden", "categories", "classes", "window", "batch"].map(|name| case.dimension(name));
    let reset = if case.dimension("before") == 1 { Reset::Before } else { Reset::After };
    WorldOptions { members, hidden, categories, classes, reset, window, batch, ..WorldOptions::default() }
}

/// A run whose features and losses are noise.
fn episode(case: &Case, seed: u64) -> Result<Episode, RunError> {
    let ticks = 2 * case.dimension("window") + 1;
    let mut inputs = Inputs::new(seed);
    let (features, actions) = (inputs.normal(ticks * FEATURES), inputs.normal(ticks * ACTION));
    let levels = inputs.normal(ticks + 1);
    let mut episode = Episode { end: levels.last().copied(), ..Episode::default() };
    for ((features, action), level) in features.chunks(FEATURES).zip(actions.chunks(ACTION)).zip(levels) {
        let (features, action) = (features.to_vec(), action.try_into()?);
        episode.ticks.push(Tick { features, action, level });
    }
    Ok(episode)
}

/// What members have learnt, and the losses of their last update.
fn outputs(ensemble: &Ensemble, losses: Vec<f64>) -> Outputs {
    let all = |part: usize| ensemble.learnt().flat_map(|arrays| arrays[part].to_vec()).collect::<Vec<f32>>();
    Outputs::new().with("parameters", all(0)).with("moments", all(1)).with("losses", losses)
}

/// Whether a tape of it would be too long: the CPU's code, which finite differences hold, follows it instead.
fn is_large(case: &Case) -> bool {
    case.dimension("window") * case.dimension("hidden") > 256
}

/// After so many updates on the CPU.
fn on_cpu(mut ensemble: Ensemble, episode: &Episode, updates: usize) -> Result<Outputs, RunError> {
    let mut last = Vec::new();
    for _ in 0..updates {
        let losses = ensemble.update(&[episode]).ok_or("no window is long enough")?;
        last = vec![losses.features, losses.change, losses.end, losses.divergence];
    }
    Ok(outputs(&ensemble, last))
}

/// What [`outputs`] are in plain loops and double precision.
fn plain(options: WorldOptions, episode: &Episode, seed: u64, through: Through) -> Result<Outputs, RunError> {
    let mut ensemble = Ensemble::new(options, seed)?;
    let double = |numbers: &[f32]| numbers.iter().copied().map(f64::from).collect::<Vec<f64>>();
    let mut members: Vec<[Vec<f64>; 3]> = ensemble.learnt().map(|arrays| arrays.map(double)).collect();
    let mut last = [0.0; 4];
    for _ in 0..UPDATES {
        let lessons = ensemble.lessons(&[episode]).ok_or("no window is long enough")?;
        let draws = ensemble.take_numbers((options.window * options.batch * options.categories) as u64);
        let [beta1, beta2] = BETAS.map(f64::from);
        let [of_first, of_second] = corrections(ensemble.updates()).map(f64::from);
        last = [0.0; 4];
        for ((member, slices), base) in members.iter_mut().zip(&lessons).zip(draws) {
            let [parameters, first, second] = member;
            let draws = Random::from_base(base);
            let (losses, gradient) = lesson::learn(parameters, &options, slices, &draws, through);
            last.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += loss / options.members as f64);
            let length = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            let moments = first.iter_mut().zip(second);
            for ((w, g), (m, v)) in parameters.iter_mut().zip(gradient).zip(moments) {
                let g = g * CLIP / length.max(CLIP);
                *m = beta1 * *m + (1.0 - beta1) * g;
                *v = beta2 * *v + (1.0 - beta2) * g * g;
                *w -= options.rate * (*m * of_first) / ((*v * of_second).sqrt() + 1e-8);
            }
        }
    }
    let all = |part: usize| {
        members.iter().flat_map(|member| member[part].iter().map(|x| *x as f32)).collect::<Vec<f32>>()
    };
    Ok(Outputs::new().with("parameters", all(0)).with("moments", all(1)).with("losses", last.to_vec()))
}

impl Job for WorldStep {
    fn name(&self) -> &'static str {
        "foresight/world-step"
    }

    fn summary(&self) -> &'static str {
        "updates of the world model: backward through time for all members, and their steps"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let spec =
            |reset| KernelSpec::new(learn(reset).source()).entries(["learn", "gradients"]).threads(256);
        [Reset::After, Reset::Before].map(spec).into()
    }

    fn cases(&self) -> Vec<Case> {
        vec![
            case(5, [2, 3], 1, Reset::After),
            case(5, [2, 3], 1, Reset::Before),
            case(33, [3, 5], 2, Reset::After),
            case(1, [1, 2], 5, Reset::Before),
        ]
    }

    fn few(&self) -> usize {
        2
    }

    fn large(&self) -> Vec<Case> {
        [64, 256]
            .map(|hidden| case(hidden, [32, 8], 5, Reset::After).with("window", 12).with("batch", 4))
            .into()
    }

    fn tried(&self) -> Option<Case> {
        Some(case(5, [2, 3], 1, Reset::After))
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let (stream, episode) = (device.stream()?, episode(case, seed)?);
        let mut trainer = WorldTrainer::new(&stream, Ensemble::new(options(case), seed)?)?;
        let mut last = Vec::new();
        for _ in 0..UPDATES {
            let losses = trainer.update(&[&episode])?.ok_or("no window is long enough")?;
            last = vec![losses.features, losses.change, losses.end, losses.divergence];
        }
        Ok(outputs(trainer.ensemble()?, last))
    }

    fn reference(&self, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let episode = episode(case, seed)?;
        if is_large(case) {
            return on_cpu(Ensemble::new(options(case), seed)?, &episode, UPDATES);
        }
        plain(options(case), &episode, seed, Through::AllTicks)
    }

    /// Relative to the root mean square 1e-4; a single parameter whose gradient is next to nothing may be
    /// stepped by another part of the rate. Among thousands of draws one may lie between two classes.
    fn within(&self, case: &Case) -> [f64; 2] {
        if is_large(case) { [0.05, 0.1] } else { [1e-4, 1e-3] }
    }

    fn mistaken(&self, case: &Case, seed: u64) -> Result<(&'static str, Outputs), RunError> {
        let (right, episode) = (options(case), episode(case, seed)?);
        if is_large(case) {
            let reset = if right.reset == Reset::After { Reset::Before } else { Reset::After };
            let other = Ensemble::new(WorldOptions { reset, ..right }, seed)?;
            return Ok(("the reset gate in the other place", on_cpu(other, &episode, UPDATES)?));
        }
        let wrong = plain(right, &episode, seed, Through::OneTick)?;
        Ok(("derivatives that end at the tick before", wrong))
    }

    /// Forward and twice that backward; parameters are read by every window in every tick, from the cache.
    fn work(&self, case: &Case) -> Work {
        let options = options(case);
        let parameters = (options.bytes() / 12) as u64;
        let rows = (options.window * options.batch) as u64;
        Work { operations: 6 * parameters * rows, bytes: 4 * 9 * parameters }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Bench, RunError> {
        const SEED: u64 = 1;
        let (stream, episode) = (device.stream()?, Rc::new(episode(case, SEED)?));
        let start = Ensemble::new(options(case), SEED)?;
        let begun = start.clone();
        let job = Rc::new(RefCell::new(WorldTrainer::new(&stream, start.clone())?));
        let (timed, spoilt, seen) = (job.clone(), job.clone(), job);
        let (on_device, here, wanted) = (episode.clone(), episode.clone(), episode);
        let candidate = Side::new("on the device", move |_: &Stream| -> crate::Result<()> {
            timed.borrow_mut().update(&[&on_device]).map(drop)
        });
        let mut ensemble = start.clone();
        let baseline = Side::new("on the CPU", move |_: &Stream| -> Result<(), RunError> {
            ensemble.update(&[&here]).map(drop).ok_or_else(|| "no window is long enough".into())
        });
        let evidence = Evidence::new(
            // Steps of Adam make much of little differences.
            ErrorBudget::Bounded(Bounds { relative_frobenius: 0.05, max_abs: 0.1, mean_bias: 0.05 }),
            move |stream| {
                *spoilt.borrow_mut() = WorldTrainer::new(stream, start.clone())?;
                Ok(())
            },
            move |_| {
                let mut trainer = seen.borrow_mut();
                let parameters = trainer.ensemble()?.parameters().flatten().copied();
                Ok(Outputs::new().with("parameters", parameters.collect::<Vec<f32>>()))
            },
            move |updates| {
                let found = on_cpu(begun.clone(), &wanted, updates as usize)?;
                let parameters = found.get("parameters").ok_or("there are no parameters")?;
                Ok(Outputs::new().with("parameters", parameters.clone()))
            },
        );
        stream.synchronize()?;
        Ok(Bench::new(self.work(case), candidate, baseline)
            .timing(Timing::Wall)
            .expect_recorded(1.10, super::AS_BEFORE)
            .shown_by(evidence))
    }
}
