//! Entries for fuzzers: each reads bytes as a file hands them over, and returns whether they were accepted.
//!
//! Checkpoints are read twice, as they are and with length and checksum made right: an attacker can hash,
//! too, and nothing behind the checksum would be reached otherwise.

use std::path::Path;
use std::sync::LazyLock;

use crate::checkpoint;
use crate::config::{Config, Prepared};
use crate::data::{Tokens, read_images, read_labels};
use crate::forecast::{Curve, forecast};
use crate::run;
use crate::trainer::Trainer;
use crate::world::Episode;

/// A configuration as TOML over the default one.
pub fn config(text: &str) -> bool {
    let Ok(config) = Config::default().with_text("run.toml", text) else { return false };
    let written = config.text().expect("a configuration that was read is written");
    assert_eq!(Config::default().with_text("again.toml", &written).ok(), Some(config), "{written}");
    true
}

/// A setting of the command line, as `steps=7`.
pub fn setting(text: &str) -> bool {
    Config::default().with_setting(text).is_ok()
}

/// A loss curve, up to its forecast.
pub fn curve(text: &str) -> bool {
    let Ok(reading) = Curve::parse(text, None) else { return false };
    let curve = reading.curve.thinned(64);
    let at = 2.0 * curve.last_step().abs() + 1.0;
    if let Ok(forecasts) = forecast(&curve, at, &[], &[]) {
        assert_eq!(forecasts.len(), 4, "a forecast by every formula");
    }
    true
}

/// A file of tokens.
pub fn tokens(bytes: &[u8]) -> bool {
    let sealed = resealed(bytes, 32, 64);
    [bytes, &sealed].map(|bytes| match Tokens::parse(bytes) {
        Ok(tokens) => {
            assert_eq!(tokens.bytes(), bytes, "tokens are written as they were read");
            true
        }
        Err(_) => false,
    }) != [false; 2]
}

/// Images or labels of MNIST's format.
pub fn idx(bytes: &[u8]) -> bool {
    let images = read_images("images", bytes).is_ok();
    let labels = read_labels("labels", bytes).is_ok();
    images || labels
}

/// An episode of a replay folder.
pub fn episode(bytes: &[u8]) -> bool {
    let parse = |bytes: &[u8]| Episode::parse(Path::new("a.episode"), bytes).is_ok();
    [bytes, &resealed_checkpoint(bytes)].map(parse) != [false; 2]
}

/// A checkpoint of a plain loop, up to the step that follows it.
pub fn checkpoint(bytes: &[u8]) -> bool {
    let resume = |bytes: &[u8]| {
        let Ok(mut trainer) = run::restored(&PLAIN.0, &PLAIN.1, bytes) else { return false };
        let saved = trainer.save().expect("a trainer on the CPU can always be saved");
        if !trainer.is_finished() {
            trainer.advance().expect("a trainer that was restored goes on");
        }
        let mut again = fresh(&PLAIN.0, &PLAIN.1);
        again.restore(saved).expect("a trainer restores what it saved");
        true
    };
    [bytes, &resealed_checkpoint(bytes)].map(resume) != [false; 2]
}

static PLAIN: LazyLock<(Config, Prepared)> = LazyLock::new(|| {
    let text = "steps = 20\nbatch = 4\n[data]\nprobe = 8\n[model]\nhidden = [2]\n[engine]\nenabled = false\n[run]\ncheckpoint_every = 8\n";
    let config = Config::preset("xor").and_then(|config| config.with_text("the sample", text));
    let config = config.expect("the sample is a configuration");
    let prepared = Prepared::of(&config, |_| ()).expect("XOR needs no files");
    (config, prepared)
});

fn fresh(config: &Config, prepared: &Prepared) -> Trainer<crate::Learner> {
    Trainer::new(prepared.trainee(config).expect("the sample trains"), None, config.schedule())
}

/// The configuration whose checkpoints [`checkpoint()`] reads.
pub fn checkpoint_config() -> &'static Config {
    &PLAIN.0
}

/// The same bytes with the checksum of what is behind `header` at `at`.
fn resealed(bytes: &[u8], at: usize, header: usize) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    if let Some((head, body)) = sealed.split_at_mut_checked(header) {
        head[at..at + 32].copy_from_slice(blake3::hash(body).as_bytes());
    }
    sealed
}

fn resealed_checkpoint(bytes: &[u8]) -> Vec<u8> {
    let mut sealed = resealed(bytes, 20, checkpoint::HEADER);
    if let Some((head, body)) = sealed.split_at_mut_checked(checkpoint::HEADER) {
        head[12..20].copy_from_slice(&(body.len() as u64).to_le_bytes());
    }
    sealed
}
