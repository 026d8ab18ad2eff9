//! Options that say what is trained.

use std::path::PathBuf;

use clap::Args;
use gatework_foresight::Error;
use gatework_foresight::config::{Config, Prepared};
use gatework_gpu::DeviceChoice;

use crate::command::ending::Failure;
use crate::command::shell::Shell;

#[derive(Debug, Args)]
pub(super) struct ConfigOptions {
    /// The preset to start from: xor, digits, mnist, text or gpt2 [default: digits]
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// A TOML file whose keys override the preset
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override one key, as in optimiser.learning_rate=0.01; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The folder with the files of the data set
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

impl ConfigOptions {
    /// Whether a preset was asked for by its name.
    pub(super) fn names_preset(&self) -> bool {
        self.preset.is_some()
    }

    pub(super) fn config(&self) -> Result<Config, Failure> {
        let mut config = Config::preset(self.preset.as_deref().unwrap_or("digits"))?;
        if let Some(path) = &self.config {
            config = config.with_file(path)?;
        }
        for setting in &self.set {
            config = config.with_setting(setting)?;
        }
        if let Some(folder) = &self.data {
            config.data.folder.clone_from(folder);
        }
        Ok(config)
    }
}

/// Where `--device` says that it learns; `auto` is what the configuration says, the CPU if nothing else.
pub(super) fn learn_on(config: &mut Config, shell: &Shell) -> Result<(), Failure> {
    if shell.device.choice != DeviceChoice::Auto {
        config.run.device = shell.device.choice.to_string();
    }
    Ok(config.check()?)
}

/// Reads the data, and says what could not be used of finished runs.
pub(super) fn prepare(config: &Config, shell: &Shell) -> Result<Prepared, Failure> {
    let warn = |error: &Error| shell.progress.say(&format!("warning: {error}"));
    Ok(Prepared::of(config, warn)?)
}

/// Bytes for people.
pub(super) fn bytes(count: usize) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}
