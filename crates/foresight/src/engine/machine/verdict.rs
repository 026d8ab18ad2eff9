//! Actions that are tried, and what becomes of them.

use super::{Engine, Event, FIRST_BAND, Harbour, Venture};
use crate::engine::action::Action;
use crate::engine::controller::Choice;
use crate::engine::corrector::Corrector;
use crate::error::Result;
use crate::ledger::{Ledger, Phase};
use crate::trainee::{Trainee, Which};

impl<T: Trainee> Engine<T> {
    /// Notes everything as it is, and probes.
    pub(super) fn begin(
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
            Action::Jump { .. } => {
                // It must be ahead of full steps after a while: an average that the next steps lose again is worth nothing.
                let steps = self.options.correction_steps;
                let [drop, _] = self.full_drop(trainee, steps);
                (steps, self.basis(0.0, drop, steps), drop.max(0.0))
            }
            Action::Stop | Action::Full => {
                self.state.stopped = action == Action::Stop;
                events.push(Event::Stopped);
                return Ok(());
            }
        };
        let probe = self.probe(trainee, ledger, Phase::Correct)?;
        let cost = trainee.probe_cost();
        let frozen = if let Action::Freeze { groups, .. } = action { groups } else { 0 };
        let back = Harbour { snapshot: trainee.snapshot(), view: self.view() };
        let encoded = self.in_effect(trainee, action, frozen).encode();
        self.state.ensemble.change_action(encoded);
        if let Some(tick) = self.state.episode.ticks.last_mut() {
            tick.action = encoded;
        }
        self.state.venture =
            Some(Venture { action, left, probe, predicted, basis, jumped: false, cost, back });
        self.state.phase = Phase::Predict;
        Ok(())
    }

    pub(super) fn probe(&mut self, trainee: &T, ledger: &mut Ledger, phase: Phase) -> Result<f64> {
        let probe = trainee.probe_loss(Which::Trained)?;
        ledger.of_mut(phase).equivalents += trainee.probe_cost();
        self.pay(trainee.probe_cost());
        self.state.probe = Some(probe);
        Ok(probe)
    }

    pub(super) fn predict(
        &mut self,
        trainee: &mut T,
        ledger: &mut Ledger,
        events: &mut Vec<Event>,
    ) -> Result<Option<(u64, f64, f64)>> {
        let Some(venture) = self.state.venture.as_mut() else {
            self.state.phase = Phase::Full;
            return Ok(None);
        };
        let frozen = match venture.action {
            Action::Freeze { groups, .. } => groups,
            _ => 0,
        };
        let jumps = matches!(venture.action, Action::Jump { .. }) && !venture.jumped;
        if jumps {
            venture.jumped = true;
            let factor = 1.0 / self.state.recent.len() as f32;
            let recent = self.state.recent.iter();
            trainee.combine(&recent.map(|weights| (factor, weights)).collect::<Vec<_>>())?;
        }
        let taken = if jumps { None } else { self.train(trainee, frozen, ledger, events)? };
        if let Some(venture) = &mut self.state.venture {
            venture.left -= u64::from(taken.is_some());
            if venture.left == 0 {
                self.state.phase = Phase::Correct;
            }
        }
        Ok(taken)
    }

    /// Probes, and accepts or rejects.
    pub(super) fn judge(
        &mut self,
        trainee: &mut T,
        ledger: &mut Ledger,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        let after = self.probe(trainee, ledger, Phase::Correct)?;
        let Some(venture) = self.state.venture.as_ref() else { return Ok(()) };
        let (action, before, predicted, basis) =
            (venture.action, venture.probe, venture.predicted, venture.basis);
        let found = before.max(1e-30).ln() - after.max(1e-30).ln();
        let accepted = match action {
            Action::Freeze { .. } => found >= predicted - self.state.freezes.band(FIRST_BAND).max(FIRST_BAND),
            _ => found > predicted,
        };
        if !(accepted && after.is_finite()) {
            return self.reject(trainee, after, events);
        }
        let (corrector, count) = self.teach(action);
        corrector.learn(&basis, predicted, found, true);
        *count += 1;
        let cost = self.state.venture.as_ref().map_or(0.0, |venture| venture.cost);
        let purse = &mut self.state.purse;
        match action {
            Action::Freeze { steps, .. } if steps as f64 >= cost => purse.saved += steps as f64 - cost,
            Action::Freeze { steps, .. } => purse.lost += cost - steps as f64,
            _ => {
                purse.lost += 2.0 * trainee.probe_cost();
                self.state.jump_gain = 0.7 * self.state.jump_gain + 0.3 * (found - predicted);
            }
        }
        events.push(Event::Accepted { action, probes: [before, after] });
        self.state.venture = None;
        self.state.correcting = self.options.correction_steps;
        self.state.phase = if self.options.correction_steps == 0 { Phase::Full } else { Phase::Correct };
        Ok(())
    }

    pub(super) fn teach(&mut self, action: Action) -> (&mut Corrector, &mut u64) {
        let counts = &mut self.state.counts;
        match action {
            Action::Freeze { .. } => (&mut self.state.freezes, &mut counts.freezes[0]),
            _ => (&mut self.state.jumps, &mut counts.jumps[0]),
        }
    }

    /// Restores weights, optimiser, data order and what was seen, exactly; the corrector alone remembers.
    pub(super) fn reject(&mut self, trainee: &mut T, after: f64, events: &mut Vec<Event>) -> Result<()> {
        let Some(venture) = self.state.venture.take() else { return Ok(()) };
        self.state.purse.lost += venture.cost;
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
