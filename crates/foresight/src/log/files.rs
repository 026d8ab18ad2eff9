//! The files of a run's log, which go back with the run.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::tensorboard::{scalar_event, version_event};
use crate::error::{Error, Result};

/// A line of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Row {
    /// Steps that are done.
    pub step: u64,
    /// The phase of the last.
    pub phase: &'static str,
    /// Its training loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Its learning rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The validation loss of the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<f64>,
    /// The validation loss of their average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub averaged: Option<f64>,
    /// The validation accuracy of their average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Seconds so far.
    pub seconds: f64,
    /// Full-backward equivalents so far.
    pub equivalents: f64,
}

const HEADER: &str = "step,phase,loss,rate,validation,averaged,accuracy,seconds,equivalents\n";
/// In the order of [`Offsets`].
const NAMES: [&str; 3] = ["log.jsonl", "log.csv", "events.out.tfevents.0.gatework"];

/// How long each file is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offsets([u64; 3]);

/// The three files of a run's log.
#[derive(Debug)]
pub struct Logs {
    files: [(PathBuf, BufWriter<File>); 3],
    offsets: Offsets,
}

impl Logs {
    /// Opens the files of a run folder at `offsets`: what was written after the checkpoint that they are of
    /// is cut off.
    pub fn open(folder: &Path, offsets: Offsets) -> Result<Self> {
        let open = |place: usize| -> Result<(PathBuf, BufWriter<File>)> {
            let path = folder.join(NAMES[place]);
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let cut = file.and_then(|mut file| {
                file.set_len(offsets.0[place])?;
                file.seek(SeekFrom::End(0))?;
                Ok(file)
            });
            Ok((path.clone(), BufWriter::new(cut.map_err(Error::writing(&path))?)))
        };
        let mut logs = Self { files: [open(0)?, open(1)?, open(2)?], offsets };
        if offsets == Offsets::default() {
            logs.append(1, HEADER.as_bytes())?;
            logs.append(2, &version_event(0.0))?;
        }
        Ok(logs)
    }

    fn append(&mut self, place: usize, bytes: &[u8]) -> Result<()> {
        let (path, file) = &mut self.files[place];
        file.write_all(bytes).map_err(Error::writing(path))?;
        self.offsets.0[place] += bytes.len() as u64;
        Ok(())
    }

    /// A line in every file.
    pub fn write(&mut self, row: &Row) -> Result<()> {
        self.write_json(row)?;
        let cell = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let line = format!(
            "{},{},{},{},{},{},{},{:.3},{:.3}\n",
            row.step,
            row.phase,
            cell(row.loss),
            cell(row.rate),
            cell(row.validation),
            cell(row.averaged),
            cell(row.accuracy),
            row.seconds,
            row.equivalents
        );
        self.append(1, line.as_bytes())?;
        let tags = [
            ("train/loss", row.loss),
            ("train/rate", row.rate),
            ("validation/loss", row.validation),
            ("validation/averaged_loss", row.averaged),
            ("validation/averaged_accuracy", row.accuracy),
        ];
        for (tag, value) in tags {
            if let Some(value) = value {
                self.append(2, &scalar_event(row.seconds, row.step, tag, value as f32))?;
            }
        }
        Ok(())
    }

    /// A JSON line of anything: an event, for one.
    pub fn write_json(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string(line)
            .map_err(|error| Error::shape(format!("a line of the log cannot be written as JSON: {error}")))?;
        text.push('\n');
        self.append(0, text.as_bytes())
    }

    /// Puts everything on disk and says how long the files are.
    pub fn sync(&mut self) -> Result<Offsets> {
        for (path, file) in &mut self.files {
            file.flush().and_then(|()| file.get_ref().sync_data()).map_err(Error::writing(path))?;
        }
        Ok(self.offsets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_after_a_checkpoint_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let row = |step| Row { step, phase: "full", loss: Some(0.5), ..Row::default() };
        let mut logs = Logs::open(folder.path(), Offsets::default()).unwrap();
        logs.write(&row(1)).unwrap();
        let offsets = logs.sync().unwrap();
        let read = || NAMES.map(|name| std::fs::read(folder.path().join(name)).unwrap());
        let kept = read();
        logs.write(&row(2)).unwrap();
        logs.sync().unwrap();
        assert_ne!(read(), kept);
        drop(logs);
        Logs::open(folder.path(), offsets).unwrap().sync().unwrap();
        assert_eq!(read(), kept);
        let text = String::from_utf8(kept[0].clone()).unwrap();
        assert_eq!(
            text,
            "{\"step\":1,\"phase\":\"full\",\"loss\":0.5,\"seconds\":0.0,\"equivalents\":0.0}\n"
        );
        assert!(String::from_utf8(kept[1].clone()).unwrap().ends_with("1,full,0.5,,,,,0.000,0.000\n"));
    }
}
