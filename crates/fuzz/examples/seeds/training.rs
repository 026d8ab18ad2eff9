//! Seeds of training: a run that is really trained, and what it leaves.

use std::fs;
use std::sync::atomic::AtomicBool;

use gatework_foresight::checkpoint::RunFolder;
use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::data::Tokens;
use gatework_foresight::fuzzing::checkpoint_config;
use gatework_foresight::run::Run;
use gatework_foresight::state::FEATURES;
use gatework_foresight::world::{ACTION, Episode, Tick};

use crate::{Outcome, put};

pub fn write() -> Outcome {
    for preset in Config::PRESETS {
        put("train_config", &format!("{preset}.toml"), Config::preset(preset)?.text()?.as_bytes())?;
    }
    let settings = [
        ("steps", "steps=7"),
        ("decay", "optimiser.decay=wsd"),
        ("hidden", "model.hidden=[3, 4]"),
        ("rate", "world.rate = 1e-3"),
    ];
    for (name, setting) in settings {
        put("train_setting", name, setting.as_bytes())?;
    }
    curves()?;
    put("train_tokens", "six.tokens", &Tokens::new(100, vec![1, 2, 99, 0], vec![7, 8])?.bytes())?;
    put("train_idx", "labels.idx1", &[0, 0, 8, 1, 0, 0, 0, 2, 7, 9])?;
    put("train_idx", "images.idx3", &[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])?;
    let folder = tempfile::tempdir()?;
    let tick = |level| Tick { features: vec![0.5; FEATURES], action: [0.0; ACTION], level };
    let episode = Episode { every: 8, ticks: vec![tick(1.0), tick(0.5)], end: Some(-1.0) };
    episode.save(folder.path(), "two")?;
    put("train_episode", "two.episode", &fs::read(folder.path().join("two.episode"))?)?;
    let config = checkpoint_config();
    let prepared = Prepared::of(config, |_| ())?;
    let home = RunFolder::open(&folder.path().join("run"))?;
    Run::start(config, &prepared, Some(&home))?.finish(&(), &AtomicBool::new(false), &mut ())?;
    for step in home.steps()?.into_iter().take(2) {
        put("train_checkpoint", &format!("{step}.checkpoint"), &fs::read(home.checkpoint(step))?)?;
    }
    put("train_curve", "log.jsonl", &fs::read(home.path().join("log.jsonl"))?)?;
    put("train_curve", "log.csv", &fs::read(home.path().join("log.csv"))?)
}

fn curves() -> Outcome {
    let loss = |step: u32| 0.5 + 2.0 / f64::from(step + 1);
    let numbers: String = (0..24).map(|step| format!("{}\n", loss(step))).collect();
    put("train_curve", "numbers.txt", numbers.as_bytes())?;
    let rows = (0..24).map(|step| format!("\"run \"\"a, b\"\"\",{},{},{}\r\n", 5 * step, loss(step), 0.1));
    put(
        "train_curve",
        "quoted.csv",
        ("name,Step,val_loss,lr\r\n".to_owned() + &rows.collect::<String>()).as_bytes(),
    )
}
