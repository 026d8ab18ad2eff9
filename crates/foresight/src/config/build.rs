//! From a configuration to what trains.

use std::sync::Arc;

use serde::Serialize;

use super::sections::{Config, DataKind, ModelKind, ModelSection};
use crate::data::{Splits, digits, mnist, xor};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::native::{Native, NativeOptions};
use crate::network::Architecture;
use crate::optimiser::OptimiserOptions;
use crate::world::Replay;

/// Noisy points of XOR: to train on, to probe with, to validate on.
const XOR_POINTS: usize = 2000;
const XOR_VALIDATION: usize = 500;
/// The data sets are split the same way for every seed, so that seeds differ in nothing but the run.
const SPLIT_SEED: u64 = 1;

/// Data and finished runs, read once for as many runs as one likes.
#[derive(Clone)]
pub struct Prepared {
    /// The data.
    pub splits: Arc<Splits>,
    /// Finished runs.
    pub replay: Replay,
}

/// Bytes that a run will hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// Weights and their average.
    pub weights: usize,
    /// Moments and the last displacement.
    pub optimiser: usize,
    /// Activations and gradients of all shards.
    pub passes: usize,
    /// All examples.
    pub data: usize,
    /// Snapshots of weights, two states to go back to and one of an action that is tried.
    pub snapshots: usize,
    /// The world model.
    pub world: usize,
}

impl MemoryPlan {
    /// All of it.
    pub fn total(&self) -> usize {
        self.weights + self.optimiser + self.passes + self.data + self.snapshots + self.world
    }
}

impl Prepared {
    /// Reads the data that a configuration names.
    pub fn of(config: &Config, refused: impl FnMut(&Error)) -> Result<Self> {
        let probe = config.data.probe;
        let mut splits = match config.data.kind {
            DataKind::Xor => {
                Splits::hold_back(&xor(XOR_POINTS, SPLIT_SEED)?, probe, XOR_VALIDATION, SPLIT_SEED)?
            }
            DataKind::Digits => digits(probe, SPLIT_SEED)?,
            DataKind::Mnist => mnist(&config.data.folder, probe, SPLIT_SEED)?,
        };
        if config.data.random_labels {
            splits.train = splits.train.with_random_labels(SPLIT_SEED);
            splits.probe = splits.probe.with_random_labels(SPLIT_SEED + 1);
            splits.validation = splits.validation.with_random_labels(SPLIT_SEED + 2);
        }
        let replay = if config.engine.replay.as_os_str().is_empty() {
            Replay::default()
        } else {
            Replay::read(&config.engine.replay, refused)?
        };
        Ok(Self { splits: Arc::new(splits), replay })
    }

    fn architecture(&self, model: &ModelSection) -> Result<Architecture> {
        let (shape, classes) = (self.splits.train.shape(), self.splits.classes());
        match model.kind {
            ModelKind::Mlp => Architecture::mlp(shape, &model.hidden, classes),
            ModelKind::Cnn => Architecture::cnn(shape, &model.filters, model.kernel, &model.hidden, classes),
        }
    }

    /// The trainee of a configuration, as it begins.
    pub fn trainee(&self, config: &Config) -> Result<Native> {
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
        Native::new(
            NativeOptions { architecture, optimiser, average_decay, batch, seed },
            Arc::clone(&self.splits),
        )
    }

    /// The engine of a configuration, or none for the plain loop.
    pub fn engine(&self, config: &Config, trainee: &Native) -> Result<Option<Engine<Native>>> {
        if !config.engine.enabled {
            return Ok(None);
        }
        let (options, world) = (config.engine.options, config.world);
        Engine::new(options, world, config.schedule(), self.replay.clone(), config.seed, trainee).map(Some)
    }

    /// What a run will hold. Nothing of it is allocated.
    pub fn memory(&self, config: &Config) -> Result<MemoryPlan> {
        let architecture = self.architecture(&config.model)?;
        let [weights, optimiser, passes] = Native::bytes(&architecture, config.batch);
        let splits = [&self.splits.train, &self.splits.probe, &self.splits.validation];
        let data = splits.iter().map(|part| part.count() * (part.size() * size_of::<f32>() + 2)).sum();
        let (mut snapshots, mut world) = (0, 0);
        if config.engine.enabled {
            let parameters = architecture.parameter_count() * size_of::<f32>();
            snapshots = config.engine.options.snapshots * parameters + 3 * (weights + optimiser);
            world = config.world.bytes();
        }
        Ok(MemoryPlan { weights, optimiser, passes, data, snapshots, world })
    }
}
