//! What is expected of every action.

use super::{Engine, FIRST_SPREAD, TAUGHT};
use crate::engine::action::{Action, InEffect};
use crate::engine::controller::{Candidate, Choice, choose};
use crate::engine::corrector::{Basis, Corrector};
use crate::trainee::Trainee;
use crate::world::RolloutMetrics;

impl<T: Trainee> Engine<T> {
    pub(super) fn in_effect(&self, trainee: &T, action: Action, frozen: usize) -> InEffect {
        let rate = |ahead: u64| self.schedule.rate(self.step() + ahead) / self.schedule.peak;
        InEffect {
            action,
            cost: trainee.cost(frozen, 1.0),
            lost: self.lost(frozen),
            rates: [rate(0), rate(self.cadence.look)],
        }
    }

    /// The part of the loss's first-order drop, `Σ |g| |u|`, that frozen groups would have made.
    pub(super) fn lost(&self, frozen: usize) -> f64 {
        let all: f64 = self.state.view.first_order.iter().sum();
        if all > 0.0 { self.state.view.first_order[..frozen].iter().sum::<f64>() / all } else { 1.0 }
    }

    /// Compares all actions over the horizon.
    pub(super) fn decide(&mut self, trainee: &T) -> Choice {
        for corrector in [&mut self.state.freezes, &mut self.state.jumps] {
            corrector.recover();
        }
        let left = self.schedule.steps - self.step();
        let horizon = self.options.horizon.min(left);
        let (slope, model) = (self.slope_drop(horizon), self.model_drop(trainee, horizon));
        let level = self.state.last[1];
        self.state.skill.expect(self.step() + horizon, level, slope, model.map(|[mean, _]| mean));
        let [drop, deviation] = self.full_drop(trainee, horizon);
        let step_cost = self.step_cost(trainee, 0);
        let full = Candidate {
            action: Action::Full,
            drop,
            deviation,
            cost: horizon as f64 * step_cost,
            confidence: 1.0,
        };
        let mut others = Vec::new();
        others.extend(self.stop(trainee, &full, left));
        let room = self.room() - 2.0 * trainee.probe_cost();
        if self.options.actions.freeze {
            let candidates = (1..trainee.groups().len())
                .filter_map(|groups| self.freeze(trainee, groups, &full, horizon, left, room));
            others.extend(candidates);
        }
        others.extend(self.jump(trainee, &full, left, room));
        let decision = self.step() / self.cadence.decide;
        let every = self.options.explore_every;
        let explore = every > 0 && decision.is_multiple_of(every);
        choose(full, others, self.options.uncertainty_penalty, self.options.confidence_threshold, explore)
    }

    /// What a step costs at the part of a batch that backward passes have lately been of.
    pub(super) fn step_cost(&self, trainee: &T, frozen: usize) -> f64 {
        trainee.cost_of(frozen, 1.0, self.state.kept)
    }

    fn stop(&self, trainee: &T, full: &Candidate, left: u64) -> Option<Candidate> {
        if !self.options.actions.stop || left <= self.options.horizon {
            return None;
        }
        let [rest, deviation] = self.full_drop(trainee, left);
        let candidate =
            Candidate { action: Action::Stop, deviation: 0.0, cost: 0.0, confidence: 1.0, ..*full };
        (rest + 2.0 * deviation < self.options.stop_below).then_some(candidate)
    }

    fn freeze(
        &self,
        trainee: &T,
        groups: usize,
        full: &Candidate,
        horizon: u64,
        left: u64,
        room: f64,
    ) -> Option<Candidate> {
        let corrector = &self.state.freezes;
        let cost = self.step_cost(trainee, groups);
        let most = self.options.max_predict_steps as f64 * corrector.trust();
        let most = (most.round() as u64).clamp(self.options.tick, self.options.max_predict_steps).min(left);
        let steps = most.min((room / cost).max(0.0) as u64);
        if steps < self.options.tick.min(left) {
            return None;
        }
        let lost = self.lost(groups);
        let bias = corrector.bias(&self.basis(lost, full.drop, horizon));
        let deviation = lost * full.deviation + corrector.spread(FIRST_SPREAD);
        let stretches = horizon as f64 / steps as f64;
        Some(Candidate {
            action: Action::Freeze { groups, steps },
            drop: frozen_drop(full.drop, lost) + bias,
            deviation,
            cost: horizon as f64 * cost + 2.0 * trainee.probe_cost() * stretches,
            confidence: confidence(corrector, deviation),
        })
    }

    fn jump(&self, trainee: &T, full: &Candidate, left: u64, room: f64) -> Option<Candidate> {
        let after = self.options.correction_steps;
        let ready = self.state.recent.len() == self.options.snapshots && after < left;
        let affordable = room >= after as f64 * self.step_cost(trainee, 0);
        let deviation = self.state.jumps.spread(FIRST_SPREAD);
        (self.options.actions.jump && ready && affordable).then(|| Candidate {
            action: Action::Jump { span: self.options.snapshots },
            drop: full.drop + self.state.jump_gain,
            deviation,
            cost: full.cost + 2.0 * trainee.probe_cost(),
            confidence: confidence(&self.state.jumps, deviation),
        })
    }

    /// What an action may cost: see [`EngineOptions::risk`](crate::engine::EngineOptions::risk).
    fn room(&self) -> f64 {
        let budget = &self.state.budget;
        self.options.risk * budget.spent + budget.saved - budget.lost
    }

    /// Mean and deviation of the drop of ln loss over so many full steps: by the world model if that has
    /// shown itself better, else by the slope of the last 64 losses.
    pub(super) fn full_drop(&self, trainee: &T, steps: u64) -> [f64; 2] {
        match self.model_drop(trainee, steps).filter(|_| self.state.skill.model_counts()) {
            Some(drop) => drop,
            None => {
                let deviation = self.state.skill.slope_deviation().unwrap_or(self.state.last[9]);
                [self.slope_drop(steps), deviation]
            }
        }
    }

    fn slope_drop(&self, steps: u64) -> f64 {
        -self.state.last[7] * steps as f64
    }

    fn model_drop(&self, trainee: &T, steps: u64) -> Option<[f64; 2]> {
        if self.cadence.learn.is_none() || self.state.ensemble.updates() < TAUGHT {
            return None;
        }
        let ticks = steps.div_ceil(self.cadence.look).min(25);
        let action = self.in_effect(trainee, Action::Full, 0).encode();
        let imagined = self.state.ensemble.imagine(&vec![action; ticks as usize]);
        let RolloutMetrics { step_deltas, hidden_norms, entropies, loss_variance, trajectory_smoothness } =
            &imagined.metrics;
        tracing::trace!(
            step = self.step(),
            ?step_deltas,
            ?hidden_norms,
            ?entropies,
            loss_variance,
            trajectory_smoothness,
            "rollout"
        );
        let [mean, deviation] =
            [&imagined.means, &imagined.deviations].map(|values| values.last().copied().unwrap_or(0.0));
        let scale = steps as f64 / (ticks * self.cadence.look) as f64;
        Some([-mean * scale, deviation * scale.sqrt()])
    }

    pub(super) fn basis(&self, lost: f64, drop: f64, steps: u64) -> Basis {
        let rate = self.schedule.rate(self.step()) / self.schedule.peak;
        [1.0, lost, rate, steps as f64 / self.options.max_predict_steps as f64, drop]
    }
}

/// What is left of full steps' drop where a part of its first order is lost; a rise is no gain.
pub(super) fn frozen_drop(full: f64, lost: f64) -> f64 {
    full - lost * full.max(0.0)
}

fn confidence(corrector: &Corrector, deviation: f64) -> f64 {
    corrector.trust() / (1.0 + deviation)
}
