//! Runs as the world model sees them, and a folder of finished ones.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::checkpoint;
use crate::error::{Error, Result};
use crate::state::FEATURES;

/// Numbers that say which action was in effect and what the schedule does meanwhile.
pub const ACTION: usize = 6;

/// One look at a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Normalised features, [`FEATURES`] of them.
    pub features: Vec<f32>,
    /// The action that is in effect from here to the next tick.
    pub action: [f32; ACTION],
    /// The logarithm of the smoothed loss.
    pub level: f32,
}

/// A run, or what there is of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// Steps between two of its ticks.
    pub every: u64,
    /// Its ticks in order.
    pub ticks: Vec<Tick>,
    /// The logarithm of its final probe loss, once it is over.
    pub end: Option<f32>,
}

/// Finished runs of a folder.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    /// In the order of their files' names.
    pub episodes: Vec<Episode>,
}

const KIND: &str = "episode of 64 features and its tick";
const EXTENSION: &str = "episode";

impl Episode {
    /// Writes a finished run into a replay folder, whole or not at all.
    pub fn save(&self, folder: &Path, name: &str) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(Error::writing(folder))?;
        checkpoint::write(&folder.join(format!("{name}.{EXTENSION}")), KIND, self)
    }
}

impl Replay {
    /// Reads all episodes of a folder; a folder that is not there has none. What cannot be used goes to `refused`.
    pub fn read(folder: &Path, mut refused: impl FnMut(&Error)) -> Result<Self> {
        if !folder.exists() {
            return Ok(Self::default());
        }
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(Error::reading(folder))? {
            let path = entry.map_err(Error::reading(folder))?.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                paths.push(path);
            }
        }
        paths.sort();
        let mut episodes = Vec::new();
        for path in paths {
            match checkpoint::read::<Episode>(&path, KIND) {
                Ok(episode) if episode.ticks.iter().all(|tick| tick.features.len() == FEATURES) => {
                    episodes.push(episode);
                }
                Ok(_) => {
                    refused(&Error::checkpoint(&path, format!("its ticks have not {FEATURES} features")));
                }
                Err(error) => refused(&error),
            }
        }
        Ok(Self { episodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_folder_gives_back_what_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let tick = |level| Tick { features: vec![0.5; FEATURES], action: [0.0; ACTION], level };
        let episode = Episode { every: 8, ticks: vec![tick(1.0), tick(0.5)], end: Some(-1.0) };
        episode.save(folder.path(), "b").unwrap();
        Episode::default().save(folder.path(), "a").unwrap();
        std::fs::write(folder.path().join("c.episode"), b"nothing").unwrap();
        let mut refused = 0;
        let replay = Replay::read(folder.path(), |_| refused += 1).unwrap();
        assert_eq!((replay.episodes, refused), (vec![Episode::default(), episode], 1));
        assert!(Replay::read(&folder.path().join("none"), |_| ()).unwrap().episodes.is_empty());
    }
}
