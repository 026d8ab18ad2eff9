//! Trains the runs that forecasts are studied on, and writes their loss curves: `cargo run --release -p
//! gatework-foresight --example forecast_runs -- data/mnist > results/foresight/forecast-runs.csv`.
//!
//! Learnt from: digits, and made-up tasks (clusters, teachers, spirals, spoilt digits), at two widths, around
//! three rates and with two schedules. Never learnt from: other widths, other rates, another schedule, noisy
//! XOR, MNIST, and made-up tasks of other kinds (rings, checkerboards, waves, parities, heavy tails). Each
//! line is the group, the task, what was set, and ln of the training loss in thousandths, as means over a
//! hundred equal stretches of the run. A number after the folder replaces the first seed of the runs that are
//! forecast.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::data::{Data, Examples, Splits};
use gatework_foresight::random::Random;
use gatework_foresight::run::Run;
use gatework_foresight::world::Replay;
use gatework_foresight::{Error, Result};

/// Points of a stored curve.
const POINTS: usize = 100;
/// Made-up tasks, and runs of each.
const TASKS: u64 = 48;
const RUNS_OF_TASK: u64 = 4;

const WIDTHS: [u32; 2] = [32, 64];
const RATES: [f64; 3] = [2e-3, 4e-3, 8e-3];
const DECAYS: [&str; 2] = ["linear", "constant"];

/// Seeds of the runs that are forecast begin here; those below were looked at while the head was designed.
const FRESH: u64 = 1000;
/// Runs of each shift.
const OF_SHIFT: u64 = 150;
/// Tasks of other kinds, and runs of each.
const OTHER_TASKS: u64 = 75;
const RUNS_OF_OTHER: u64 = 2;

/// Where a group's settings are drawn from.
struct Group {
    name: &'static str,
    widths: &'static [u32],
    rates: &'static [f64],
    decays: &'static [&'static str],
}

const LEARNT: Group = Group { name: "learnt", widths: &WIDTHS, rates: &RATES, decays: &DECAYS };

fn main() -> Result<()> {
    let fresh = match std::env::args().nth(2).map(|seed| seed.parse()) {
        Some(Ok(seed)) => seed,
        Some(Err(_)) => return Err(Error::Config { what: "the first seed is no number".into() }),
        None => FRESH,
    };
    println!("group,task,examples,width,rate,decay,steps,seed,losses");
    let digits = prepared("digits", None)?;
    for seed in 0..80 {
        one(&LEARNT, "digits", &digits, seed)?;
    }
    for task in 0..TASKS {
        let (name, splits) = made_up(task)?;
        let prepared = Prepared { data: Arc::new(splits).into(), replay: Replay::default() };
        for run in 0..RUNS_OF_TASK {
            one(&LEARNT, &format!("{name} {task}"), &prepared, 1000 + 100 * task + run)?;
        }
    }
    let shifts = [
        Group { name: "other seeds", ..LEARNT },
        Group { name: "other widths", widths: &[16, 128], ..LEARNT },
        Group { name: "other rates", rates: &[5e-4, 2e-2], ..LEARNT },
        Group { name: "another schedule", decays: &["wsd"], ..LEARNT },
    ];
    for (place, group) in (1u64..).zip(&shifts) {
        for seed in 0..OF_SHIFT {
            one(group, "digits", &digits, 10_000 * place + fresh + seed)?;
        }
    }
    let folder = std::env::args().nth(1);
    for (task, folder) in [("xor", None), ("mnist", folder)] {
        let group = Group { name: "another data set", ..LEARNT };
        let prepared = prepared(task, folder.as_deref())?;
        for seed in 0..OF_SHIFT {
            one(&group, task, &prepared, 50_000 + fresh + seed)?;
        }
    }
    let group = Group { name: "other kinds of tasks", ..LEARNT };
    for task in fresh..fresh + OTHER_TASKS {
        let (name, splits) = of_other_kind(task)?;
        let prepared = Prepared { data: Arc::new(splits).into(), replay: Replay::default() };
        for run in 0..RUNS_OF_OTHER {
            one(&group, &format!("{name} {task}"), &prepared, 60_000 + RUNS_OF_OTHER * task + run)?;
        }
    }
    Ok(())
}

fn prepared(preset: &str, folder: Option<&str>) -> Result<Prepared> {
    let mut config = Config::preset(preset)?;
    if let Some(folder) = folder {
        config.data.folder = folder.into();
    }
    Prepared::of(&config, |error: &Error| eprintln!("{error}"))
}

/// Trains a perceptron with settings of the group, and prints its curve.
fn one(group: &Group, task: &str, prepared: &Prepared, seed: u64) -> Result<()> {
    let mut random = Random::new(seed, "study");
    let width = group.widths[random.below(group.widths.len())];
    let rate = group.rates[random.below(group.rates.len())] * (0.3 * random.normal()).exp();
    let decay = group.decays[random.below(group.decays.len())];
    let steps = POINTS * (2 + random.below(5));
    let text = format!(
        "seed = {seed}\nsteps = {steps}\n[model]\nhidden = [{width}]\n[optimiser]\nlearning_rate = {rate}\n\
         decay = \"{decay}\"\n[engine]\nenabled = false\n[run]\nevaluate_every = {steps}"
    );
    let config = Config::default().with_text("study", &text)?;
    let mut run = Run::start(&config, prepared, None)?;
    run.train_to(u64::MAX, &(), &AtomicBool::new(false), &mut ())?;
    let curve = run.curve()?.thinned(POINTS);
    let losses: Vec<String> =
        curve.losses().iter().map(|loss| format!("{:.0}", 1000.0 * loss.ln())).collect();
    let Data::Examples(splits) = &prepared.data else { unreachable!("perceptrons learn from examples") };
    let examples = splits.train.count();
    println!(
        "{},{task},{examples},{width},{rate:.4e},{decay},{steps},{seed},{}",
        group.name,
        losses.join(" ")
    );
    Ok(())
}

/// A task that nobody has seen, by its number: of few examples that are seen many times, or of so many that
/// most are seen once.
fn made_up(task: u64) -> Result<(&'static str, Splits)> {
    let mut random = Random::new(task, "task");
    let count = (800.0 * 40f64.powf(random.uniform())) as usize;
    let (name, examples) = match task % 4 {
        0 => ("clusters", clusters(count, &mut random)?),
        1 => ("teacher", teacher(count, &mut random)?),
        2 => ("spirals", spirals(count, &mut random)?),
        _ => ("spoilt digits", spoilt_digits(&mut random)?),
    };
    Ok((name, Splits::hold_back(&examples, 100, 100, task)?))
}

/// A task of a kind that is never learnt from, by its number.
fn of_other_kind(task: u64) -> Result<(&'static str, Splits)> {
    let mut random = Random::new(task, "other kind");
    let count = (800.0 * 40f64.powf(random.uniform())) as usize;
    let kinds: [(&str, Kind); 5] = [
        ("rings", rings),
        ("checkerboard", checkerboard),
        ("waves", waves),
        ("parity", parity),
        ("heavy tails", heavy_tails),
    ];
    let (name, kind) = kinds[(task % 5) as usize];
    let (size, classes, mut example) = kind(&mut random);
    let (mut inputs, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (x, label) = example(&mut random);
        inputs.extend(x.iter().map(|x| *x as f32));
        labels.push(label as u16);
    }
    let part = 0.15 * random.uniform();
    spoil(&mut labels, classes, part, &mut random);
    let examples = Examples::new([1, 1, size], classes, inputs, labels)?;
    Ok((name, Splits::hold_back(&examples, 100, 100, task)?))
}

/// Draws an example: its inputs and its class.
type Draw = Box<dyn FnMut(&mut Random) -> (Vec<f64>, usize)>;
/// The number of inputs, the number of classes, and how examples are drawn.
type Kind = fn(&mut Random) -> (usize, usize, Draw);

/// Shells around the origin.
fn rings(random: &mut Random) -> (usize, usize, Draw) {
    let (size, classes, noise) = (2 + random.below(4), 2 + random.below(3), 0.05 + 0.3 * random.uniform());
    let draw = move |random: &mut Random| {
        let label = random.below(classes);
        let x: Vec<f64> = (0..size).map(|_| random.normal()).collect();
        let length = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let radius = 0.5 + label as f64 + noise * random.normal();
        (x.iter().map(|x| radius * x / length).collect(), label)
    };
    (size, classes, Box::new(draw))
}

/// Squares of two colours, and inputs that say nothing.
fn checkerboard(random: &mut Random) -> (usize, usize, Draw) {
    let (cells, idle) = (2 + random.below(3), random.below(4));
    let draw = move |random: &mut Random| {
        let x: Vec<f64> = (0..2 + idle).map(|_| 2.0 * random.uniform() - 1.0).collect();
        let cell = |x: f64| ((x + 1.0) / 2.0 * cells as f64) as usize;
        let label = (cell(x[0]) + cell(x[1])) % 2;
        (x, label)
    };
    (2 + idle, 2, Box::new(draw))
}

/// Stripes along a random direction.
fn waves(random: &mut Random) -> (usize, usize, Draw) {
    let (size, classes) = (2 + random.below(10), 2 + random.below(4));
    let frequency = 0.3 + 0.7 * random.uniform();
    let direction: Vec<f64> = (0..size).map(|_| random.normal() / (size as f64).sqrt()).collect();
    let draw = move |random: &mut Random| {
        let x: Vec<f64> = (0..size).map(|_| random.normal()).collect();
        let along: f64 = x.iter().zip(&direction).map(|(x, d)| x * d).sum();
        let label = (frequency * along * classes as f64).floor().rem_euclid(classes as f64) as usize;
        (x, label)
    };
    (size, classes, Box::new(draw))
}

/// Whether an even number of the first few inputs are above zero.
fn parity(random: &mut Random) -> (usize, usize, Draw) {
    let (of, idle) = (2 + random.below(2), random.below(8));
    let draw = move |random: &mut Random| {
        let x: Vec<f64> = (0..of + idle).map(|_| random.normal()).collect();
        let label = x[..of].iter().filter(|x| **x > 0.0).count() % 2;
        (x, label)
    };
    (of + idle, 2, Box::new(draw))
}

/// Clusters whose examples are now and then far out.
fn heavy_tails(random: &mut Random) -> (usize, usize, Draw) {
    let (size, classes) = (3 + random.below(20), 3 + random.below(8));
    let centres: Vec<f64> = (0..classes * size).map(|_| 1.5 * random.normal()).collect();
    let draw = move |random: &mut Random| {
        let label = random.below(classes);
        // Student's distribution of three degrees of freedom.
        let scale = (0..3).map(|_| random.normal().powi(2)).sum::<f64>().max(0.05) / 3.0;
        let x = (0..size).map(|i| centres[label * size + i] + random.normal() / scale.sqrt()).collect();
        (x, label)
    };
    (size, classes, Box::new(draw))
}

/// A part of the labels is drawn anew.
fn spoil(labels: &mut [u16], classes: usize, part: f64, random: &mut Random) {
    for label in labels {
        if random.uniform() < part {
            *label = random.below(classes) as u16;
        }
    }
}

/// Normal clusters, several a class, at distances that make them more or less distinct.
fn clusters(count: usize, random: &mut Random) -> Result<Examples> {
    let (size, classes, each) = (4 + random.below(40), 2 + random.below(9), 1 + random.below(3));
    let noise = 0.3 + 1.2 * random.uniform();
    let centres: Vec<f64> = (0..classes * each * size).map(|_| random.normal()).collect();
    let (mut inputs, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let cluster = random.below(classes * each);
        let centre = &centres[cluster * size..][..size];
        inputs.extend(centre.iter().map(|centre| (centre + noise * random.normal()) as f32));
        labels.push((cluster % classes) as u16);
    }
    let part = 0.1 * random.uniform();
    spoil(&mut labels, classes, part, random);
    Examples::new([1, 1, size], classes, inputs, labels)
}

/// Labels by a random network of one hidden layer.
fn teacher(count: usize, random: &mut Random) -> Result<Examples> {
    let (size, hidden, classes) = (4 + random.below(28), 4 + random.below(12), 2 + random.below(8));
    let first: Vec<f64> = (0..size * hidden).map(|_| random.normal() / (size as f64).sqrt()).collect();
    let second: Vec<f64> = (0..hidden * classes).map(|_| random.normal()).collect();
    let (mut inputs, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let x: Vec<f64> = (0..size).map(|_| random.normal()).collect();
        let h: Vec<f64> = (0..hidden)
            .map(|j| (2.0 * (0..size).map(|i| x[i] * first[i * hidden + j]).sum::<f64>()).tanh())
            .collect();
        let score = |class: usize| (0..hidden).map(|j| h[j] * second[j * classes + class]).sum::<f64>();
        let label = (0..classes).max_by(|a, b| score(*a).total_cmp(&score(*b))).unwrap_or(0);
        inputs.extend(x.iter().map(|x| *x as f32));
        labels.push(label as u16);
    }
    let part = 0.15 * random.uniform();
    spoil(&mut labels, classes, part, random);
    Examples::new([1, 1, size], classes, inputs, labels)
}

/// Arms of a spiral in the plane.
fn spirals(count: usize, random: &mut Random) -> Result<Examples> {
    let (arms, turns) = (2 + random.below(3), 0.5 + random.uniform());
    let noise = 0.05 + 0.15 * random.uniform();
    let (mut inputs, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (arm, radius) = (random.below(arms), 0.2 + 1.8 * random.uniform());
        let angle = std::f64::consts::TAU * (arm as f64 / arms as f64 + turns * radius / 2.0);
        inputs.extend([angle.cos(), angle.sin()].map(|x| (radius * x + noise * random.normal()) as f32));
        labels.push(arm as u16);
    }
    Examples::new([1, 1, 2], arms, inputs, labels)
}

/// Some classes of the digits, with noise on the pixels and on the labels.
fn spoilt_digits(random: &mut Random) -> Result<Examples> {
    let digits = gatework_foresight::data::digits(1, 1)?.train;
    let (classes, noise) = (3 + random.below(8), random.uniform());
    let (mut inputs, mut labels) = (Vec::new(), Vec::new());
    for index in (0..digits.count()).filter(|index| digits.label(*index) < classes) {
        inputs.extend(digits.input(index).iter().map(|x| x + (noise * random.normal()) as f32));
        labels.push(digits.label(index) as u16);
    }
    let part = 0.3 * random.uniform();
    spoil(&mut labels, classes, part, random);
    Examples::new([1, 8, 8], classes, inputs, labels)
}
