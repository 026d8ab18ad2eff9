//! The state machine.

mod decision;
mod verdict;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::action::Action;
use super::cadence::Cadence;
use super::controller::Choice;
use super::corrector::{Basis, Corrector};
use super::monitor::{Alarm, Monitor};
use super::options::EngineOptions;
use super::skill::Skill;
use crate::error::{Error, Result};
use crate::ledger::{Ledger, Phase};
use crate::optimiser::{Schedule, Sums};
use crate::state::{FEATURES, Normaliser, Observation, StateTracker};
use crate::trainee::{Probe, Statistics, Step, Trainee};
use crate::world::{Ensemble, Episode, RecurrentState, Replay, Tick, WorldOptions};

/// Something that happened beside steps.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// An action was chosen.
    Chosen {
        /// What from.
        choice: Choice,
    },
    /// It kept its promise.
    Accepted {
        /// The action.
        action: Action,
        /// Probe losses before and after.
        probes: [f64; 2],
    },
    /// It did not, and everything is as it was.
    Rejected {
        /// The action.
        action: Action,
        /// Probe losses before and after.
        probes: [f64; 2],
    },
    /// The run diverged and went back.
    RolledBack {
        /// The step it went back to.
        to: u64,
        /// Why.
        alarm: Alarm,
    },
    /// Something looks wrong, and nothing was done about it.
    Warned {
        /// What.
        alarm: Alarm,
    },
    /// Nothing is left to gain.
    Stopped,
}

/// A report on one tick of the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Its phase.
    pub phase: Phase,
    /// The step that was taken, from 0, if one was.
    pub step: Option<u64>,
    /// Its training loss.
    pub loss: f64,
    /// Its rate.
    pub rate: f64,
    /// Other events of the tick.
    pub events: Vec<Event>,
}

/// How often what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Accepted and rejected freezes.
    pub freezes: [u64; 2],
    /// Accepted and rejected jumps.
    pub jumps: [u64; 2],
    /// Times the run went back because it diverged.
    pub rollbacks: u32,
}

/// What the engine knows of the run, which goes back with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct View {
    step: u64,
    tracker: StateTracker,
    normaliser: Normaliser,
    monitor: Monitor,
    /// `|g| |u|` of every group, smoothed: the first-order drop of the loss that it can make.
    first_order: Vec<f64>,
    recurrent: RecurrentState,
    ticks: usize,
}

/// A state to go back to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RestorePoint<S> {
    snapshot: S,
    view: View,
}

/// An action that is being tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Trial<S> {
    action: Action,
    left: u64,
    probe: Probe,
    /// The drop of ln loss that it must come to.
    promised: f64,
    /// The drop that was expected of it, with what past trials taught.
    predicted: f64,
    basis: Basis,
    /// Whether a jump has been made: steps follow it before it is judged.
    jumped: bool,
    /// Full-backward equivalents that it has cost so far.
    cost: f64,
    /// What as many full steps would have cost.
    full_cost: f64,
    back: RestorePoint<S>,
}

/// Full-backward equivalents: all, those that accepted actions saved, those that were lost on actions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Budget {
    spent: f64,
    saved: f64,
    lost: f64,
}

/// A lowered learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct LoweredRate {
    factor: f64,
    left: u64,
}

/// Everything that decides what the engine does next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineState<S, W> {
    phase: Phase,
    stopped: bool,
    view: View,
    last: Vec<f64>,
    probe: Option<f64>,
    ensemble: Ensemble,
    episode: Episode,
    expected: Option<[f64; 2]>,
    skill: Skill,
    /// The part of a batch that backward passes have lately been of.
    kept: f64,
    freezes: Corrector,
    jumps: Corrector,
    jump_gain: f64,
    recent: Vec<W>,
    safe: RestorePoint<S>,
    pending: Option<RestorePoint<S>>,
    trial: Option<Trial<S>>,
    correcting: u64,
    lowered_rate: LoweredRate,
    /// Steps that were taken, those that were undone included.
    taken: u64,
    /// How many had been taken at each of the last rollbacks.
    rollbacks: Vec<u64>,
    budget: Budget,
    counts: Counts,
}

/// The engine of one run.
pub struct Engine<T: Trainee> {
    options: EngineOptions,
    schedule: Schedule,
    replay: Replay,
    cadence: Cadence,
    state: EngineState<T::Snapshot, T::Weights>,
    /// A snapshot that nobody needs any more, for its memory.
    spare: Option<T::Snapshot>,
    /// Time of the predictor in this tick.
    thought: Duration,
}

/// How far drops are taken to be off their predictions before there are verdicts to learn that from.
const FIRST_SPREAD: f64 = 0.03;
/// Updates after which the world model is asked.
const TAUGHT: u64 = 4;

impl<T: Trainee> Engine<T> {
    /// The engine of a run that begins with `trainee` as it is.
    pub fn new(
        options: EngineOptions,
        world: WorldOptions,
        schedule: Schedule,
        replay: Replay,
        seed: u64,
        trainee: &T,
    ) -> Result<Self> {
        options.check()?;
        let ensemble = Ensemble::new(world, seed)?;
        let parameters = trainee.groups().iter().map(|group| group.parameters).sum();
        let cadence = Cadence::of(&options, &ensemble, parameters, trainee.step_work(), schedule.steps);
        // Ticks of another length are another process.
        let replay = replay.with_ticks_of(cadence.look);
        let view = View {
            step: 0,
            tracker: StateTracker::default(),
            normaliser: Normaliser::default(),
            monitor: Monitor::new((schedule.steps / 4).max(200)),
            first_order: vec![0.0; trainee.groups().len()],
            recurrent: ensemble.recurrent(),
            ticks: 0,
        };
        let state = EngineState {
            phase: Phase::Warmup,
            stopped: false,
            last: vec![0.0; FEATURES],
            probe: None,
            ensemble,
            episode: Episode { every: cadence.look, ..Episode::default() },
            expected: None,
            skill: Skill::default(),
            kept: 1.0,
            freezes: Corrector::default(),
            jumps: Corrector::default(),
            jump_gain: 0.02,
            recent: Vec::new(),
            safe: RestorePoint { snapshot: trainee.snapshot()?, view: view.clone() },
            pending: None,
            trial: None,
            correcting: 0,
            lowered_rate: LoweredRate { factor: 1.0, left: 0 },
            taken: 0,
            rollbacks: Vec::new(),
            budget: Budget::default(),
            counts: Counts::default(),
            view,
        };
        Ok(Self { options, schedule, replay, cadence, state, spare: None, thought: Duration::ZERO })
    }

    /// Everything that decides what it does next.
    pub fn state(&self) -> &EngineState<T::Snapshot, T::Weights> {
        &self.state
    }

    /// Goes on from a saved state.
    pub fn restore(&mut self, state: EngineState<T::Snapshot, T::Weights>) {
        self.state = state;
    }

    /// Steps that are done.
    pub fn step(&self) -> u64 {
        self.state.view.step
    }

    /// The phase that comes next.
    pub fn phase(&self) -> Phase {
        self.state.phase
    }

    /// How often what happened.
    pub fn counts(&self) -> Counts {
        self.state.counts
    }

    /// Whether all steps are done, or nothing is left to gain.
    pub fn is_finished(&self) -> bool {
        self.state.stopped || (self.step() >= self.schedule.steps && self.state.trial.is_none())
    }

    /// The run as the world model saw it, with the end that it came to.
    pub fn episode(&self, probe: f64) -> Episode {
        Episode { end: Some(probe.max(1e-30).ln() as f32), ..self.state.episode.clone() }
    }

    /// Mean and deviation of the logarithm of the final loss by the direct head, once the world model has
    /// learnt from runs that are over.
    pub fn end(&self) -> Option<[f64; 2]> {
        let known = self.replay.episodes().any(|episode| episode.end.is_some());
        let level = self.state.view.tracker.smooth_loss()?.max(1e-30).ln();
        (known && self.state.ensemble.updates() >= TAUGHT).then(|| {
            let [mean, deviation] = self.state.ensemble.end();
            [level + mean, deviation]
        })
    }

    /// How far off the world model's forecasts of full steps were, over how far off the slope of the last
    /// losses was, and how many came due; none where there were too few.
    pub fn model_over_slope(&self) -> Option<(f64, u64)> {
        self.state.skill.model_over_slope()
    }

    /// Takes one step, or begins, judges or ends an action.
    pub fn tick(&mut self, trainee: &mut T, ledger: &mut Ledger) -> Result<Report> {
        let started = Instant::now();
        let phase = self.state.phase;
        let mut events = Vec::new();
        let taken = match phase {
            Phase::Warmup | Phase::Full => {
                let taken = self.train(trainee, 0, ledger, &mut events)?;
                if taken.is_some() {
                    self.after_full(trainee, ledger, &mut events)?;
                }
                taken
            }
            Phase::Predict => self.predict(trainee, ledger, &mut events)?,
            Phase::Correct if self.state.trial.is_some() => {
                self.judge(trainee, ledger, &mut events)?;
                None
            }
            Phase::Correct => {
                let taken = self.train(trainee, 0, ledger, &mut events)?;
                if taken.is_some() {
                    self.state.correcting = self.state.correcting.saturating_sub(1);
                    if self.state.correcting == 0 {
                        self.state.phase = Phase::Full;
                    }
                }
                taken
            }
        };
        let entry = ledger.of_mut(phase);
        entry.seconds += started.elapsed().as_secs_f64();
        entry.predictor_seconds += std::mem::take(&mut self.thought).as_secs_f64();
        let (step, loss, rate) = taken.map_or((None, f64::NAN, 0.0), |(s, loss, rate)| (Some(s), loss, rate));
        Ok(Report { phase, step, loss, rate, events })
    }

    /// One training step, and all that is learnt from it. None where it diverged and was taken back.
    fn train(
        &mut self,
        trainee: &mut T,
        frozen: usize,
        ledger: &mut Ledger,
        events: &mut Vec<Event>,
    ) -> Result<Option<(u64, f64, f64)>> {
        let step = self.state.view.step;
        let rate = self.schedule.rate(step) * self.state.lowered_rate.factor;
        let sampled = self.options.sampled;
        let measure = (step + 1).is_multiple_of(self.cadence.look);
        let taken = trainee.step(&Step { rate, frozen, share: 1.0, sampled, measure })?;
        let entry = ledger.of_mut(self.state.phase);
        let cost = trainee.cost_of(frozen, 1.0, taken.kept);
        entry.steps += 1;
        entry.equivalents += cost;
        self.pay(cost);
        self.state.taken += 1;
        self.state.kept += 0.05 * (taken.kept - self.state.kept);
        let gradient = taken.statistics.as_ref().map(|statistics| {
            let sum = |of: fn(&Sums) -> f64| statistics.groups.iter().map(of).sum::<f64>();
            // A step that is no number shows in the loss only one step later.
            if sum(|sums| sums.update).is_finite() { sum(|sums| sums.gradient).sqrt() } else { f64::NAN }
        });
        let gradient = if taken.gradient.is_finite() { gradient } else { Some(taken.gradient) };
        match self.state.view.monitor.look(taken.loss, gradient) {
            Some(alarm) if alarm.is_emergency() => {
                self.recover(trainee, alarm, events)?;
                return Ok(None);
            }
            Some(alarm) => events.push(Event::Warned { alarm }),
            None => {}
        }
        self.state.view.step = step + 1;
        let lowered_rate = &mut self.state.lowered_rate;
        lowered_rate.left = lowered_rate.left.saturating_sub(1);
        if lowered_rate.left == 0 {
            lowered_rate.factor = 1.0;
        }
        self.state.view.tracker.take_loss(taken.loss);
        match taken.statistics {
            Some(statistics) => {
                let thinking = Instant::now();
                let _span = tracing::trace_span!("foresight.look", step).entered();
                self.look(trainee, frozen, rate, &statistics, events);
                self.thought += thinking.elapsed();
            }
            None if measure => return Err(Error::shape("the trainee gave no statistics for a step")),
            None => {}
        }
        self.keep(trainee)?;
        Ok(Some((step, taken.loss, rate)))
    }

    fn pay(&mut self, cost: f64) {
        self.state.budget.spent += cost;
        if let Some(trial) = &mut self.state.trial {
            trial.cost += cost;
        }
    }

    /// Features, and a tick of the world model if there is one.
    fn look(
        &mut self,
        trainee: &T,
        frozen: usize,
        rate: f64,
        statistics: &Statistics,
        events: &mut Vec<Event>,
    ) {
        for (first_order, sums) in self.state.view.first_order.iter_mut().zip(&statistics.groups) {
            if sums.parameters > 0.0 {
                *first_order += 0.3 * ((sums.gradient * sums.update).sqrt() - *first_order);
            }
        }
        let probe = self.state.probe;
        let view = &mut self.state.view;
        let step = view.step - 1;
        let seen = Observation { step, statistics, probe, schedule: &self.schedule, rate };
        let features = view.tracker.observe(&seen);
        self.state.last = features.to_vec();
        self.state.skill.judge(step + 1, features[1]);
        if self.cadence.learn.is_none() {
            return;
        }
        let normalised = view.normaliser.take(&features);
        let level = features[1];
        if let Some([mean, deviation]) = self.state.expected.take() {
            let deviations = (level - mean) / deviation.max(0.02);
            if deviations > 6.0 {
                events.push(Event::Warned { alarm: Alarm::OffForecast { deviations } });
            }
        }
        let action = match &self.state.trial {
            Some(trial) => trial.action,
            None => Action::Full,
        };
        let action = self.in_effect(trainee, action, frozen).encode();
        let tick = Tick { features: normalised.to_vec(), action, level: level as f32 };
        self.state.ensemble.observe(&tick);
        self.state.episode.ticks.push(tick);
        self.state.view.ticks = self.state.episode.ticks.len();
        if self.state.ensemble.updates() >= TAUGHT {
            let next = self.state.ensemble.imagine(&[action]);
            self.state.expected = Some([level + next.means[0], next.deviations[0]]);
        }
    }

    /// Snapshots to average over and to go back to.
    fn keep(&mut self, trainee: &T) -> Result<()> {
        if let Some(pending) = self.state.pending.take() {
            // The step after it was sound: so are its weights.
            self.spare = Some(std::mem::replace(&mut self.state.safe, pending).snapshot);
        }
        if self.state.trial.is_none() && self.step().is_multiple_of(self.cadence.safe) {
            let snapshot = match self.spare.take() {
                Some(mut spare) => {
                    trainee.snapshot_into(&mut spare)?;
                    spare
                }
                None => trainee.snapshot()?,
            };
            self.state.pending = Some(RestorePoint { snapshot, view: self.view() });
        }
        let due = self.step().is_multiple_of(self.options.snapshot_every);
        if self.options.actions.jump && due && self.state.trial.is_none() {
            let weights = if self.state.recent.len() == self.options.snapshots {
                let mut oldest = self.state.recent.remove(0);
                trainee.weights_into(&mut oldest)?;
                oldest
            } else {
                trainee.weights()?
            };
            self.state.recent.push(weights);
        }
        Ok(())
    }

    fn view(&self) -> View {
        View { recurrent: self.state.ensemble.recurrent(), ..self.state.view.clone() }
    }

    fn go_back_to(&mut self, view: &View) {
        self.state.view = view.clone();
        self.state.ensemble.resume(&view.recurrent);
        self.state.episode.ticks.truncate(view.ticks);
        self.state.expected = None;
        self.state.skill.forget_pending();
    }

    /// Goes back to where all was well. What was seen since is not seen again, so that a bad batch is passed.
    fn recover(&mut self, trainee: &mut T, alarm: Alarm, events: &mut Vec<Event>) -> Result<()> {
        if self.state.trial.is_some() {
            // The action goes, and full steps will show whether it was at fault.
            return self.reject(trainee, f64::NAN, events);
        }
        self.state.counts.rollbacks += 1;
        let (now, window) = (self.state.taken, self.options.rollback_window);
        self.state.rollbacks.retain(|at| now - at < window);
        self.state.rollbacks.push(now);
        if self.state.rollbacks.len() > self.options.most_rollbacks as usize {
            return Err(Error::Diverged {
                times: self.state.rollbacks.len() as u32,
                last: alarm.to_string(),
            });
        }
        trainee.roll_back(&self.state.safe.snapshot)?;
        let view = self.state.safe.view.clone();
        self.go_back_to(&view);
        self.state.pending = None;
        self.state.recent.clear();
        self.state.lowered_rate.factor *= self.options.lowered_rate;
        self.state.lowered_rate.left = self.options.lowered_rate_steps;
        self.state.correcting = 0;
        self.state.phase = if view.step < self.options.warmup_steps { Phase::Warmup } else { Phase::Full };
        events.push(Event::RolledBack { to: view.step, alarm });
        Ok(())
    }

    fn after_full(&mut self, trainee: &mut T, ledger: &mut Ledger, events: &mut Vec<Event>) -> Result<()> {
        let step = self.step();
        if self.cadence.learn.is_some_and(|every| step.is_multiple_of(every)) {
            let thinking = Instant::now();
            let _span = tracing::trace_span!("foresight.learn", step).entered();
            let mut episodes: Vec<&Episode> = self.replay.episodes().collect();
            episodes.push(&self.state.episode);
            self.state.ensemble.update(&episodes);
            self.thought += thinking.elapsed();
        }
        if self.state.phase == Phase::Warmup {
            if step >= self.options.warmup_steps {
                self.state.phase = Phase::Full;
            }
        } else if step.is_multiple_of(self.cadence.decide)
            && step < self.schedule.steps
            && self.state.lowered_rate.left == 0
        {
            let thinking = Instant::now();
            let _span = tracing::trace_span!("foresight.decide", step).entered();
            let choice = self.decide(trainee);
            self.thought += thinking.elapsed();
            if choice.chosen.action != Action::Full {
                self.begin(trainee, choice, ledger, events)?;
            }
        }
        Ok(())
    }
}
