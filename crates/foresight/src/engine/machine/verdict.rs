//! Actions that are tried, and what becomes of them.

use super::decision::frozen_drop;
use super::{Engine, Event, RestorePoint, Trial};
use crate::engine::action::Action;
use crate::engine::controller::Choice;
use crate::engine::corrector::Corrector;
use crate::error::Result;
use crate::ledger::{Ledger, Phase};
use crate::student::mean_and_reach;
use crate::trainee::{Probe, Trainee, Which};

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
        let (left, basis, promised, predicted) = match action {
            Action::Freeze { groups, steps } => {
                let lost = self.lost(groups);
                let [drop, _] = self.full_drop(trainee, steps);
                let basis = self.basis(lost, drop, steps);
                let promised = frozen_drop(drop, lost);
                (steps, basis, promised, promised + self.state.freezes.bias(&basis))
            }
            Action::Jump { .. } => {
                // It must be ahead of full steps after a while: an average that the next steps lose again is
                // worth nothing.
                let steps = self.options.correction_steps;
                let [drop, _] = self.full_drop(trainee, steps);
                (steps, self.basis(0.0, drop, steps), drop.max(0.0), drop.max(0.0))
            }
            Action::Stop | Action::Full => {
                self.state.stopped = action == Action::Stop;
                events.push(Event::Stopped);
                return Ok(());
            }
        };
        let probe = self.probe(trainee, ledger, Phase::Correct)?;
        let (cost, full_cost) = (trainee.probe_cost(), left as f64 * self.step_cost(trainee, 0));
        let frozen = if let Action::Freeze { groups, .. } = action { groups } else { 0 };
        let back = RestorePoint { snapshot: trainee.snapshot()?, view: self.view() };
        let encoded = self.in_effect(trainee, action, frozen).encode();
        self.state.ensemble.change_action(encoded);
        if let Some(tick) = self.state.episode.ticks.last_mut() {
            tick.action = encoded;
        }
        self.state.skill.forget_pending();
        self.state.trial = Some(Trial {
            action,
            left,
            probe,
            promised,
            predicted,
            basis,
            jumped: false,
            cost,
            full_cost,
            back,
        });
        self.state.phase = Phase::Predict;
        Ok(())
    }

    pub(super) fn probe(&mut self, trainee: &T, ledger: &mut Ledger, phase: Phase) -> Result<Probe> {
        let _span = tracing::trace_span!("foresight.probe", step = self.step()).entered();
        let probe = trainee.probe(Which::Trained)?;
        ledger.of_mut(phase).equivalents += trainee.probe_cost();
        self.pay(trainee.probe_cost());
        self.state.probe = Some(probe.loss);
        Ok(probe)
    }

    pub(super) fn predict(
        &mut self,
        trainee: &mut T,
        ledger: &mut Ledger,
        events: &mut Vec<Event>,
    ) -> Result<Option<(u64, f64, f64)>> {
        let Some(trial) = self.state.trial.as_mut() else {
            self.state.phase = Phase::Full;
            return Ok(None);
        };
        let frozen = match trial.action {
            Action::Freeze { groups, .. } => groups,
            _ => 0,
        };
        let jumps = matches!(trial.action, Action::Jump { .. }) && !trial.jumped;
        if jumps {
            trial.jumped = true;
            let factor = 1.0 / self.state.recent.len() as f32;
            let recent = self.state.recent.iter();
            trainee.combine(&recent.map(|weights| (factor, weights)).collect::<Vec<_>>())?;
        }
        let taken = if jumps { None } else { self.train(trainee, frozen, ledger, events)? };
        if let Some(trial) = &mut self.state.trial {
            trial.left -= u64::from(taken.is_some());
            if trial.left == 0 {
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
        let Some(trial) = self.state.trial.as_ref() else { return Ok(()) };
        let (action, predicted, basis) = (trial.action, trial.predicted, trial.basis);
        if !keeps_promise(trial.action, &trial.probe, &after, trial.promised, self.options.allowance) {
            return self.reject(trainee, after.loss, events);
        }
        let (before, after) = (trial.probe.loss, after.loss);
        let (cost, full_cost) = (trial.cost, trial.full_cost);
        let found = before.max(1e-30).ln() - after.max(1e-30).ln();
        let (corrector, count) = self.teach(action);
        corrector.learn(&basis, predicted, found, true);
        *count += 1;
        let budget = &mut self.state.budget;
        match action {
            Action::Freeze { .. } if full_cost >= cost => budget.saved += full_cost - cost,
            Action::Freeze { .. } => budget.lost += cost - full_cost,
            _ => {
                budget.lost += 2.0 * trainee.probe_cost();
                self.state.jump_gain = 0.7 * self.state.jump_gain + 0.3 * (found - predicted);
            }
        }
        events.push(Event::Accepted { action, probes: [before, after] });
        self.state.trial = None;
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
        let Some(trial) = self.state.trial.take() else { return Ok(()) };
        self.state.budget.lost += trial.cost;
        trainee.restore(&trial.back.snapshot)?;
        self.go_back_to(&trial.back.view);
        let encoded = self.in_effect(trainee, Action::Full, 0).encode();
        self.state.ensemble.change_action(encoded);
        if let Some(tick) = self.state.episode.ticks.last_mut() {
            tick.action = encoded;
        }
        // A loss that is no number falls short by as much as anything can.
        let found =
            if after.is_finite() { trial.probe.loss.max(1e-30).ln() - after.max(1e-30).ln() } else { -1.0 };
        match trial.action {
            Action::Freeze { .. } => {
                self.state.freezes.learn(&trial.basis, trial.predicted, found, false);
                self.state.counts.freezes[1] += 1;
            }
            _ => {
                self.state.jumps.learn(&trial.basis, trial.predicted, found, false);
                self.state.counts.jumps[1] += 1;
                self.state.jump_gain *= 0.7;
            }
        }
        self.state.phase = Phase::Full;
        self.state.probe = Some(trial.probe.loss);
        events.push(Event::Rejected { action: trial.action, probes: [trial.probe.loss, after] });
        Ok(())
    }
}

/// Whether the probe fell by `promised`, in ln loss, by a paired test over its parts. A frozen stretch may
/// fall short by what chance explains (the reach of a one-sided 95 % interval), and never by more than
/// `allowance`; failures of the past do not widen that. A jump saves nothing, so that it must be ahead by
/// more than chance explains.
fn keeps_promise(action: Action, before: &Probe, after: &Probe, promised: f64, allowance: f64) -> bool {
    let factor = (-promised).exp();
    let short: Vec<f64> = before.parts.iter().zip(&after.parts).map(|(b, a)| a - factor * b).collect();
    let (_, reach) = mean_and_reach(&short);
    let shortfall = after.loss - factor * before.loss;
    let allowed = allowance * before.loss;
    let chance = reach.unwrap_or(allowed);
    // Comparisons with what is no number are false.
    match action {
        Action::Freeze { .. } => shortfall <= chance.min(allowed),
        Action::Jump { .. } => shortfall < -chance,
        Action::Full | Action::Stop => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(parts: &[f64]) -> Probe {
        Probe { loss: parts.iter().sum::<f64>() / parts.len() as f64, parts: parts.to_vec() }
    }

    #[test]
    fn chance_is_forgiven_up_to_the_allowance_and_a_jump_must_be_ahead_of_it() {
        let (freeze, jump) = (Action::Freeze { groups: 1, steps: 8 }, Action::Jump { span: 4 });
        let before = probe(&[1.0, 0.9, 1.1, 1.0]);
        let keeps =
            |action, after: &[f64], promised| keeps_promise(action, &before, &probe(after), promised, 0.03);
        // Every part is one part in a hundred short: no chance, although it is within the allowance.
        assert!(!keeps(freeze, &[1.01, 0.909, 1.111, 1.01], 0.0));
        // Parts differ by more than they are short in the mean.
        assert!(keeps(freeze, &[1.06, 0.86, 1.16, 0.96], 0.0));
        // Far short, and so noisy that chance would explain it.
        assert!(!keeps(freeze, &[2.0, 0.2, 1.9, 0.5], 0.0));
        assert!(keeps(freeze, &[0.9, 0.81, 0.99, 0.9], 0.1) && !keeps(freeze, &[0.9, 0.81, 0.99, 0.9], 0.2));
        assert!(keeps(jump, &[0.9, 0.81, 0.99, 0.9], 0.0) && !keeps(jump, &[0.9, 1.1, 0.8, 1.1], 0.0));
        assert!(!keeps(freeze, &[f64::NAN; 4], 0.0) && !keeps(jump, &[f64::NAN; 4], 0.0));
    }
}
