//! Whether the world model foresees the loss of full steps better than the slope of the last losses:
//! `cargo run --release -p gatework-foresight --example world_study`.
//!
//! A convolutional network on the digits, at a learning rate of its own for each run. The first ten runs
//! begin with a world model that knows nothing; the others with one that may look at those ten. It may take
//! up to three tenths of the counted work, thirty times what it is allowed by default, so that it learns as
//! much as it can. Printed is the root mean square error of the model's forecasts over that of the slope's,
//! on the same stretches of 48 steps. The engine asks the model only below the root of 0.8.

use std::sync::atomic::AtomicBool;

use gatework_foresight::Result;
use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::random::Random;
use gatework_foresight::run::Run;
use gatework_foresight::world::Replay;

const RUNS: u64 = 10;

fn config(seed: u64) -> Result<Config> {
    let rate = 2e-3 * (0.7 * Random::new(seed, "world study").normal()).exp();
    let text = format!(
        "seed = {seed}\nsteps = 3000\nbatch = 128\n[model]\nkind = \"cnn\"\nfilters = [16]\nkernel = 3\n[optimiser]\n\
         learning_rate = {rate}\n[run]\nevaluate_every = 3000"
    );
    let mut config = Config::preset("digits")?.with_text("study", &text)?;
    config.engine.options.sampled = 0.0;
    config.engine.options.predictor_share = 0.3;
    Ok(config)
}

fn main() -> Result<()> {
    let mut prepared = Prepared::of(&config(1)?, |error| eprintln!("{error}"))?;
    let folder = tempfile::tempdir().expect("a folder for runs");
    println!("seed, runs that were looked at before, error over the slope's, forecasts that came due");
    for seed in 1..=2 * RUNS {
        if seed == RUNS + 1 {
            prepared.replay = Replay::read(folder.path(), |error| eprintln!("{error}"))?;
        }
        let looked_at = prepared.replay.episodes().count();
        let config = config(seed)?;
        let mut run = Run::start(&config, &prepared, None)?;
        let summary = run.finish(&(), &AtomicBool::new(false), &mut ())?;
        let (Some(engine), Some(last)) = (run.trainer().engine(), summary.last()) else { continue };
        match engine.model_over_slope() {
            Some((ratio, due)) => println!("{seed}, {looked_at}, {ratio:.3}, {due}"),
            None => println!("{seed}, {looked_at}, none, 0"),
        }
        if seed <= RUNS {
            engine.episode(last.probe).save(folder.path(), &format!("{seed:02}"))?;
        }
    }
    Ok(())
}
