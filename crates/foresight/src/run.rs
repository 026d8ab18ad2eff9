//! A whole run: steps, evaluations, logs, checkpoints.

use std::sync::atomic::{AtomicBool, Ordering};

use gatework_contract::Observer;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Kept, RunFolder};
use crate::config::{Config, Prepared};
use crate::engine::{Counts, Engine, Event};
use crate::error::{Error, Result};
use crate::forecast::Curve;
use crate::learner::Learner;
use crate::ledger::{Ledger, Phase};
use crate::log::{Logs, Offsets, Row};
use crate::snapshot::NativeSnapshot;
use crate::trainee::{Evaluation, Trainee as _, Which};
use crate::trainer::{Saved, Saving, Trainer};
use crate::world::Source;

/// How a run did at a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// Steps that were done.
    pub step: u64,
    /// Of the weights, on the validation examples.
    pub trained: Evaluation,
    /// Of their average, on the same.
    pub averaged: Evaluation,
    /// The loss of their average on the probe.
    pub probe: f64,
    /// Seconds of training so far.
    pub seconds: f64,
    /// Full-backward equivalents so far.
    pub equivalents: f64,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Steps.
    pub steps: u64,
    /// Every evaluation, the last at the end.
    pub evaluations: Vec<Evaluated>,
    /// The cost by phase.
    pub ledger: Ledger,
    /// Counts of the engine's actions.
    pub counts: Counts,
    /// Whether it ended before its last step, by patience or by the engine.
    pub ended_early: bool,
}

impl Summary {
    /// The last evaluation.
    pub fn last(&self) -> Option<&Evaluated> {
        self.evaluations.last()
    }
}

/// A step that was taken.
#[derive(Debug, Clone, Copy)]
pub struct Stepped<'a> {
    /// Its number, from 0. After an action is undone, or a rollback, numbers come again.
    pub step: u64,
    /// Its training loss.
    pub loss: f64,
    /// Its phase.
    pub phase: Phase,
    /// The cost of the run so far.
    pub ledger: &'a Ledger,
}

/// Hears of a run while it runs.
pub trait Listener {
    /// A step.
    fn stepped(&mut self, _: &Stepped<'_>) {}
    /// An evaluation.
    fn evaluated(&mut self, _: &Evaluated) {}
    /// Something that happened at a step.
    fn happened(&mut self, _step: u64, _: &Event) {}
    /// A checkpoint that cannot be used.
    fn refused(&mut self, _: &Error) {}
}

impl Listener for () {}

/// What a checkpoint holds.
#[derive(Debug, Deserialize)]
struct Checkpoint {
    trainer: Saved<NativeSnapshot, Vec<f32>>,
    evaluations: Vec<Evaluated>,
    /// Losses on the probe and steps of the best evaluations, the best first.
    best: Vec<(f64, u64)>,
    /// The training loss of every step.
    losses: Vec<f32>,
    /// Finished runs that the world model learns from.
    replay: Vec<Source>,
    logs: Offsets,
}

/// The same as it is written, in the same order, from where it lies.
#[derive(Debug, Serialize)]
struct Written<'a> {
    trainer: Saving<'a, NativeSnapshot, Vec<f32>>,
    evaluations: &'a [Evaluated],
    best: &'a [(f64, u64)],
    losses: &'a [f32],
    replay: &'a [Source],
    logs: Offsets,
}

/// A run and where it is kept.
pub struct Run<'a> {
    config: &'a Config,
    trainer: Trainer<Learner>,
    folder: Option<&'a RunFolder>,
    logs: Option<Logs>,
    evaluations: Vec<Evaluated>,
    best: Vec<(f64, u64)>,
    losses: Vec<f32>,
    replay: Vec<Source>,
}

impl<'a> Run<'a> {
    /// A run at step 0. With a folder it leaves its configuration, logs and checkpoints there.
    pub fn start(config: &'a Config, prepared: &Prepared, folder: Option<&'a RunFolder>) -> Result<Self> {
        let plan = prepared.memory(config)?;
        if folder.is_some() { plan } else { plan.without_checkpoints() }.check(config)?;
        let trainee = prepared.trainee(config)?;
        let engine = prepared.engine(config, &trainee)?;
        let trainer = Trainer::new(trainee, engine, config.schedule());
        let mut logs = None;
        if let Some(folder) = folder {
            if let Some(step) = folder.steps()?.first() {
                let what = format!(
                    "{} holds a run at step {step}: resume it, or name another folder",
                    folder.path().display()
                );
                return Err(Error::shape(what));
            }
            let (path, text) = (folder.path().join(CONFIG), config.text()?);
            match std::fs::read_to_string(&path) {
                Ok(found) if found != text => {
                    let what = format!(
                        "{} is there and says something else: name another folder, or remove it",
                        path.display()
                    );
                    return Err(Error::shape(what));
                }
                Ok(_) => {}
                Err(_) => std::fs::write(&path, text).map_err(Error::writing(&path))?,
            }
            logs = Some(Logs::open(folder.path(), Offsets::default())?);
        }
        Ok(Self {
            config,
            trainer,
            folder,
            logs,
            evaluations: Vec::new(),
            best: Vec::new(),
            losses: Vec::new(),
            replay: prepared.replay.sources(),
        })
    }

    /// A run where its newest usable checkpoint left it.
    pub fn resume(
        config: &'a Config,
        prepared: &Prepared,
        folder: &'a RunFolder,
        listener: &mut dyn Listener,
    ) -> Result<Self> {
        prepared.memory(config)?.check(config)?;
        let trainee = prepared.trainee(config)?;
        let mut newest_refused = None;
        let found = folder.newest::<Checkpoint>(&fingerprint(&trainee, config)?, |error| {
            newest_refused.get_or_insert_with(|| error.to_string());
            listener.refused(error);
        })?;
        let Some((_, checkpoint)) = found else {
            let (count, folder) = (folder.steps()?.len(), folder.path().to_owned());
            let why = newest_refused.map_or_else(String::new, |why| format!(": {why}"));
            let what = format!("it has {count} checkpoints, and none that can be used{why}");
            return Err(Error::NothingToResume { folder, what });
        };
        let Checkpoint { trainer: saved, evaluations, best, losses, replay, logs } = checkpoint;
        let trainer = Trainer::resumed(trainee, config.schedule(), saved, |trainee| {
            if replay == prepared.replay.sources() {
                return prepared.engine(config, trainee);
            }
            let began = Prepared { replay: prepared.replay.only(&replay)?, data: prepared.data.clone() };
            began.engine(config, trainee)
        })?;
        let logs = Some(Logs::open(folder.path(), logs)?);
        Ok(Self { config, trainer, folder: Some(folder), logs, evaluations, best, losses, replay })
    }

    /// Its loss curve so far, with the rates of its schedule.
    pub fn curve(&self) -> Result<Curve> {
        let schedule = self.config.schedule();
        let losses = self.losses.iter().enumerate();
        Curve::new(losses.map(|(step, &loss)| {
            // A loss that is no number stays one, which is then no curve.
            let loss = f64::from(loss);
            let loss = if loss < LEAST_LOSS { LEAST_LOSS } else { loss };
            (step as f64, loss, Some(schedule.rate(step as u64)))
        }))
    }

    /// The trainer.
    pub fn trainer(&self) -> &Trainer<Learner> {
        &self.trainer
    }

    /// Trains to the end. When `interrupted` becomes true the run is saved if it has a folder, and this returns
    /// [`Error::Interrupted`].
    pub fn finish(
        &mut self,
        observer: &dyn Observer,
        interrupted: &AtomicBool,
        listener: &mut dyn Listener,
    ) -> Result<Summary> {
        self.train_to(u64::MAX, observer, interrupted, listener)?;
        self.conclude(listener)
    }

    /// Trains to a step, or to the end if that comes first, and says whether it did. The run is saved there.
    pub fn train_to(
        &mut self,
        limit: u64,
        observer: &dyn Observer,
        interrupted: &AtomicBool,
        listener: &mut dyn Listener,
    ) -> Result<bool> {
        let stage = observer.stage("training");
        while !self.trainer.is_finished() && !self.has_lost_patience() {
            if self.trainer.step() >= limit {
                self.save()?;
                return Ok(false);
            }
            if interrupted.load(Ordering::Relaxed) {
                self.save()?;
                return Err(Error::Interrupted { step: self.trainer.step(), saved: self.folder.is_some() });
            }
            let report = self.trainer.advance()?;
            for event in &report.events {
                listener.happened(self.trainer.step(), event);
                if let Some(logs) = &mut self.logs {
                    logs.write_json(&Happened { step: self.trainer.step(), event })?;
                }
            }
            let Some(step) = report.step else { continue };
            let done = step + 1;
            if self.losses.len() as u64 > step {
                // An action was undone, or the run went back.
                self.losses.truncate(step as usize);
                self.evaluations.retain(|evaluated| evaluated.step <= step);
                self.best.retain(|(_, at)| *at <= step);
            }
            self.losses.push(report.loss as f32);
            let ledger = self.trainer.ledger();
            listener.stepped(&Stepped { step, loss: report.loss, phase: report.phase, ledger });
            stage.counted("steps", done, Some(self.config.steps));
            let mut row = Row { step: done, phase: report.phase.name(), ..self.row() };
            (row.loss, row.rate) = (Some(report.loss), Some(report.rate));
            if done.is_multiple_of(self.config.run.evaluate_every) && done < self.config.steps {
                let evaluated = self.evaluate()?;
                row = row_of(row, &evaluated);
                listener.evaluated(&evaluated);
                if let Some([mean, deviation]) = self.trainer.engine().and_then(Engine::end) {
                    let end = DirectForecast { step: done, ln_final_probe_loss: mean, deviation };
                    self.logs.as_mut().map_or(Ok(()), |logs| logs.write_json(&end))?;
                }
            }
            if done.is_multiple_of(self.config.run.log_every) || row.validation.is_some() {
                self.log(&row)?;
            }
            if done.is_multiple_of(self.config.run.checkpoint_every) {
                self.save()?;
            }
        }
        Ok(true)
    }

    /// The last evaluation and the last checkpoint. A run that was resumed at its end has both already.
    fn conclude(&mut self, listener: &mut dyn Listener) -> Result<Summary> {
        let step = self.trainer.step();
        if self.evaluations.last().is_none_or(|last| last.step != step) {
            let evaluated = self.evaluate()?;
            listener.evaluated(&evaluated);
            let row = row_of(Row { step, phase: "end", ..self.row() }, &evaluated);
            self.log(&row)?;
        }
        self.save()?;
        self.remember()?;
        Ok(Summary {
            steps: step,
            evaluations: self.evaluations.clone(),
            ledger: *self.trainer.ledger(),
            counts: self.trainer.counts(),
            ended_early: step < self.config.steps,
        })
    }

    /// Leaves what the world model saw in the replay folder, under a name that follows from the
    /// configuration: a run that is repeated takes its own place.
    fn remember(&self) -> Result<()> {
        let folder = &self.config.engine.replay;
        let (Some(engine), false) = (self.trainer.engine(), folder.as_os_str().is_empty()) else {
            return Ok(());
        };
        let Some(last) = self.evaluations.last() else { return Ok(()) };
        let name = blake3::hash(self.config.text()?.as_bytes()).to_hex();
        engine.episode(last.probe).save(folder, &name[..16])
    }

    fn row(&self) -> Row {
        let total = self.trainer.ledger().total();
        Row { seconds: total.seconds, equivalents: total.equivalents, ..Row::default() }
    }

    fn log(&mut self, row: &Row) -> Result<()> {
        self.logs.as_mut().map_or(Ok(()), |logs| logs.write(row))
    }

    fn evaluate(&mut self) -> Result<Evaluated> {
        let trainee = self.trainer.trainee();
        let total = self.trainer.ledger().total();
        let evaluated = Evaluated {
            step: self.trainer.step(),
            trained: trainee.evaluate(Which::Trained)?,
            averaged: trainee.evaluate(Which::Averaged)?,
            probe: trainee.probe(Which::Averaged)?.loss,
            seconds: total.seconds,
            equivalents: total.equivalents,
        };
        self.evaluations.push(evaluated);
        Ok(evaluated)
    }

    fn has_lost_patience(&self) -> bool {
        let patience = self.config.run.patience as usize;
        let lowest = self
            .evaluations
            .iter()
            .enumerate()
            .min_by(|a, b| comparable(a.1.probe).total_cmp(&comparable(b.1.probe)));
        patience > 0 && lowest.is_some_and(|(place, _)| self.evaluations.len() - 1 - place >= patience)
    }

    /// Writes a checkpoint of the run as it is.
    fn save(&mut self) -> Result<()> {
        let (Some(folder), Some(logs)) = (self.folder, &mut self.logs) else { return Ok(()) };
        let offsets = logs.sync()?;
        let step = self.trainer.step();
        // A checkpoint that an interrupt asks for is no other run's: it does not compete.
        let scheduled = step.is_multiple_of(self.config.run.checkpoint_every) || self.trainer.is_finished();
        if scheduled && self.config.run.keep_best > 0 {
            let known = self.evaluations.last().filter(|last| last.step == step).map(|last| last.probe);
            let probe = match known {
                Some(probe) => probe,
                None => self.trainer.trainee().probe(Which::Averaged)?.loss,
            };
            self.best.retain(|(_, kept)| *kept != step);
            self.best.push((comparable(probe), step));
            self.best.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            self.best.truncate(self.config.run.keep_best);
        }
        let steps: Vec<u64> = self.best.iter().map(|(_, step)| *step).collect();
        let written = Written {
            trainer: self.trainer.saving()?,
            evaluations: &self.evaluations,
            best: &self.best,
            losses: &self.losses,
            replay: &self.replay,
            logs: offsets,
        };
        let kept = Kept { newest: self.config.run.keep_newest, best: &steps };
        folder.save(step, &fingerprint(self.trainer.trainee(), self.config)?, &written, kept)
    }
}

/// The trainer of a plain loop as a checkpoint of these bytes left it.
#[cfg(feature = "fuzzing")]
pub(crate) fn restored(config: &Config, prepared: &Prepared, bytes: &[u8]) -> Result<Trainer<Learner>> {
    let trainee = prepared.trainee(config)?;
    let (path, fingerprint) = (std::path::Path::new("a.checkpoint"), fingerprint(&trainee, config)?);
    let mut trainer = Trainer::new(trainee, None, config.schedule());
    let checkpoint: Checkpoint =
        crate::checkpoint::parse(path, bytes, &crate::checkpoint::RUNS, &fingerprint)?;
    trainer.restore(checkpoint.trainer)?;
    Ok(trainer)
}

/// What a curve has where a loss is zero: its logarithm is taken.
const LEAST_LOSS: f64 = 1e-12;

/// A loss for comparisons, in which what is no number is more than any, whatever its sign.
pub(crate) fn comparable(loss: f64) -> f64 {
    if loss.is_finite() { loss } else { f64::INFINITY }
}

/// What a checkpoint must agree in, in words: the network, and everything in the configuration that decides
/// its weights.
fn fingerprint(trainee: &Learner, config: &Config) -> Result<String> {
    let deciding = Config { run: Default::default(), ..config.clone() };
    let hash = blake3::hash(deciding.text()?.as_bytes()).to_hex();
    let with = if config.engine.enabled { "with the engine" } else { "plain" };
    let (trainee, steps) = (trainee.fingerprint(), config.steps);
    Ok(format!("{trainee}, {with}, {steps} steps, configuration {}", &hash[..12]))
}

/// The name of a run's configuration in its folder.
pub const CONFIG: &str = "config.toml";

/// The configuration that a run folder was started with.
pub fn configuration_of(folder: &std::path::Path) -> Result<Config> {
    let path = folder.join(CONFIG);
    if !path.exists() {
        let what = format!("there is no {CONFIG} in it; 'gatework train run --out' makes run folders");
        return Err(Error::NothingToResume { folder: folder.to_owned(), what });
    }
    Config::default().with_file(&path)
}

/// What the direct head says of the end, which is not calibrated.
#[derive(Serialize)]
struct DirectForecast {
    step: u64,
    ln_final_probe_loss: f64,
    deviation: f64,
}

#[derive(Serialize)]
struct Happened<'a> {
    step: u64,
    #[serde(flatten)]
    event: &'a Event,
}

fn row_of(row: Row, evaluated: &Evaluated) -> Row {
    Row {
        validation: Some(evaluated.trained.loss),
        averaged: Some(evaluated.averaged.loss),
        accuracy: Some(evaluated.averaged.accuracy),
        ..row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Replay;

    #[test]
    fn a_finished_run_is_remembered_and_the_next_one_foresees_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let replay = folder.path().join("replay");
        let text = format!(
            "steps = 240\n[engine]\nreplay = {:?}\n[engine.options]\npredictor_share = 1\nlearn_every = 8\n\
             [world]\nmembers = 2\nhidden = 12\ncategories = 2\nclasses = 3\n[run]\nevaluate_every = 60",
            replay.display().to_string()
        );
        let go_on = AtomicBool::new(false);
        for seed in 1..=3 {
            let config = Config::preset("digits").unwrap().with_text("test", &text).unwrap();
            let config = Config { seed, ..config };
            let prepared = Prepared::of(&config, |error| panic!("{error}")).unwrap();
            assert_eq!(prepared.replay.episodes().count() as u64, seed - 1);
            let home = RunFolder::open(&folder.path().join(seed.to_string())).unwrap();
            Run::start(&config, &prepared, Some(&home)).unwrap().finish(&(), &go_on, &mut ()).unwrap();
            let log = std::fs::read_to_string(home.path().join("log.jsonl")).unwrap();
            // The first run knows of no end.
            assert_eq!(log.contains("ln_final_probe_loss"), seed > 1);
        }
        let replay = Replay::read(&replay, |error| panic!("{error}")).unwrap();
        let episodes: Vec<_> = replay.episodes().collect();
        assert_eq!(episodes.len(), 3);
        assert!(
            episodes
                .iter()
                .all(|episode| episode.ticks.len() >= 28 && episode.end.is_some_and(|end| end < 0.0))
        );
    }
}
