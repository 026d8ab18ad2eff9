//! Where a model's weights come from.

use std::path::{Path, PathBuf};

use clap::Args;
use gatework_private::model::{Checkpoint, Options, PublicModel, QuantisedWeights, RandomModel};
use gatework_private::range::Trust;

use crate::command::ending::Failure;

/// A checkpoint, or random weights of a known shape.
#[derive(Debug, Clone, Args)]
pub(crate) struct WeightOptions {
    /// The folder with config.json and model.safetensors
    #[arg(long, value_name = "DIR", conflicts_with = "shape")]
    pub(crate) model: Option<PathBuf>,
    /// Instead of a model: random weights in a well-known shape, for measurements
    #[arg(long, value_name = "NAME")]
    pub(crate) shape: Option<String>,
    /// The seed of random weights
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

impl WeightOptions {
    /// Whether any were given.
    pub(super) fn are_named(&self) -> bool {
        self.model.is_some() || self.shape.is_some()
    }

    /// What is read, for people.
    pub(super) fn name(&self) -> String {
        match (&self.shape, &self.model) {
            (Some(shape), _) => shape.clone(),
            (None, Some(folder)) => folder.display().to_string(),
            (None, None) => "no model".to_owned(),
        }
    }

    /// Reads the checkpoint, if it is one.
    pub(super) fn read(&self) -> Result<Weights, Failure> {
        match (&self.shape, &self.model) {
            (Some(shape), _) => Ok(Weights::Random(RandomModel::new(shape, self.seed)?)),
            (None, Some(folder)) => Ok(Weights::Checkpoint(checkpoint(folder)?)),
            (None, None) => Err(Failure::input("pass --model DIR or --shape NAME".into())),
        }
    }

    /// The same options on the command line of another process.
    pub(super) fn arguments(&self) -> Vec<String> {
        match (&self.shape, &self.model) {
            (Some(shape), _) => {
                vec!["--shape".into(), shape.clone(), "--seed".into(), self.seed.to_string()]
            }
            (None, folder) => {
                let folder = folder.iter().map(|folder| folder.display().to_string());
                folder.flat_map(|folder| ["--model".to_owned(), folder]).collect()
            }
        }
    }
}

/// Reads a model's folder, and says what one is where that is none.
pub(super) fn checkpoint(folder: &Path) -> Result<Checkpoint, Failure> {
    for file in ["config.json", "model.safetensors"] {
        let path = folder.join(file);
        if !path.is_file() {
            let why = format!("{} is missing: name the folder of a model from Hugging Face", path.display());
            return Err(Failure::input(format!("--model {}: {why}", folder.display())));
        }
    }
    Ok(Checkpoint::load(folder)?)
}

/// Weights that are there.
pub(super) enum Weights {
    Checkpoint(Checkpoint),
    Random(RandomModel),
}

impl Weights {
    /// What is public of them.
    pub(super) fn public(&self, longest: usize, trust: Trust) -> Result<PublicModel, Failure> {
        Ok(match self {
            Self::Checkpoint(checkpoint) => {
                checkpoint.public(longest, &Options { trust, ..Options::default() })?
            }
            Self::Random(model) => model.public_by(longest, trust)?,
        })
    }

    /// The weights as integers, for the model that was made public.
    pub(super) fn quantised(&self, public: &PublicModel) -> Result<QuantisedWeights, Failure> {
        Ok(match self {
            Self::Checkpoint(checkpoint) => checkpoint.weights(public)?,
            Self::Random(model) => model.weights(public)?,
        })
    }
}
