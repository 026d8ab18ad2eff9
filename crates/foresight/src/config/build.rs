//! From a configuration to what trains.

use std::sync::Arc;

use super::memory::{MemoryPlan, STATE};
use super::sections::{Config, DataKind, ModelKind, ModelSection};
use crate::data::{Data, Splits, Text, Tokens, digits, mnist, rust_slice, xor};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::learner::{CPU, Learner};
use crate::native::NativeOptions;
use crate::network::{Architecture, Transformer};
use crate::optimiser::OptimiserOptions;
use crate::world::Replay;

/// Noisy points of XOR: to train on, to probe with, to validate on.
const XOR_POINTS: usize = 2000;
const XOR_VALIDATION: usize = 500;
/// The data sets are split the same way for every seed, so that seeds differ in nothing but the run.
const SPLIT_SEED: u64 = 1;
/// More parameters than anybody trains with this crate: a state of so many is 344 GB.
const MOST_PARAMETERS: usize = 1 << 34;

/// Data and finished runs, read once for as many runs as one likes.
#[derive(Clone)]
pub struct Prepared {
    /// The data.
    pub data: Data,
    /// Finished runs.
    pub replay: Replay,
}

impl Prepared {
    /// Reads the data that a configuration names.
    pub fn of(config: &Config, refused: impl FnMut(&Error)) -> Result<Self> {
        let data = Self::data(config)?;
        let replay = if config.engine.replay.as_os_str().is_empty() {
            Replay::default()
        } else {
            Replay::read(&config.engine.replay, refused)?
        };
        Ok(Self { data, replay })
    }

    fn data(config: &Config) -> Result<Data> {
        let (data, probe) = (&config.data, config.data.probe);
        let mut splits = match data.kind {
            DataKind::Xor => {
                Splits::hold_back(&xor(XOR_POINTS, SPLIT_SEED)?, probe, XOR_VALIDATION, SPLIT_SEED)?
            }
            DataKind::Digits => digits(probe, SPLIT_SEED)?,
            DataKind::Mnist => mnist(&data.folder, probe, SPLIT_SEED)?,
            kind if kind.is_text() && data.random_labels => {
                return Err(Error::config(
                    "'data.random_labels' is true, and a text has no labels: what follows a token is its own",
                ));
            }
            DataKind::Rust => return Ok(Arc::new(Text::new(rust_slice()?, probe)).into()),
            DataKind::Text => {
                let tokens = Tokens::read(&data.folder.join("text.tokens"))?;
                return Ok(Arc::new(Text::new(tokens, probe)).into());
            }
        };
        if data.random_labels {
            splits.train = splits.train.with_random_labels(SPLIT_SEED);
            splits.probe = splits.probe.with_random_labels(SPLIT_SEED + 1);
            splits.validation = splits.validation.with_random_labels(SPLIT_SEED + 2);
        }
        Ok(Arc::new(splits).into())
    }

    /// The network of a configuration, if it has no more parameters than are ever trained.
    fn architecture(&self, model: &ModelSection) -> Result<Architecture> {
        let architecture = self.any_architecture(model)?;
        let parameters = architecture.parameter_count();
        if parameters <= MOST_PARAMETERS {
            return Ok(architecture);
        }
        let keys = match model.kind {
            ModelKind::Mlp => "'model.hidden'",
            ModelKind::Cnn => "'model.filters' or 'model.hidden'",
            ModelKind::Gpt => "'model.width' or 'model.layers'",
        };
        Err(Error::config(format!(
            "the network has {parameters} parameters, and {MOST_PARAMETERS} are the most: lower {keys}"
        )))
    }

    fn any_architecture(&self, model: &ModelSection) -> Result<Architecture> {
        let ModelSection { hidden, filters, kernel, context, width, layers, heads, .. } = model;
        let examples = |said: &str| match &self.data {
            Data::Examples(splits) => Ok((splits.train.shape(), splits.classes())),
            Data::Text(_) => Err(Error::config(format!(
                "'model.kind' is '{said}', which cannot learn from a text: use 'model.kind = \"gpt\"'"
            ))),
        };
        match (model.kind, &self.data) {
            (ModelKind::Mlp, _) => {
                let (shape, classes) = examples("mlp")?;
                Architecture::mlp(shape, hidden, classes)
            }
            (ModelKind::Cnn, _) => {
                let (shape, classes) = examples("cnn")?;
                Architecture::cnn(shape, filters, *kernel, hidden, classes)
            }
            (ModelKind::Gpt, Data::Text(text)) => {
                let vocabulary = text.tokens().vocabulary();
                Transformer::new(vocabulary, *context, [*width, *layers, *heads])
                    .map(Architecture::Transformer)
            }
            (ModelKind::Gpt, Data::Examples(_)) => Err(Error::config(
                "'model.kind' is 'gpt', which learns from a text: use 'data.kind = \"rust\"' or 'data.kind = \"text\"'",
            )),
        }
    }

    /// The trainee of a configuration, as it begins.
    pub fn trainee(&self, config: &Config) -> Result<Learner> {
        Learner::new(self.options(config)?, self.data.clone(), &config.run.device, &config.run.products)
    }

    fn options(&self, config: &Config) -> Result<NativeOptions> {
        let architecture = self.architecture(&config.model)?;
        let given = &config.optimiser;
        let optimiser = OptimiserOptions {
            method: given.method,
            beta1: given.beta1,
            beta2: given.beta2,
            momentum: given.momentum,
            weight_decay: given.weight_decay,
            clip: given.clip,
        };
        let (average_decay, batch, seed) = (given.average_decay, config.batch, config.seed);
        Ok(NativeOptions { architecture, optimiser, average_decay, batch, seed })
    }

    /// The engine of a configuration, or none for the plain loop.
    pub fn engine(&self, config: &Config, trainee: &Learner) -> Result<Option<Engine<Learner>>> {
        if !config.engine.enabled {
            return Ok(None);
        }
        let (options, world) = (config.engine.options, config.world);
        if options.sampled > 0.0 && config.run.device != CPU {
            return Err(Error::config(format!(
                "'engine.options.sampled' is {}: on a device every example has its backward pass, set it to 0",
                options.sampled
            )));
        }
        Engine::new(options, world, config.schedule(), self.replay.clone(), config.seed, trainee).map(Some)
    }

    /// Predicts the memory of a run that is kept in a folder, without allocating any of it.
    pub fn memory(&self, config: &Config) -> Result<MemoryPlan> {
        let options = self.options(config)?;
        let (device, products) = (&config.run.device, &config.run.products);
        let there = Learner::bytes(&options, device, products)?;
        let [weights, optimiser, passes] = there;
        // The engine has a list of finished runs of its own.
        let data = self.data.bytes() + 2 * self.replay.bytes();
        let parameters = options.architecture.parameter_count() * size_of::<f32>();
        let (mut snapshots, mut world) = (0, 0);
        if config.engine.enabled {
            snapshots = (config.engine.options.snapshots + 3 * STATE) * parameters;
            world = config.world.bytes();
        }
        let checkpoint = STATE * parameters;
        let there = there.iter().sum::<usize>();
        // Initial weights of a device are drawn here.
        let (host, device) = if device == CPU { (there, 0) } else { (parameters, there) };
        let host = host + data + snapshots + checkpoint + world;
        Ok(MemoryPlan { weights, optimiser, passes, data, snapshots, checkpoint, world, host, device })
    }
}
