//! The state machine.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::action::{Action, InEffect};
use super::controller::{Candidate, Choice, choose};
use super::corrector::{Basis, Corrector};
use super::monitor::{Alarm, Monitor};
use super::options::EngineOptions;
use crate::error::{Error, Result};
use crate::ledger::{Ledger, Phase};
use crate::optimiser::Schedule;
use crate::state::{FEATURES, Normaliser, Observation, StateTracker};
use crate::trainee::{Statistics, Step, Trainee, Which};
use crate::world::{Ensemble, Episode, Posture, Replay, Tick, WorldOptions};

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

/// What one tick of the engine did.
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
    /// What else happened.
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
    posture: Posture,
    ticks: usize,
}

/// A state to go back to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Harbour<S> {
    snapshot: S,
    view: View,
}

/// An action that is being tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Venture<S> {
    action: Action,
    left: u64,
    probe: f64,
    predicted: f64,
    basis: Basis,
    back: Harbour<S>,
}

/// A lowered learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Caution {
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
    pull: Vec<f64>,
    probe: Option<f64>,
    ensemble: Ensemble,
    episode: Episode,
    expected: Option<[f64; 2]>,
    freezes: Corrector,
    jumps: Corrector,
    jump_gain: f64,
    recent: Vec<W>,
    safe: Harbour<S>,
    pending: Option<Harbour<S>>,
    venture: Option<Venture<S>>,
    correcting: u64,
    caution: Caution,
    counts: Counts,
}

/// The engine of one run.
pub struct Engine<T: Trainee> {
    options: EngineOptions,
    schedule: Schedule,
    replay: Replay,
    state: EngineState<T::Snapshot, T::Weights>,
    /// Time of the predictor in this tick.
    thought: Duration,
}

/// How far a drop may fall short of its prediction before there are verdicts to learn that from.
const FIRST_BAND: f64 = 0.03;
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
        let view = View {
            step: 0,
            tracker: StateTracker::default(),
            normaliser: Normaliser::default(),
            monitor: Monitor::new((schedule.steps / 4).max(200)),
            posture: ensemble.posture(),
            ticks: 0,
        };
        let state = EngineState {
            phase: Phase::Warmup,
            stopped: false,
            last: vec![0.0; FEATURES],
            pull: vec![0.0; trainee.groups().len()],
            probe: None,
            ensemble,
            episode: Episode::default(),
            expected: None,
            freezes: Corrector::default(),
            jumps: Corrector::default(),
            jump_gain: 0.02,
            recent: Vec::new(),
            safe: Harbour { snapshot: trainee.snapshot(), view: view.clone() },
            pending: None,
            venture: None,
            correcting: 0,
            caution: Caution { factor: 1.0, left: 0 },
            counts: Counts::default(),
            view,
        };
        Ok(Self { options, schedule, replay, state, thought: Duration::ZERO })
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
        self.state.stopped || (self.step() >= self.schedule.steps && self.state.venture.is_none())
    }

    /// The run as the world model saw it, with the end that it came to.
    pub fn episode(&self, probe: f64) -> Episode {
        Episode { end: Some(probe.max(1e-30).ln() as f32), ..self.state.episode.clone() }
    }

    /// Mean and deviation of the logarithm of the final loss by the direct head, once the world model has learnt from
    /// runs that are over.
    pub fn end(&self) -> Option<[f64; 2]> {
        let known = self.replay.episodes.iter().any(|episode| episode.end.is_some());
        let level = self.state.view.tracker.smooth_loss()?.max(1e-30).ln();
        (known && self.state.ensemble.updates() >= TAUGHT).then(|| {
            let [mean, deviation] = self.state.ensemble.end();
            [level + mean, deviation]
        })
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
            Phase::Correct if self.state.venture.is_some() => {
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
        let rate = self.schedule.rate(step) * self.state.caution.factor;
        let taken = trainee.step(&Step { rate, frozen, share: 1.0, measure: true })?;
        let entry = ledger.of_mut(self.state.phase);
        entry.steps += 1;
        entry.equivalents += trainee.cost(frozen, 1.0);
        let statistics =
            taken.statistics.ok_or_else(|| Error::shape("the trainee gave no statistics for a step"))?;
        let gradient = statistics.groups.iter().map(|sums| sums.gradient).sum::<f64>().sqrt();
        match self.state.view.monitor.look(taken.loss, Some(gradient)) {
            Some(alarm) if alarm.is_emergency() => {
                self.recover(trainee, alarm, events)?;
                return Ok(None);
            }
            Some(alarm) => events.push(Event::Warned { alarm }),
            None => {}
        }
        self.state.view.step = step + 1;
        let caution = &mut self.state.caution;
        caution.left = caution.left.saturating_sub(1);
        if caution.left == 0 {
            caution.factor = 1.0;
        }
        let thinking = Instant::now();
        self.observe(trainee, frozen, taken.loss, rate, &statistics, events);
        self.thought += thinking.elapsed();
        self.keep(trainee);
        Ok(Some((step, taken.loss, rate)))
    }

    /// Features, and a tick of the world model where one is due.
    fn observe(
        &mut self,
        trainee: &T,
        frozen: usize,
        loss: f64,
        rate: f64,
        statistics: &Statistics,
        events: &mut Vec<Event>,
    ) {
        for (pull, sums) in self.state.pull.iter_mut().zip(&statistics.groups) {
            if sums.parameters > 0.0 {
                *pull += 0.1 * ((sums.gradient * sums.update).sqrt() - *pull);
            }
        }
        let probe = self.state.probe;
        let view = &mut self.state.view;
        let step = view.step - 1;
        let seen = Observation { step, loss, statistics, probe, schedule: &self.schedule, rate };
        let features = view.tracker.observe(&seen);
        let normalised = view.normaliser.take(&features);
        self.state.last = features.to_vec();
        if !self.step().is_multiple_of(self.options.tick) {
            return;
        }
        let level = features[1];
        if let Some([mean, deviation]) = self.state.expected.take() {
            let deviations = (level - mean) / deviation.max(0.02);
            if deviations > 6.0 {
                events.push(Event::Warned { alarm: Alarm::OffForecast { deviations } });
            }
        }
        let action = match &self.state.venture {
            Some(venture) => venture.action,
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

    fn in_effect(&self, trainee: &T, action: Action, frozen: usize) -> InEffect {
        let rate = |ahead: u64| self.schedule.rate(self.step() + ahead) / self.schedule.peak;
        InEffect {
            action,
            cost: trainee.cost(frozen, 1.0),
            lost: self.lost(frozen),
            rates: [rate(0), rate(self.options.tick)],
        }
    }

    /// The part of the loss's first-order drop, `Σ |g| |u|`, that frozen groups would have made.
    fn lost(&self, frozen: usize) -> f64 {
        let all: f64 = self.state.pull.iter().sum();
        if all > 0.0 { self.state.pull[..frozen].iter().sum::<f64>() / all } else { 1.0 }
    }

    /// Snapshots to average over and to go back to.
    fn keep(&mut self, trainee: &T) {
        if let Some(pending) = self.state.pending.take() {
            // The step after it was sound: so are its weights.
            self.state.safe = pending;
        }
        if self.state.venture.is_none() && self.step().is_multiple_of(self.options.safe_every) {
            self.state.pending = Some(Harbour { snapshot: trainee.snapshot(), view: self.view() });
        }
        let due = self.step().is_multiple_of(self.options.snapshot_every);
        if self.options.actions.jump && due && self.state.venture.is_none() {
            if self.state.recent.len() == self.options.snapshots {
                self.state.recent.remove(0);
            }
            self.state.recent.push(trainee.weights());
        }
    }

    fn view(&self) -> View {
        View { posture: self.state.ensemble.posture(), ..self.state.view.clone() }
    }

    fn go_back_to(&mut self, view: &View) {
        self.state.view = view.clone();
        self.state.ensemble.resume(&view.posture);
        self.state.episode.ticks.truncate(view.ticks);
        self.state.expected = None;
    }

    /// Goes back to where all was well. What was seen since is not seen again, so that a bad batch is passed.
    fn recover(&mut self, trainee: &mut T, alarm: Alarm, events: &mut Vec<Event>) -> Result<()> {
        if self.state.venture.is_some() {
            // The action goes, and full steps will show whether it was at fault.
            return self.reject(trainee, f64::NAN, events);
        }
        let counts = &mut self.state.counts;
        counts.rollbacks += 1;
        if counts.rollbacks > self.options.most_rollbacks {
            return Err(Error::Diverged { times: counts.rollbacks, last: alarm.to_string() });
        }
        trainee.roll_back(&self.state.safe.snapshot)?;
        let view = self.state.safe.view.clone();
        self.go_back_to(&view);
        self.state.pending = None;
        self.state.recent.clear();
        self.state.caution.factor *= self.options.caution;
        self.state.caution.left = self.options.caution_steps;
        self.state.correcting = 0;
        self.state.phase = if view.step < self.options.warmup_steps { Phase::Warmup } else { Phase::Full };
        events.push(Event::RolledBack { to: view.step, alarm });
        Ok(())
    }

    fn after_full(&mut self, trainee: &mut T, ledger: &mut Ledger, events: &mut Vec<Event>) -> Result<()> {
        let step = self.step();
        let thinking = Instant::now();
        if self.options.learn_every > 0 && step.is_multiple_of(self.options.learn_every) {
            let mut episodes: Vec<&Episode> = self.replay.episodes.iter().collect();
            episodes.push(&self.state.episode);
            self.state.ensemble.update(&episodes);
        }
        if self.state.phase == Phase::Warmup {
            if step >= self.options.warmup_steps {
                self.state.phase = Phase::Full;
            }
        } else if step.is_multiple_of(self.options.decide_every)
            && step < self.schedule.steps
            && self.state.caution.left == 0
        {
            let choice = self.decide(trainee);
            self.thought += thinking.elapsed();
            if choice.chosen.action != Action::Full {
                self.begin(trainee, choice, ledger, events)?;
            }
            return Ok(());
        }
        self.thought += thinking.elapsed();
        Ok(())
    }

    /// Compares all actions over the horizon.
    fn decide(&mut self, trainee: &T) -> Choice {
        for corrector in [&mut self.state.freezes, &mut self.state.jumps] {
            corrector.recover();
        }
        let left = self.schedule.steps - self.step();
        let horizon = self.options.horizon.min(left);
        let [drop, deviation] = self.full_drop(trainee, horizon);
        let steps = |corrector: &Corrector| {
            let most = self.options.max_predict_steps as f64 * corrector.trust();
            (most.round() as u64).clamp(self.options.tick, self.options.max_predict_steps).min(left)
        };
        let confidence = |corrector: &Corrector| corrector.trust() / (1.0 + deviation);
        let full = Candidate { action: Action::Full, drop, deviation, cost: horizon as f64, confidence: 1.0 };
        let mut others = Vec::new();
        if self.options.actions.stop && left > horizon {
            let [rest, deviation] = self.full_drop(trainee, left);
            if rest + 2.0 * deviation < self.options.stop_below {
                others.push(Candidate {
                    action: Action::Stop,
                    drop,
                    deviation: 0.0,
                    cost: 1e-3,
                    confidence: 1.0,
                });
            }
        }
        if self.options.actions.freeze {
            for groups in 1..trainee.groups().len() {
                let steps = steps(&self.state.freezes);
                let share = horizon as f64 / steps as f64;
                let lost = self.lost(groups);
                let bias = self.state.freezes.bias(&self.basis(lost, drop, horizon));
                others.push(Candidate {
                    action: Action::Freeze { groups, steps },
                    drop: (1.0 - lost) * drop + bias,
                    deviation,
                    cost: horizon as f64 * trainee.cost(groups, 1.0) + 2.0 * trainee.probe_cost() * share,
                    confidence: confidence(&self.state.freezes),
                });
            }
        }
        if self.options.actions.jump && self.state.recent.len() == self.options.snapshots {
            others.push(Candidate {
                action: Action::Jump { span: self.options.snapshots },
                drop: drop + self.state.jump_gain,
                deviation,
                cost: horizon as f64 + 2.0 * trainee.probe_cost(),
                confidence: confidence(&self.state.jumps),
            });
        }
        choose(full, others, self.options.uncertainty_penalty, self.options.confidence_threshold)
    }

    /// Mean and deviation of the drop of ln loss over so many full steps: by the world model, or by the slope of the last
    /// 64 losses while it has not learnt enough.
    fn full_drop(&self, trainee: &T, steps: u64) -> [f64; 2] {
        if self.state.ensemble.updates() < TAUGHT {
            return [-self.state.last[7] * steps as f64, self.state.last[9]];
        }
        let ticks = steps.div_ceil(self.options.tick).min(25);
        let action = self.in_effect(trainee, Action::Full, 0).encode();
        let imagined = self.state.ensemble.imagine(&vec![action; ticks as usize]);
        let [mean, deviation] =
            [&imagined.means, &imagined.deviations].map(|values| values.last().copied().unwrap_or(0.0));
        let scale = steps as f64 / (ticks * self.options.tick) as f64;
        [-mean * scale, deviation * scale.sqrt()]
    }

    fn basis(&self, lost: f64, drop: f64, steps: u64) -> Basis {
        let rate = self.schedule.rate(self.step()) / self.schedule.peak;
        [1.0, lost, rate, steps as f64 / self.options.max_predict_steps as f64, drop]
    }

    /// Notes everything as it is, and probes.
    fn begin(
        &mut self,
        trainee: &mut T,
        choice: Choice,
        ledger: &mut Ledger,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        let action = choice.chosen.action;
        events.push(Event::Chosen { choice });
        let (left, basis, predicted) = match action {
            Action::Freeze { groups, steps } => {
                let lost = self.lost(groups);
                let [drop, _] = self.full_drop(trainee, steps);
                let basis = self.basis(lost, drop, steps);
                (steps, basis, (1.0 - lost) * drop + self.state.freezes.bias(&basis))
            }
            Action::Jump { .. } => (0, self.basis(0.0, 0.0, 0), self.state.jump_gain),
            Action::Stop | Action::Full => {
                self.state.stopped = action == Action::Stop;
                events.push(Event::Stopped);
                return Ok(());
            }
        };
        let probe = self.probe(trainee, ledger, Phase::Correct)?;
        let frozen = if let Action::Freeze { groups, .. } = action { groups } else { 0 };
        let back = Harbour { snapshot: trainee.snapshot(), view: self.view() };
        let encoded = self.in_effect(trainee, action, frozen).encode();
        self.state.ensemble.change_action(encoded);
        if let Some(tick) = self.state.episode.ticks.last_mut() {
            tick.action = encoded;
        }
        self.state.venture = Some(Venture { action, left, probe, predicted, basis, back });
        self.state.phase = Phase::Predict;
        Ok(())
    }

    fn probe(&mut self, trainee: &T, ledger: &mut Ledger, phase: Phase) -> Result<f64> {
        let probe = trainee.probe_loss(Which::Trained)?;
        ledger.of_mut(phase).equivalents += trainee.probe_cost();
        self.state.probe = Some(probe);
        Ok(probe)
    }

    fn predict(
        &mut self,
        trainee: &mut T,
        ledger: &mut Ledger,
        events: &mut Vec<Event>,
    ) -> Result<Option<(u64, f64, f64)>> {
        let Some(action) = self.state.venture.as_ref().map(|venture| venture.action) else {
            self.state.phase = Phase::Full;
            return Ok(None);
        };
        if let Action::Freeze { groups, .. } = action {
            let taken = self.train(trainee, groups, ledger, events)?;
            if let Some(venture) = self.state.venture.as_mut().filter(|_| taken.is_some()) {
                venture.left -= 1;
                if venture.left == 0 {
                    self.state.phase = Phase::Correct;
                }
            }
            return Ok(taken);
        }
        let factor = 1.0 / self.state.recent.len() as f32;
        let terms: Vec<(f32, &T::Weights)> =
            self.state.recent.iter().map(|weights| (factor, weights)).collect();
        trainee.combine(&terms)?;
        self.state.phase = Phase::Correct;
        Ok(None)
    }

    /// Probes, and accepts or rejects.
    fn judge(&mut self, trainee: &mut T, ledger: &mut Ledger, events: &mut Vec<Event>) -> Result<()> {
        let after = self.probe(trainee, ledger, Phase::Correct)?;
        let Some(venture) = self.state.venture.as_ref() else { return Ok(()) };
        let (action, before, predicted, basis) =
            (venture.action, venture.probe, venture.predicted, venture.basis);
        let found = before.max(1e-30).ln() - after.max(1e-30).ln();
        let accepted = match action {
            Action::Freeze { .. } => found >= predicted - self.state.freezes.band(FIRST_BAND).max(FIRST_BAND),
            // An average is better at once, or it is not.
            _ => found > 0.0,
        };
        if !(accepted && after.is_finite()) {
            return self.reject(trainee, after, events);
        }
        let (corrector, count) = self.teach(action);
        corrector.learn(&basis, predicted, found, true);
        *count += 1;
        if matches!(action, Action::Jump { .. }) {
            self.state.jump_gain = 0.7 * self.state.jump_gain + 0.3 * found;
        }
        events.push(Event::Accepted { action, probes: [before, after] });
        self.state.venture = None;
        self.state.correcting = self.options.correction_steps;
        self.state.phase = if self.options.correction_steps == 0 { Phase::Full } else { Phase::Correct };
        Ok(())
    }

    fn teach(&mut self, action: Action) -> (&mut Corrector, &mut u64) {
        let counts = &mut self.state.counts;
        match action {
            Action::Freeze { .. } => (&mut self.state.freezes, &mut counts.freezes[0]),
            _ => (&mut self.state.jumps, &mut counts.jumps[0]),
        }
    }

    /// Restores weights, optimiser, data order and what was seen, exactly; the corrector alone remembers.
    fn reject(&mut self, trainee: &mut T, after: f64, events: &mut Vec<Event>) -> Result<()> {
        let Some(venture) = self.state.venture.take() else { return Ok(()) };
        trainee.restore(&venture.back.snapshot)?;
        self.go_back_to(&venture.back.view);
        let encoded = self.in_effect(trainee, Action::Full, 0).encode();
        self.state.ensemble.change_action(encoded);
        if let Some(tick) = self.state.episode.ticks.last_mut() {
            tick.action = encoded;
        }
        // A loss that is no number falls short by as much as anything can.
        let found =
            if after.is_finite() { venture.probe.max(1e-30).ln() - after.max(1e-30).ln() } else { -1.0 };
        match venture.action {
            Action::Freeze { .. } => {
                self.state.freezes.learn(&venture.basis, venture.predicted, found, false);
                self.state.counts.freezes[1] += 1;
            }
            _ => {
                self.state.jumps.learn(&venture.basis, venture.predicted, found, false);
                self.state.counts.jumps[1] += 1;
                self.state.jump_gain *= 0.7;
            }
        }
        self.state.phase = Phase::Full;
        self.state.probe = Some(venture.probe);
        events.push(Event::Rejected { action: venture.action, probes: [venture.probe, after] });
        Ok(())
    }
}
