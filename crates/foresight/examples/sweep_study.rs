//! Whether sweeps find what full training finds, and at what cost:
//! `cargo run --release -p gatework-foresight --example sweep_study -- data/mnist`.
//!
//! Sixteen configurations of the MNIST network: eight learning rates, with linear decay and without decay.
//! For each of five seeds all of them are trained to the end, and swept. The rungs, the least number of
//! survivors and the size of the probe were settled with other seeds: a probe of 500 examples is noisier than
//! the best configurations differ.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use gatework_foresight::Result;
use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::sweep::{Sweep, SweepOptions, sweep};

const RATES: [&str; 8] = ["0.0005", "0.001", "0.002", "0.004", "0.008", "0.016", "0.032", "0.064"];
const DECAYS: [&str; 2] = ["linear", "constant"];
const FIRST_SEED: u64 = 21;
const SEEDS: u64 = 5;

fn configurations(folder: &str, seed: u64) -> Result<Vec<(Vec<String>, Config)>> {
    let base = Config::preset("mnist")?.with_text(
        "study",
        "steps = 600\n[engine]\nenabled = false\n[run]\nevaluate_every = 600\ncheckpoint_every = 600\nlog_every = 600\n\
         [data]\nprobe = 2000",
    )?;
    let mut found = Vec::new();
    for rate in RATES {
        for decay in DECAYS {
            let settings =
                vec![format!("optimiser.learning_rate={rate}"), format!("optimiser.decay={decay}")];
            let mut config = base.with_setting(&settings[0])?.with_setting(&settings[1])?;
            config.data.folder = folder.into();
            config.seed = seed;
            found.push((settings, config));
        }
    }
    Ok(found)
}

/// Final losses on the probe and on validation examples.
fn ends(sweep: &Sweep) -> Vec<Option<[f64; 2]>> {
    let end = |summary: &gatework_foresight::run::Summary| {
        Some([summary.last()?.probe, summary.last()?.averaged.loss])
    };
    sweep.entrants.iter().map(|entrant| end(entrant.summary.as_ref()?)).collect()
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "data/mnist".into());
    let prepared = Prepared::of(&configurations(&folder, 1)?[0].1, |_| ())?;
    let train = |seed: u64, options: &SweepOptions, home: &Path| {
        sweep(&configurations(&folder, seed)?, &prepared, home, options, &(), &AtomicBool::new(false))
    };
    let whole = SweepOptions { rungs: Vec::new(), ..SweepOptions::default() };
    let mut all = Vec::new();
    for seed in FIRST_SEED..FIRST_SEED + SEEDS {
        let homes = [(); 2].map(|()| tempfile::tempdir().expect("a folder for runs"));
        let full = train(seed, &whole, homes[0].path())?;
        let swept = train(seed, &SweepOptions::default(), homes[1].path())?;
        eprintln!("seed {seed}: {:.3} of the compute", swept.compute);
        all.push((full, swept));
    }
    let names: Vec<String> = all[0].0.entrants.iter().map(|entrant| entrant.settings.join(" ")).collect();
    let probes: Vec<Vec<f64>> = (0..names.len())
        .map(|place| all.iter().filter_map(|(full, _)| Some(ends(full)[place]?[0])).collect())
        .collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    println!("configuration, final probe loss of full training by seed, mean");
    for (name, losses) in names.iter().zip(&probes) {
        let texts: Vec<String> = losses.iter().map(|loss| format!("{loss:.4}")).collect();
        println!("{name}, {}, {:.4}", texts.join(" "), mean(losses));
    }
    let best = (0..names.len()).min_by(|a, b| mean(&probes[*a]).total_cmp(&mean(&probes[*b]))).unwrap_or(0);
    let centre = mean(&probes[best]);
    let variance = probes[best].iter().map(|loss| (loss - centre).powi(2)).sum::<f64>() / (SEEDS - 1) as f64;
    let deviation = variance.sqrt();
    println!("\nbest in the mean: {}; deviation of its loss over seeds: {deviation:.4}\n", names[best]);
    println!(
        "seed, winner of the sweep, its probe loss, best of full training, its probe loss, within one deviation, validation losses of both, compute"
    );
    for (seed, (full, swept)) in (FIRST_SEED..).zip(&all) {
        let (of_full, of_swept) = (ends(full), ends(swept));
        let (Some(winner), Some(champion)) = (swept.winner, full.winner) else { continue };
        let (Some(ours), Some(theirs)) = (of_swept[winner], of_full[champion]) else { continue };
        println!(
            "{seed}, {}, {:.4}, {}, {:.4}, {}, {:.4} {:.4}, {:.3}",
            names[winner],
            ours[0],
            names[champion],
            theirs[0],
            if ours[0] <= theirs[0] + deviation { "yes" } else { "no" },
            ours[1],
            theirs[1],
            swept.compute
        );
    }
    Ok(())
}
