//! How long things take: `cargo bench -p gatework-foresight`, or a part of it: `-- steps`, `text`,
//! `overhead`, `world`, `curves`.
//!
//! Operations come first, so that a time can be judged: a step of the MNIST network is three times its
//! forward pass less the gradient of the image, two operations a multiply-add. No data is needed: images are
//! noise.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::data::{Examples, Splits};
use gatework_foresight::engine::Allowed;
use gatework_foresight::forecast::{Curve, forecast};
use gatework_foresight::network::Architecture;
use gatework_foresight::optimiser::OptimiserOptions;
use gatework_foresight::random::Random;
use gatework_foresight::run::Run;
use gatework_foresight::state::FEATURES;
use gatework_foresight::world::{ACTION, Ensemble, Tick, WorldOptions};
use gatework_foresight::{Native, NativeOptions, Step, Trainee, Which};

/// The median of several timings, in milliseconds.
fn median(times: usize, mut work: impl FnMut()) -> f64 {
    work();
    let mut found: Vec<f64> = (0..times)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    found.sort_by(f64::total_cmp);
    found[times / 2]
}

fn noise(count: usize, random: &mut Random) -> Examples {
    let inputs = (0..count * 784).map(|_| random.normal() as f32).collect();
    Examples::new([1, 28, 28], 10, inputs, (0..count).map(|i| (i % 10) as u16).collect()).expect("noise")
}

fn main() {
    let parts: [(&str, fn()); 5] =
        [("steps", steps), ("text", text), ("overhead", overhead), ("world", world), ("curves", curves)];
    // Cargo adds options of its own.
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let Some(unknown) = chosen.iter().find(|word| !parts.iter().any(|(name, _)| name == word)) {
        eprintln!("there is no part '{unknown}': there are steps, text, overhead, world and curves");
        std::process::exit(2);
    }
    for (_, part) in
        parts.iter().filter(|(name, _)| chosen.is_empty() || chosen.iter().any(|word| word == name))
    {
        part();
    }
}

fn steps() {
    let architecture = Architecture::cnn([1, 28, 28], &[8, 16], 5, &[64], 10).expect("the preset");
    let layers: Vec<f64> = architecture.groups().iter().map(|group| group.multiply_adds as f64).collect();
    let (all, first) = (layers.iter().sum::<f64>(), layers[0]);
    let operations = 128.0 * 2.0 * (3.0 * all - first);
    let mut random = Random::new(1, "bench");
    let splits = Splits {
        train: noise(2048, &mut random),
        probe: noise(500, &mut random),
        validation: noise(1000, &mut random),
    };
    let optimiser = OptimiserOptions::default();
    let options = NativeOptions { architecture, optimiser, average_decay: 0.99, batch: 128, seed: 1 };
    let mut trainee = Native::new(options, Arc::new(splits)).expect("the preset");
    let rate = |milliseconds: f64| operations / milliseconds / 1e6;
    let plain = median(60, || drop(trainee.step(&Step::full(1e-4))));
    println!(
        "MNIST step, batch 128: {:.1} Mop, {plain:.2} ms, {:.1} Gop/s on {} threads",
        operations / 1e6,
        rate(plain),
        rayon::current_num_threads()
    );
    let measured = median(60, || drop(trainee.step(&Step { measure: true, ..Step::full(1e-4) })));
    println!("the same with statistics: {measured:.2} ms, {:.3} of it", measured / plain);
    for frozen in 1..4 {
        let time = median(60, || drop(trainee.step(&Step { frozen, ..Step::full(1e-4) })));
        println!(
            "with {frozen} frozen: {time:.2} ms, {:.3} of a full step; counted {:.3}",
            time / plain,
            trainee.cost(frozen, 1.0)
        );
    }
    let probe = median(20, || drop(trainee.probe(Which::Trained)));
    println!(
        "probe of 500: {probe:.2} ms, {:.2} of a step; counted {:.2}",
        probe / plain,
        trainee.probe_cost()
    );
}

/// Steps of transformers beside what fused multiply-adds of registers alone reach on all threads. What is
/// counted is the work of `Trainee::step_work`: products alone, and of pairs those at or below the diagonal.
fn text() {
    let peak = peak();
    let shapes: [(&str, &[&str], usize); 3] = [
        ("the preset", &[], 12),
        ("of another shape", &["model.width=256", "model.layers=4", "model.context=128", "batch=8"], 5),
        (
            "one block of GPT-2 small",
            &["model.width=768", "model.layers=1", "model.heads=12", "model.context=200", "batch=4"],
            3,
        ),
    ];
    for (name, settings, times) in shapes {
        let config =
            settings.iter().try_fold(Config::preset("text").expect("the preset"), |config, setting| {
                config.with_setting(setting)
            });
        let config = config.expect("settings");
        let prepared = Prepared::of(&config, |_| ()).expect("built-in data");
        let mut trainee = prepared.trainee(&config).expect("a transformer");
        let milliseconds = median(times, || drop(trainee.step(&Step::full(1e-4))));
        let rate = 2.0 * trainee.step_work() / milliseconds / 1e6;
        println!(
            "step of {name}: {:.1} Gop, {milliseconds:.1} ms, {rate:.1} Gop/s on {} threads, {:.2} of the peak of {peak:.0}",
            2.0 * trainee.step_work() / 1e9,
            rayon::current_num_threads(),
            rate / peak
        );
    }
}

/// Gop/s of fused multiply-adds of registers on all threads.
fn peak() -> f64 {
    const ROUNDS: usize = 4_000_000;
    let chains = || std::hint::black_box(chains(ROUNDS));
    let milliseconds = median(5, || drop(rayon::broadcast(|_| chains())));
    (2 * CHAINS * LANES * ROUNDS * rayon::current_num_threads()) as f64 / milliseconds / 1e6
}

/// Chains that run beside each other, each of a vector.
const CHAINS: usize = 12;
const LANES: usize = 16;

fn chains(rounds: usize) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the instructions were found on this machine.
            return unsafe { chains_avx512(rounds) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: as above.
            return unsafe { chains_avx2(rounds) };
        }
    }
    any_chains(rounds)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn chains_avx512(rounds: usize) -> f32 {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    let [factor, addend] = [0.5, 1.0].map(|x| _mm512_set1_ps(std::hint::black_box(x)));
    let mut sums = [addend; CHAINS];
    for _ in 0..rounds {
        sums.iter_mut().for_each(|sum| *sum = _mm512_fmadd_ps(*sum, factor, addend));
    }
    sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn chains_avx2(rounds: usize) -> f32 {
    any_chains(rounds)
}

#[inline(always)]
fn any_chains(rounds: usize) -> f32 {
    let [factor, addend] = [0.5f32, 1.0].map(std::hint::black_box);
    let mut sums = [[addend; LANES]; CHAINS];
    for _ in 0..rounds {
        for sum in sums.iter_mut().flatten() {
            *sum = sum.mul_add(factor, addend);
        }
    }
    sums.into_iter().flatten().sum()
}

/// The engine beside the plain loop: interleaved, so that both see the same machine. With no action to take
/// and no samples; and on random labels with all of them allowed.
fn overhead() {
    let small_cnn = ["steps=300", "batch=128", "model.kind=cnn", "model.filters=[16]", "model.kernel=3"];
    compared("predicts nothing", "xor", &["steps=3000"], Idle::Yes);
    compared("predicts nothing", "digits", &["steps=1000"], Idle::Yes);
    compared("predicts nothing", "digits", &small_cnn, Idle::Yes);
    let random = "data.random_labels=true";
    compared(
        "may do all it can",
        "digits",
        &["steps=1000", random, "optimiser.learning_rate=1.25e-4"],
        Idle::No,
    );
    let small_cnn: Vec<&str> =
        small_cnn.into_iter().chain([random, "optimiser.learning_rate=1.25e-4"]).collect();
    compared("may do all it can", "digits", &small_cnn, Idle::No);
}

#[derive(Clone, Copy, PartialEq)]
enum Idle {
    Yes,
    No,
}

/// Runs of each side.
const RUNS: usize = 61;

fn compared(what: &str, preset: &str, settings: &[&str], idle: Idle) {
    let mut engine = Config::preset(preset).expect("a preset");
    for setting in settings.iter().chain(&["run.evaluate_every=1000000", "run.checkpoint_every=1000000"]) {
        engine = engine.with_setting(setting).expect("a setting");
    }
    if idle == Idle::Yes {
        engine.engine.options.sampled = 0.0;
        engine.engine.options.actions = Allowed { freeze: false, jump: false, stop: false };
    }
    let mut plain = engine.clone();
    plain.engine.enabled = false;
    let prepared = Prepared::of(&engine, |_| ()).expect("built-in data");
    let seconds = |config: &Config| {
        let mut run = Run::start(config, &prepared, None).expect("a run");
        let summary = run.finish(&(), &AtomicBool::new(false), &mut ()).expect("a run");
        summary.ledger.total().seconds
    };
    // In turn, and from another one each time: whoever comes first pays for what the other finds warm.
    let mut pairs = Vec::new();
    for turn in 0..RUNS {
        pairs.push(if turn % 2 == 0 {
            let first = seconds(&engine);
            [first, seconds(&plain)]
        } else {
            let first = seconds(&plain);
            [seconds(&engine), first]
        });
    }
    let sorted = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values
    };
    let ratios = sorted(pairs.iter().map(|[engine, plain]| engine / plain).collect());
    let [engine, plain] = [0, 1].map(|side| sorted(pairs.iter().map(|pair| pair[side]).collect()));
    println!(
        "{preset} {}: the engine that {what} over the plain loop, {RUNS} runs each in turn on {} threads: fastest {:.3}, \
         lower quartile {:.3}, median {:.3}, median of pairs {:.3}; {:.0} us a step",
        settings.join(" "),
        rayon::current_num_threads(),
        engine[0] / plain[0],
        engine[RUNS / 4] / plain[RUNS / 4],
        engine[RUNS / 2] / plain[RUNS / 2],
        ratios[RUNS / 2],
        1e6 * plain[RUNS / 2]
            / settings[0].trim_start_matches("steps=").parse::<f64>().expect("steps come first"),
    );
}

fn world() {
    for hidden in [64, 256] {
        let options = WorldOptions { hidden, ..WorldOptions::default() };
        let mut ensemble = Ensemble::new(options, 1).expect("an ensemble");
        let tick = Tick { features: vec![0.1; FEATURES], action: [0.5; ACTION], level: 0.0 };
        let actions = vec![[0.5; ACTION]; 50];
        let rollout = median(60, || drop(ensemble.imagine(&actions)));
        let observe = median(20, || ensemble.observe(&tick));
        let end = median(20, || {
            std::hint::black_box(ensemble.end());
        });
        println!(
            "world model, hidden {hidden}, 5 members: rollout of 50 ticks {rollout:.2} ms, look {observe:.3} ms, direct \
             head {end:.3} ms"
        );
    }
}

fn curves() {
    let mut random = Random::new(1, "curve");
    let curve = Curve::new((0..20_000).map(|t| {
        let t = f64::from(t);
        (t, (0.3 + 2.0 * (t + 1.0).powf(-0.4)) * (0.1 * random.normal()).exp(), Some(1e-3))
    }))
    .expect("a curve");
    let time = median(10, || drop(forecast(&curve, 1e5, &[], &[])));
    println!("forecast of a curve of 20,000 points, four formulas with bands: {time:.1} ms");
}
