//! What is imagined: a run's loss under actions that nobody has taken yet.

use serde::Serialize;

use super::episode::ACTION;
use super::gru::Scratch;
use super::member::{Member, bounded, softmax_of};
use crate::dense::{ln, norm};
use crate::random::Random;

/// Metrics of a rollout, averaged over members.
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

/// How the stochastic states of a rollout are chosen.
#[derive(Debug, Clone, PartialEq)]
pub enum States {
    /// The probabilities themselves: no noise, and the same every time.
    Expected,
    /// One class of each category: that of the largest `logit + g`, with `g = −ln(−ln u)` (Gumbel) and `u`
    /// uniform by number `(tick · categories + category) · classes + class` of the member's fork of this
    /// stream. A choice depends on its numbers alone, in whatever order they are drawn.
    Sampled(Random),
}

impl States {
    /// Those of one member: each has numbers of its own.
    pub(crate) fn of_member(&self, index: usize) -> Self {
        match self {
            Self::Expected => Self::Expected,
            Self::Sampled(random) => Self::Sampled(random.fork(index as u64)),
        }
    }
}

/// Which heads are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heads {
    /// That of the change of the loss.
    Change,
    /// That of the features too.
    All,
}

/// One member's rollout.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Path {
    /// Cumulated mean and variance of the change of ln loss after each tick.
    pub changes: Vec<[f64; 2]>,
    /// `|h|` of every tick.
    pub hidden_norms: Vec<f64>,
    /// Mean entropy of the categories of every tick, in nats.
    pub entropies: Vec<f64>,
    /// The features of every tick, one after another.
    pub features: Vec<f32>,
    /// The class of every category of every tick, where states are sampled.
    pub classes: Vec<u32>,
    /// How far the best perturbed logit is above the second of every such category.
    pub margins: Vec<f32>,
}

/// `−ln(−ln u)` with `u` from the highest 23 bits, in the middle between two of them.
pub(crate) fn gumbel(bits: u64) -> f32 {
    let mut x = [((bits >> 41) as f32 + 0.5) / (1u32 << 23) as f32];
    ln(&mut x);
    x[0] = -x[0];
    ln(&mut x);
    -x[0]
}

impl Member {
    /// Goes on from a state by the prior alone, one tick an action.
    pub(super) fn imagine(
        &self,
        parameters: &[f32],
        mut h: Vec<f32>,
        mut z: Vec<f32>,
        actions: &[[f32; ACTION]],
        states: &States,
        heads: Heads,
    ) -> Path {
        let mut path = Path::default();
        let mut sum = [0.0f64; 2];
        let (mut given, mut state, mut output) = (Vec::new(), Vec::new(), Vec::new());
        let mut scratch = Scratch::default();
        for (tick, action) in actions.iter().enumerate() {
            given.clear();
            given.extend(z.iter().chain(action));
            self.gru.advance(parameters, &given, &mut h, &mut scratch);
            self.prior.forward_into(parameters, &h, &mut z);
            let chosen = match states {
                States::Expected => None,
                States::Sampled(random) => Some(self.choose(&z, tick, random)),
            };
            softmax_of(&mut z, self.sizes.classes);
            let entropy: f64 = z.iter().map(|&p| -f64::from(p) * f64::from(p.max(1e-20).ln())).sum();
            path.entropies.push(entropy / self.sizes.categories as f64);
            if let Some((classes, margins)) = chosen {
                z.fill(0.0);
                for (z, class) in z.chunks_exact_mut(self.sizes.classes).zip(&classes) {
                    z[*class as usize] = 1.0;
                }
                path.classes.extend(classes);
                path.margins.extend(margins);
            }
            state.clear();
            state.extend(h.iter().chain(&z));
            if heads == Heads::All {
                self.features.forward_into(parameters, &state, &mut output);
                path.features.extend_from_slice(&output);
            }
            self.change.forward_into(parameters, &state, &mut output);
            sum[0] += f64::from(output[0]);
            sum[1] += f64::from(bounded(output[1]).exp());
            path.changes.push(sum);
            path.hidden_norms.push(norm(&h));
        }
        path
    }

    /// The class of every category, and how far it is ahead of the next.
    fn choose(&self, logits: &[f32], tick: usize, random: &Random) -> (Vec<u32>, Vec<f32>) {
        let first = (tick * logits.len()) as u64;
        let rows = logits.chunks_exact(self.sizes.classes).enumerate();
        rows.map(|(category, row)| {
            let (mut best, mut second, mut class) = (f32::NEG_INFINITY, f32::NEG_INFINITY, 0);
            for (place, logit) in row.iter().enumerate() {
                let number = first + (category * row.len() + place) as u64;
                let perturbed = logit + gumbel(random.numbered(number));
                if perturbed > best {
                    (second, best, class) = (best, perturbed, place as u32);
                } else if perturbed > second {
                    second = perturbed;
                }
            }
            (class, best - second)
        })
        .unzip()
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
