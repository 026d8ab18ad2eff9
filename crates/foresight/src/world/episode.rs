//! Runs as the world model sees them, and a folder of finished ones.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, Layout};
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

/// A file of a replay folder: its name, and the BLAKE3 of what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    name: String,
    hash: String,
}

/// Finished runs of a folder, in the order of their files' names.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    runs: Vec<(Source, Episode)>,
}

/// Files of a replay folder. What is in one has not changed since version 2, whatever became of checkpoints.
const LAYOUT: Layout = Layout {
    versions: 2..=3,
    way_out: "remove it from the replay folder, or train that run again",
    of_another: "remove it from the replay folder",
};
const KIND: &str = "episode of 64 features and its tick";
const EXTENSION: &str = "episode";

impl Episode {
    /// Writes a finished run into a replay folder, whole or not at all.
    pub fn save(&self, folder: &Path, name: &str) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(Error::writing(folder))?;
        checkpoint::write(&folder.join(format!("{name}.{EXTENSION}")), &LAYOUT, KIND, self)
    }

    /// An episode from the bytes of a file that errors call `path`.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let episode: Self = checkpoint::parse(path, bytes, &LAYOUT, KIND)?;
        if episode.ticks.iter().any(|tick| tick.features.len() != FEATURES) {
            return Err(Error::checkpoint(path, format!("its ticks have not {FEATURES} features")));
        }
        Ok(episode)
    }
}

impl Replay {
    /// Reads all episodes of a folder; a folder that is not there has none. What cannot be used goes to
    /// `refused`.
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
        let mut runs = Vec::new();
        for path in paths {
            let bytes = std::fs::read(&path).map_err(Error::reading(&path))?;
            match Episode::parse(&path, &bytes) {
                Ok(episode) => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    let hash = blake3::hash(&bytes).to_hex().to_string();
                    runs.push((Source { name, hash }, episode));
                }
                Err(error) => refused(&error),
            }
        }
        Ok(Self { runs })
    }

    /// The runs.
    pub fn episodes(&self) -> impl Iterator<Item = &Episode> {
        self.runs.iter().map(|(_, episode)| episode)
    }

    /// Bytes of all their ticks.
    pub(crate) fn bytes(&self) -> usize {
        let tick = size_of::<Tick>() + FEATURES * size_of::<f32>();
        self.episodes().map(|episode| episode.ticks.len() * tick).sum()
    }

    /// Where they are from.
    pub fn sources(&self) -> Vec<Source> {
        self.runs.iter().map(|(source, _)| source.clone()).collect()
    }

    /// Those whose ticks are of so many steps.
    pub fn with_ticks_of(mut self, steps: u64) -> Self {
        self.runs.retain(|(_, episode)| episode.every == steps);
        self
    }

    /// These runs alone, in this order: a run that goes on learns from what it began with, whatever was added
    /// since.
    pub fn only(&self, sources: &[Source]) -> Result<Self> {
        let runs = sources.iter().map(|wanted| {
            self.runs.iter().find(|(source, _)| source == wanted).cloned().ok_or_else(|| {
                Error::shape(format!(
                    "the run learns from the finished run {} of its replay folder, which is no longer there or has changed: \
                     put it back",
                    wanted.name
                ))
            })
        });
        Ok(Self { runs: runs.collect::<Result<_>>()? })
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
        assert_eq!(replay.episodes().collect::<Vec<_>>(), [&Episode::default(), &episode]);
        assert_eq!(refused, 1);
        assert_eq!(Replay::read(&folder.path().join("none"), |_| ()).unwrap().episodes().count(), 0);
        // What is added later is left out, and what has changed is missed.
        let began = replay.sources();
        episode.save(folder.path(), "0").unwrap();
        let later = Replay::read(folder.path(), |_| ()).unwrap();
        assert_eq!(later.episodes().count(), 3);
        assert_eq!(later.only(&began).unwrap().sources(), began);
        Episode::default().save(folder.path(), "b").unwrap();
        let changed = Replay::read(folder.path(), |_| ()).unwrap().only(&began).unwrap_err().to_string();
        assert!(changed.contains("b.episode") && changed.contains("changed"), "{changed}");
    }

    #[test]
    fn episodes_of_version_2_are_read_and_later_ones_are_refused_with_a_way_out() {
        let folder = tempfile::tempdir().unwrap();
        Episode::default().save(folder.path(), "old").unwrap();
        let path = folder.path().join("old.episode");
        let read_as = |version: u8| {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[8] = version;
            Episode::parse(&path, &bytes).map_err(|error| error.to_string())
        };
        assert_eq!([2, 3].map(read_as), [Ok(Episode::default()), Ok(Episode::default())]);
        let said = read_as(4).unwrap_err();
        assert!(said.contains("reads 2 to 3: remove it from the replay folder"), "{said}");
    }
}
