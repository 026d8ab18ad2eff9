//! What is imagined: a run's loss under actions that nobody has taken yet.

use serde::Serialize;

use super::episode::ACTION;
use super::gru::Scratch;
use super::member::{Member, bounded, softmax_of};
use crate::dense::norm;

/// What a rollout looks like, averaged over members.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RolloutMetrics {
    /// `|Δ ln loss|` of every tick.
    pub step_deltas: Vec<f64>,
    /// `|h|` of every tick.
    pub hidden_norms: Vec<f64>,
    /// Mean entropy of the categories of every tick, in nats.
    pub entropies: Vec<f64>,
    /// The variance of `ln loss` along the rollout.
    pub loss_variance: f64,
    /// The mean of `|second difference of ln loss|`: 0 is a straight line.
    pub trajectory_smoothness: f64,
}

/// One member's rollout.
#[derive(Debug, Clone, Default)]
pub(super) struct Path {
    /// Cumulated mean and variance of the change of ln loss after each tick.
    pub(super) changes: Vec<[f64; 2]>,
    pub(super) hidden_norms: Vec<f64>,
    pub(super) entropies: Vec<f64>,
}

impl Member {
    /// Goes on from a state by the prior alone, one tick an action.
    pub(super) fn imagine(
        &self,
        parameters: &[f32],
        mut h: Vec<f32>,
        mut z: Vec<f32>,
        actions: &[[f32; ACTION]],
    ) -> Path {
        let mut path = Path::default();
        let mut sum = [0.0f64; 2];
        let (mut given, mut state, mut output) = (Vec::new(), Vec::new(), Vec::new());
        let mut scratch = Scratch::default();
        for action in actions {
            given.clear();
            given.extend(z.iter().chain(action));
            self.gru.advance(parameters, &given, &mut h, &mut scratch);
            // Imagined states are the probabilities themselves.
            self.prior.forward_into(parameters, &h, &mut z);
            softmax_of(&mut z, self.sizes.classes);
            state.clear();
            state.extend(h.iter().chain(&z));
            self.change.forward_into(parameters, &state, &mut output);
            sum[0] += f64::from(output[0]);
            sum[1] += f64::from(bounded(output[1]).exp());
            path.changes.push(sum);
            path.hidden_norms.push(norm(&h));
            let entropy: f64 = z.iter().map(|&p| -f64::from(p) * f64::from(p.max(1e-20).ln())).sum();
            path.entropies.push(entropy / self.sizes.categories as f64);
        }
        path
    }
}

impl RolloutMetrics {
    pub(super) fn of(paths: &[Path]) -> Self {
        let ticks = paths.first().map_or(0, |path| path.changes.len());
        let mean = |value: &dyn Fn(&Path, usize) -> f64, tick: usize| {
            paths.iter().map(|path| value(path, tick)).sum::<f64>() / paths.len().max(1) as f64
        };
        let levels: Vec<f64> = (0..ticks).map(|tick| mean(&|path, t| path.changes[t][0], tick)).collect();
        let from_start: Vec<f64> = std::iter::once(0.0).chain(levels.iter().copied()).collect();
        let deltas: Vec<f64> = from_start.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let average = levels.iter().sum::<f64>() / ticks.max(1) as f64;
        let bends: Vec<f64> = deltas.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
        Self {
            step_deltas: deltas.iter().map(|delta| delta.abs()).collect(),
            hidden_norms: (0..ticks).map(|tick| mean(&|path, t| path.hidden_norms[t], tick)).collect(),
            entropies: (0..ticks).map(|tick| mean(&|path, t| path.entropies[t], tick)).collect(),
            loss_variance: levels.iter().map(|x| (x - average).powi(2)).sum::<f64>() / ticks.max(1) as f64,
            trajectory_smoothness: bends.iter().sum::<f64>() / bends.len().max(1) as f64,
        }
    }
}
