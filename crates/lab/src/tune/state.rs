//! A search on disk, so that it can go on later.

use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::search::Search;
use crate::record::tuning::{Strategy, Trial};
use crate::space::{Configuration, Knob};
use crate::store::write_json;
use crate::{Error, Result};

const STATE_VERSION: u32 = 1;

/// Everything a search knows. What it is a search of must not change while it goes on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TuningState {
    version: u32,
    subject: Subject,
    /// All trials, in order.
    pub trials: Vec<Trial>,
}

/// What is searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Subject {
    workload: String,
    device: String,
    /// Of the default configuration's kernels.
    sources: Vec<String>,
    knobs: Vec<Knob>,
    constraints: Vec<String>,
    default: Configuration,
    strategy: Strategy,
    seed: u64,
}

impl TuningState {
    /// A search that has tried nothing yet.
    pub fn new(workload: &str, device: &str, sources: Vec<String>, search: &Search) -> Self {
        let subject = Subject {
            workload: workload.to_owned(),
            device: device.to_owned(),
            sources,
            knobs: search.space().knobs().to_vec(),
            constraints: search.space().constraint_names(),
            default: search.default_configuration().clone(),
            strategy: search.strategy(),
            seed: search.seed(),
        };
        Self { version: STATE_VERSION, subject, trials: Vec::new() }
    }

    /// With the trials of a state file, if there is one. A file of another search is refused.
    pub fn resumed_from(mut self, path: &Path) -> Result<Self> {
        let refuse = |reason: String| Error::TuningState { path: path.to_owned(), reason };
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self),
            read => read.map_err(|error| refuse(error.to_string()))?,
        };
        let found = Self::parse(&bytes).map_err(refuse)?;
        if let Some(difference) = self.subject.difference(&found.subject) {
            return Err(refuse(format!("it is of another search: {difference}")));
        }
        self.trials = found.trials;
        Ok(self)
    }

    /// What a state file says, or what is wrong with it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let found: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if found.version != STATE_VERSION {
            return Err(format!("it has version {} and this program reads {STATE_VERSION}", found.version));
        }
        Ok(found)
    }

    /// Writes the file, so that a crash leaves the old one or the new one.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_json(path, self)
    }
}

impl Subject {
    fn difference(&self, found: &Self) -> Option<String> {
        let pairs = [("workload", &self.workload, &found.workload), ("device", &self.device, &found.device)];
        if let Some((what, here, there)) = pairs.into_iter().find(|(_, here, there)| here != there) {
            return Some(format!("its {what} is {there}, not {here}"));
        }
        if self.seed != found.seed || self.strategy != found.strategy {
            return Some("it has another seed or another way of searching".to_owned());
        }
        if self.sources != found.sources {
            return Some("the kernels have changed since".to_owned());
        }
        (self != found).then(|| "the space has changed since".to_owned())
    }
}
