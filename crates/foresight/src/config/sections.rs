//! The sections of a configuration, and the presets.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::keys::{check_keys, merge};
use crate::engine::EngineOptions;
use crate::error::{Error, Result};
use crate::learner::{CPU, check_place};
use crate::optimiser::{Decay, Method, OptimiserOptions, Schedule};
use crate::world::WorldOptions;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Of weights, data order, splits and the world model.
    pub seed: u64,
    /// Training steps.
    pub steps: u64,
    /// Examples of a step.
    pub batch: usize,
    /// The data set.
    pub data: DataSection,
    /// The network.
    pub model: ModelSection,
    /// How.
    pub optimiser: OptimiserSection,
    /// Settings of the engine.
    pub engine: EngineSection,
    /// The world model.
    pub world: WorldOptions,
    /// Checkpoints, evaluations, logs.
    pub run: RunSection,
}

/// The data set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSection {
    /// Which data.
    pub kind: DataKind,
    /// The folder of its files, where it has any.
    pub folder: PathBuf,
    /// Examples, or windows of a text, that are held back for the engine.
    pub probe: usize,
    /// Whether labels are drawn anew, so that there is nothing to learn.
    pub random_labels: bool,
}

/// Which data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataKind {
    /// Points around four corners, generated.
    Xor,
    /// 1797 digits of 8 by 8, built in.
    Digits,
    /// 70,000 digits of 28 by 28, from a folder.
    Mnist,
    /// 7,317 tokens of Rust source, built in.
    Rust,
    /// Tokens of a text, from `text.tokens` in a folder.
    Text,
}

impl DataKind {
    /// Whether it is a text, whose losses are nats a token.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Rust | Self::Text)
    }
}

/// The network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSection {
    /// Which kind of network.
    pub kind: ModelKind,
    /// Widths of hidden dense layers.
    pub hidden: Vec<usize>,
    /// Filters of convolutions.
    pub filters: Vec<usize>,
    /// The side of their kernels.
    pub kernel: usize,
    /// Tokens that a transformer reads at once.
    pub context: usize,
    /// Numbers of its stream.
    pub width: usize,
    /// Its blocks.
    pub layers: usize,
    /// Heads of its attention.
    pub heads: usize,
}

/// Which kind of network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// A multilayer perceptron.
    Mlp,
    /// A convolutional network.
    Cnn,
    /// A decoder-only transformer with GPT-2's architecture.
    Gpt,
}

/// How it learns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimiserSection {
    /// Which step.
    pub method: Method,
    /// The highest learning rate.
    pub learning_rate: f64,
    /// Steps over which it rises.
    pub warmup: u64,
    /// How it falls.
    pub decay: Decay,
    /// For `wsd`: the part of the steps over which it falls.
    pub decay_share: f64,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Muon's momentum.
    pub momentum: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// The longest gradient; 0 for any.
    pub clip: f64,
    /// Decay of the average of weights.
    pub average_decay: f32,
}

/// Settings of the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSection {
    /// Without it the run is the plain loop.
    pub enabled: bool,
    /// Its constants.
    pub options: EngineOptions,
    /// A folder of finished runs that the world model learns from, too; empty for none.
    pub replay: PathBuf,
}

/// Checkpoints, evaluations, logs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSection {
    /// Steps between two evaluations.
    pub evaluate_every: u64,
    /// Steps between two checkpoints.
    pub checkpoint_every: u64,
    /// Newest checkpoints that stay.
    pub keep_newest: usize,
    /// Best checkpoints, by the loss of averaged weights on the probe, that stay.
    pub keep_best: usize,
    /// Evaluations without a better one after which the run ends; 0 for never.
    pub patience: u64,
    /// Steps between two lines of the log.
    pub log_every: u64,
    /// Where the network learns: `cpu`, or a device with kernels, as `cuda`, `cuda:1` or `emulated`.
    pub device: String,
    /// Who multiplies on a device: `own` for the kernel of this crate, `cublaslt` for NVIDIA's library.
    pub products: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            steps: 1000,
            batch: 64,
            data: DataSection::default(),
            model: ModelSection::default(),
            optimiser: OptimiserSection::default(),
            engine: EngineSection::default(),
            world: WorldOptions::default(),
            run: RunSection::default(),
        }
    }
}

impl Default for DataSection {
    fn default() -> Self {
        Self { kind: DataKind::Digits, folder: "data/mnist".into(), probe: 200, random_labels: false }
    }
}

impl Default for ModelSection {
    fn default() -> Self {
        Self {
            kind: ModelKind::Mlp,
            hidden: vec![64],
            filters: vec![8, 16],
            kernel: 5,
            context: 64,
            width: 64,
            layers: 2,
            heads: 4,
        }
    }
}

impl Default for OptimiserSection {
    fn default() -> Self {
        let options = OptimiserOptions::default();
        Self {
            method: options.method,
            learning_rate: 4e-3,
            warmup: 50,
            decay: Decay::Linear,
            decay_share: 0.2,
            beta1: options.beta1,
            beta2: options.beta2,
            momentum: options.momentum,
            weight_decay: options.weight_decay,
            clip: options.clip,
            average_decay: 0.99,
        }
    }
}

impl Default for EngineSection {
    fn default() -> Self {
        Self { enabled: true, options: EngineOptions::default(), replay: PathBuf::new() }
    }
}

impl Default for RunSection {
    fn default() -> Self {
        Self {
            evaluate_every: 100,
            checkpoint_every: 100,
            keep_newest: 3,
            keep_best: 1,
            patience: 0,
            log_every: 1,
            device: CPU.into(),
            products: "own".into(),
        }
    }
}

impl Config {
    /// Names of presets.
    pub const PRESETS: [&str; 5] = ["xor", "digits", "mnist", "text", "gpt2"];

    /// The configuration of that name.
    pub fn preset(name: &str) -> Result<Self> {
        let mut config = Self::default();
        match name {
            "xor" => {
                config.data.kind = DataKind::Xor;
                (config.steps, config.batch) = (600, 32);
                config.model.hidden = vec![32, 32];
                config.optimiser.learning_rate = 1e-2;
            }
            "digits" => {}
            "mnist" => {
                config.data.kind = DataKind::Mnist;
                config.data.probe = 500;
                config.optimiser.learning_rate = 8e-3;
                (config.steps, config.batch) = (1500, 128);
                config.model = ModelSection { kind: ModelKind::Cnn, hidden: vec![64], ..config.model };
                config.run = RunSection { evaluate_every: 250, checkpoint_every: 250, ..config.run };
            }
            "text" => {
                config.data = DataSection { kind: DataKind::Rust, probe: 8, ..config.data };
                config.model.kind = ModelKind::Gpt;
                (config.steps, config.batch) = (200, 16);
                config.optimiser = OptimiserSection {
                    learning_rate: 3e-3,
                    warmup: 20,
                    weight_decay: 0.1,
                    clip: 1.0,
                    ..config.optimiser
                };
                // A checkpoint of the engine holds several copies of the embedding, which is nearly all of
                // this network.
                config.engine.enabled = false;
                config.run = RunSection { evaluate_every: 25, checkpoint_every: 50, ..config.run };
            }
            "gpt2" => {
                config.data = DataSection {
                    kind: DataKind::Text,
                    folder: "data/text".into(),
                    probe: 16,
                    ..config.data
                };
                config.model = ModelSection {
                    kind: ModelKind::Gpt,
                    context: 1024,
                    width: 768,
                    layers: 12,
                    heads: 12,
                    ..config.model
                };
                (config.steps, config.batch) = (4000, 16);
                config.optimiser = OptimiserSection {
                    learning_rate: 6e-4,
                    warmup: 200,
                    beta2: 0.95,
                    weight_decay: 0.1,
                    clip: 1.0,
                    average_decay: 0.999,
                    ..config.optimiser
                };
                config.engine.enabled = false;
                config.run = RunSection { evaluate_every: 250, checkpoint_every: 250, ..config.run };
            }
            other => {
                return Err(Error::config(format!(
                    "there is no preset '{other}': there are {}",
                    Self::PRESETS.join(", ")
                )));
            }
        }
        Ok(config)
    }

    /// A configuration from TOML text over this one: keys that are not given stay as they are. `name` is what
    /// errors call the text.
    pub fn with_text(&self, name: &str, text: &str) -> Result<Self> {
        let given: Table = text.parse().map_err(|error: toml::de::Error| {
            Error::config(format!("{name} is no TOML: {}", error.message()))
        })?;
        self.with_table(name, given)
    }

    /// A configuration from a file over this one.
    pub fn with_file(&self, path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::reading(path))?;
        self.with_text(&path.display().to_string(), &text)
    }

    /// A configuration with one key changed, given as `optimiser.learning_rate=0.01`.
    pub fn with_setting(&self, setting: &str) -> Result<Self> {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(Error::config(format!("'{setting}' sets nothing: write KEY=VALUE, as 'steps=500'")));
        };
        let (key, value) = (key.trim(), value.trim());
        // A word that is no TOML value is a string.
        let text = [format!("{key} = {value}"), format!("{key} = {value:?}")]
            .into_iter()
            .find(|text| text.parse::<Table>().is_ok())
            .ok_or_else(|| {
                Error::config(format!("'{setting}' cannot be read: write KEY=VALUE, as 'steps=500'"))
            })?;
        self.with_text(&format!("'{setting}'"), &text)
    }

    fn with_table(&self, name: &str, given: Table) -> Result<Self> {
        let mut table = self.table()?;
        check_keys(name, &table, &given)?;
        merge(&mut table, given);
        let config: Self = table.try_into().map_err(|error: toml::de::Error| {
            Error::config(format!("{name}: {}", error.to_string().trim()))
        })?;
        config.check()?;
        Ok(config)
    }

    fn table(&self) -> Result<Table> {
        Table::try_from(self).map_err(|error| Error::config(format!("it cannot be written as TOML: {error}")))
    }

    /// As TOML, every key said.
    pub fn text(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| Error::config(format!("it cannot be written as TOML: {error}")))
    }

    /// The schedule of its learning rate.
    pub fn schedule(&self) -> Schedule {
        let OptimiserSection { learning_rate, warmup, decay, decay_share, .. } = self.optimiser;
        Schedule { peak: learning_rate, warmup, decay, decay_share, steps: self.steps }
    }

    /// Refuses values that cannot be meant.
    pub fn check(&self) -> Result<()> {
        if let Some((key, value)) = not_finite(&self.table()?, "") {
            return Err(Error::config(format!(
                "'{key}' is {value}: it must be a number that is not infinite"
            )));
        }
        self.check_sizes()?;
        let positive = [
            ("steps", self.steps),
            ("batch", self.batch as u64),
            ("data.probe", self.data.probe as u64),
            ("run.evaluate_every", self.run.evaluate_every),
            ("run.checkpoint_every", self.run.checkpoint_every),
            ("run.log_every", self.run.log_every),
            ("run.keep_newest", self.run.keep_newest as u64),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Error::config(format!("'{key}' is 0: it must be at least 1")));
        }
        let optimiser = &self.optimiser;
        if !(optimiser.learning_rate > 0.0 && optimiser.learning_rate.is_finite()) {
            return Err(Error::config(format!(
                "'optimiser.learning_rate' is {}: it must be above 0",
                optimiser.learning_rate
            )));
        }
        let parts = [
            ("optimiser.beta1", optimiser.beta1),
            ("optimiser.beta2", optimiser.beta2),
            ("optimiser.momentum", optimiser.momentum),
            ("optimiser.average_decay", optimiser.average_decay),
        ];
        if let Some((key, value)) = parts.iter().find(|(_, value)| !(0.0..1.0).contains(value)) {
            return Err(Error::config(format!("'{key}' is {value}: it must be from 0 to below 1")));
        }
        let counted = [
            ("optimiser.weight_decay", f64::from(optimiser.weight_decay)),
            ("optimiser.clip", optimiser.clip),
            ("world.rate", self.world.rate),
        ];
        if let Some((key, value)) = counted.iter().find(|(_, value)| *value < 0.0) {
            return Err(Error::config(format!("'{key}' is {value}: it must be at least 0")));
        }
        if !(0.0..=1.0).contains(&optimiser.decay_share) {
            return Err(Error::config(format!(
                "'optimiser.decay_share' is {}: it is a part, from 0 to 1",
                optimiser.decay_share
            )));
        }
        check_place(&self.run.device, &self.run.products)?;
        self.engine.options.check()
    }

    /// Refuses sizes that no machine which this crate is for can hold, before anything is allocated.
    fn check_sizes(&self) -> Result<()> {
        let (model, world) = (&self.model, &self.world);
        let one = |key: &'static str, value: usize, most: usize| (key, value, most);
        let sizes = [
            one("batch", self.batch, 1 << 20),
            one("model.kernel", model.kernel, 1 << 6),
            one("model.context", model.context, 1 << 14),
            one("model.width", model.width, 1 << 14),
            one("model.layers", model.layers, 1 << 8),
            one("model.heads", model.heads, 1 << 8),
            one("engine.options.snapshots", self.engine.options.snapshots, 1 << 8),
            one("world.members", world.members, 1 << 6),
            one("world.hidden", world.hidden, 1 << 12),
            one("world.categories", world.categories, 1 << 8),
            one("world.classes", world.classes, 1 << 8),
            one("world.window", world.window, 1 << 10),
            one("world.batch", world.batch, 1 << 10),
        ];
        let layers = model.hidden.iter().map(|&width| one("model.hidden", width, 1 << 16));
        let filters = model.filters.iter().map(|&filters| one("model.filters", filters, 1 << 12));
        match sizes.into_iter().chain(layers).chain(filters).find(|(_, value, most)| value > most) {
            Some((key, value, most)) => {
                Err(Error::config(format!("'{key}' is {value}: it can be {most} at most")))
            }
            None => Ok(()),
        }
    }
}

/// The first number of a table that is none, or infinite.
fn not_finite(table: &Table, before: &str) -> Option<(String, f64)> {
    table.iter().find_map(|(key, value)| {
        let path = if before.is_empty() { key.clone() } else { format!("{before}.{key}") };
        match value {
            Value::Table(inner) => not_finite(inner, &path),
            Value::Float(value) if !value.is_finite() => Some((path, *value)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_key_is_named_with_the_nearest_right_one() {
        let said = |text: &str| Config::default().with_text("run.toml", text).unwrap_err().to_string();
        let error = said("[optimiser]\nlerning_rate = 0.1");
        assert!(
            error.contains("'optimiser.lerning_rate'") && error.contains("'optimiser.learning_rate'"),
            "{error}"
        );
        let error = said("[engine.options]\nconfidence = 0.1");
        assert!(error.contains("'engine.options.confidence_threshold'"), "{error}");
        let error = said("step = 3");
        assert!(error.contains("'step'") && error.contains("'steps'"), "{error}");
        let error = said("steps = \"many\"");
        assert!(error.contains("steps") && error.contains("many"), "{error}");
        assert!(said("steps = 0").contains("'steps' is 0"));
        assert!(said("[optimiser]\ndecay = \"cosine\"").contains("cosine"));
        assert!(said("steps = ").contains("no TOML"));
        assert!(said("steps.more = 1").contains("steps"));
        assert!(said("optimiser = 3").contains("optimiser"));
    }

    #[test]
    fn numbers_that_are_none_and_sizes_that_do_not_fit_are_refused() {
        let said = |setting: &str| Config::default().with_setting(setting).unwrap_err().to_string();
        for key in [
            "optimiser.clip",
            "engine.options.sampled",
            "engine.options.risk",
            "world.rate",
            "optimiser.beta1",
        ] {
            for value in ["nan", "inf", "-inf"] {
                let error = said(&format!("{key}={value}"));
                assert!(error.contains(&format!("'{key}'")), "{key}={value}: {error}");
            }
        }
        assert!(said("optimiser.weight_decay=-1").contains("'optimiser.weight_decay' is -1"));
        assert!(said("model.hidden=[64, 10000000000]").contains("'model.hidden' is 10000000000"));
        assert!(said("world.hidden=100000").contains("'world.hidden'"));
        for key in ["context", "width", "layers", "heads"] {
            assert!(said(&format!("model.{key}=100000")).contains(&format!("'model.{key}' is 100000")));
        }
    }

    #[test]
    fn what_is_not_given_stays_and_text_comes_back() {
        let config =
            Config::preset("mnist").unwrap().with_text("a", "[optimiser]\nmethod = \"muon\"").unwrap();
        assert_eq!((config.optimiser.method, config.batch), (Method::Muon, 128));
        let again = Config::default().with_text("b", &config.text().unwrap()).unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn settings_are_read_as_toml_or_words() {
        let config = Config::default();
        assert_eq!(config.with_setting("steps=7").unwrap().steps, 7);
        assert_eq!(config.with_setting("optimiser.decay=wsd").unwrap().optimiser.decay, Decay::Wsd);
        assert_eq!(config.with_setting("model.hidden=[3, 4]").unwrap().model.hidden, [3, 4]);
        assert!(config.with_setting("steps").unwrap_err().to_string().contains("KEY=VALUE"));
        assert!(
            Config::preset("imagenet").unwrap_err().to_string().contains("xor, digits, mnist, text, gpt2")
        );
    }
}
