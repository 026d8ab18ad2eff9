//! What is expected of every action.

use super::{Engine, TAUGHT};
use crate::engine::action::{Action, InEffect};
use crate::engine::controller::{Candidate, Choice, choose};
use crate::engine::corrector::{Basis, Corrector};
use crate::trainee::Trainee;

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
        let all: f64 = self.state.pull.iter().sum();
        if all > 0.0 { self.state.pull[..frozen].iter().sum::<f64>() / all } else { 1.0 }
    }

    /// Compares all actions over the horizon.
    pub(super) fn decide(&mut self, trainee: &T) -> Choice {
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
        let probes = 2.0 * trainee.probe_cost();
        let room = self.room() - probes;
        if self.options.actions.freeze {
            for groups in 1..trainee.groups().len() {
                let affordable = (room / trainee.cost(groups, 1.0)).max(0.0) as u64;
                let steps = steps(&self.state.freezes).min(affordable);
                if steps < self.options.tick.min(left) {
                    continue;
                }
                let share = horizon as f64 / steps as f64;
                let lost = self.lost(groups);
                let bias = self.state.freezes.bias(&self.basis(lost, drop, horizon));
                others.push(Candidate {
                    action: Action::Freeze { groups, steps },
                    drop: (1.0 - lost) * drop + bias,
                    deviation,
                    cost: horizon as f64 * trainee.cost(groups, 1.0) + probes * share,
                    confidence: confidence(&self.state.freezes),
                });
            }
        }
        let after = self.options.correction_steps;
        let ready = self.state.recent.len() == self.options.snapshots && after < left;
        if self.options.actions.jump && ready && room >= after as f64 {
            others.push(Candidate {
                action: Action::Jump { span: self.options.snapshots },
                drop: drop + self.state.jump_gain,
                deviation,
                cost: horizon as f64 + probes,
                confidence: confidence(&self.state.jumps),
            });
        }
        let decision = self.step() / self.cadence.decide;
        let every = self.options.explore_every;
        let explore = every > 0 && decision.is_multiple_of(every);
        choose(full, others, self.options.uncertainty_penalty, self.options.confidence_threshold, explore)
    }

    /// What an action may cost: see [`EngineOptions::risk`](crate::engine::EngineOptions::risk).
    fn room(&self) -> f64 {
        let purse = &self.state.purse;
        self.options.risk * purse.spent + purse.saved - purse.lost
    }

    /// Mean and deviation of the drop of ln loss over so many full steps: by the world model, or by the slope of the last
    /// 64 losses while it has not learnt enough.
    pub(super) fn full_drop(&self, trainee: &T, steps: u64) -> [f64; 2] {
        if self.state.ensemble.updates() < TAUGHT {
            return [-self.state.last[7] * steps as f64, self.state.last[9]];
        }
        let ticks = steps.div_ceil(self.cadence.look).min(25);
        let action = self.in_effect(trainee, Action::Full, 0).encode();
        let imagined = self.state.ensemble.imagine(&vec![action; ticks as usize]);
        let [mean, deviation] =
            [&imagined.means, &imagined.deviations].map(|values| values.last().copied().unwrap_or(0.0));
        let scale = steps as f64 / (ticks * self.cadence.look) as f64;
        [-mean * scale, deviation * scale.sqrt()]
    }

    pub(super) fn basis(&self, lost: f64, drop: f64, steps: u64) -> Basis {
        let rate = self.schedule.rate(self.step()) / self.schedule.peak;
        [1.0, lost, rate, steps as f64 / self.options.max_predict_steps as f64, drop]
    }
}
