//! The loop: with the engine, or plain.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::engine::{Counts, Engine, EngineState, Report};
use crate::error::{Error, Result};
use crate::ledger::{Ledger, Phase};
use crate::optimiser::Schedule;
use crate::trainee::{Step, Trainee};

/// A trainee with its schedule and its ledger. Without an engine it takes full steps and nothing else: the
/// baseline, and the same code otherwise.
pub struct Trainer<T: Trainee> {
    trainee: T,
    engine: Option<Engine<T>>,
    schedule: Schedule,
    step: u64,
    ledger: Ledger,
}

/// Everything that decides what a trainer does next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saved<S, W> {
    step: u64,
    /// The trainee's.
    pub trainee: S,
    engine: Option<EngineState<S, W>>,
    ledger: Ledger,
}

/// The same to be written alone, without a copy of what the engine keeps: it has the bytes of [`Saved`].
#[derive(Debug, Serialize)]
pub struct Saving<'a, S, W> {
    step: u64,
    trainee: S,
    engine: Option<&'a EngineState<S, W>>,
    ledger: Ledger,
}

impl<S: PartialEq, W: PartialEq> Saved<S, W> {
    /// Whether both will do the same from here on: all but the seconds that they took.
    pub fn goes_on_as(&self, other: &Self) -> bool {
        self.step == other.step && self.trainee == other.trainee && self.engine == other.engine
    }
}

impl<T: Trainee> Trainer<T> {
    /// A trainer at step 0.
    pub fn new(trainee: T, engine: Option<Engine<T>>, schedule: Schedule) -> Self {
        Self { trainee, engine, schedule, step: 0, ledger: Ledger::default() }
    }

    /// Steps that are done.
    pub fn step(&self) -> u64 {
        self.engine.as_ref().map_or(self.step, Engine::step)
    }

    /// The trainee.
    pub fn trainee(&self) -> &T {
        &self.trainee
    }

    /// The engine, if there is one.
    pub fn engine(&self) -> Option<&Engine<T>> {
        self.engine.as_ref()
    }

    /// The cost so far.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Counts of the engine's actions.
    pub fn counts(&self) -> Counts {
        self.engine.as_ref().map(Engine::counts).unwrap_or_default()
    }

    /// Whether all steps are done.
    pub fn is_finished(&self) -> bool {
        self.engine.as_ref().map_or(self.step >= self.schedule.steps, Engine::is_finished)
    }

    /// Takes a step, or lets the engine do what it does instead.
    pub fn advance(&mut self) -> Result<Report> {
        if let Some(engine) = &mut self.engine {
            return engine.tick(&mut self.trainee, &mut self.ledger);
        }
        let started = Instant::now();
        let rate = self.schedule.rate(self.step);
        let taken = self.trainee.step(&Step::full(rate))?;
        let entry = self.ledger.of_mut(Phase::Full);
        entry.steps += 1;
        entry.equivalents += 1.0;
        entry.seconds += started.elapsed().as_secs_f64();
        let step = Some(self.step);
        self.step += 1;
        Ok(Report { phase: Phase::Full, step, loss: taken.loss, rate, events: Vec::new() })
    }

    /// Everything that decides what it does next.
    pub fn save(&self) -> Result<Saved<T::Snapshot, T::Weights>> {
        Ok(Saved {
            step: self.step,
            trainee: self.trainee.snapshot()?,
            engine: self.engine.as_ref().map(|engine| engine.state().clone()),
            ledger: self.ledger,
        })
    }

    /// As [`Self::save`], to be written to a file.
    pub fn saving(&self) -> Result<Saving<'_, T::Snapshot, T::Weights>> {
        Ok(Saving {
            step: self.step,
            trainee: self.trainee.snapshot()?,
            engine: self.engine.as_ref().map(Engine::state),
            ledger: self.ledger,
        })
    }

    /// A trainer that goes on from there. The engine is made once the trainee's state is in its place and its
    /// copy is gone: there is never more in memory than while a checkpoint is written.
    pub fn resumed(
        mut trainee: T,
        schedule: Schedule,
        saved: Saved<T::Snapshot, T::Weights>,
        engine: impl FnOnce(&T) -> Result<Option<Engine<T>>>,
    ) -> Result<Self> {
        let Saved { step, trainee: snapshot, engine: state, ledger } = saved;
        trainee.restore(&snapshot)?;
        drop(snapshot);
        let engine = engine(&trainee)?;
        let mut trainer = Self::new(trainee, engine, schedule);
        trainer.go_on(step, state, ledger)?;
        Ok(trainer)
    }

    /// Goes on from there.
    pub fn restore(&mut self, saved: Saved<T::Snapshot, T::Weights>) -> Result<()> {
        self.go_on(saved.step, saved.engine, saved.ledger)?;
        self.trainee.restore(&saved.trainee)
    }

    fn go_on(
        &mut self,
        step: u64,
        state: Option<EngineState<T::Snapshot, T::Weights>>,
        ledger: Ledger,
    ) -> Result<()> {
        match (&mut self.engine, state) {
            (Some(engine), Some(state)) => engine.restore(state),
            (None, None) => {}
            (Some(_), None) => {
                return Err(Error::shape("it was saved by a plain loop, and this run has an engine"));
            }
            (None, Some(_)) => {
                return Err(Error::shape("it was saved with an engine, and this run is a plain loop"));
            }
        }
        (self.step, self.ledger) = (step, ledger);
        Ok(())
    }
}
