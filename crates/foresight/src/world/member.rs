//! One recurrent state-space model (RSSM; Hafner et al. 2019, with categorical states as in 2021).
//!
//! ```text
//! h_t = GRU(h_{t−1}, [z_{t−1}, a_{t−1}])     deterministic state
//! p_t = softmax(h_t P)                       prior of the stochastic state: without looking
//! q_t = softmax([h_t, x_t] Q)                posterior: with the features x_t
//! z_t ~ q_t                                  one of so many classes, several times over
//! [h_t, z_t] → x̂_t; mean and variance of the change of ln loss over the tick; the same of ln(end / now)
//! ```
//!
//! The loss of a tick is `|x − x̂|² / 2n`, the negative logarithms of both normal densities, and
//! `prior · KL(q‖p)` with gradients to `p` alone plus `posterior · KL(q‖p)` with gradients to `q` alone.
//! Gradients pass samples straight through, as if `z` were `q`.

use super::gru::{Gru, Reset, Trace, add};
use super::linear::Linear;
use crate::dense::exp;
use crate::random::Random;
use crate::state::FEATURES;
use crate::world::episode::ACTION;

/// Sizes of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sizes {
    pub(super) hidden: usize,
    pub(super) categories: usize,
    pub(super) classes: usize,
    pub(super) reset: Reset,
}

/// Where the parameters of a model lie.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    pub(super) sizes: Sizes,
    pub(crate) gru: Gru,
    pub(crate) prior: Linear,
    pub(crate) posterior: Linear,
    pub(crate) features: Linear,
    pub(crate) change: Linear,
    pub(crate) end: Linear,
    pub(crate) parameters: usize,
}

/// How a stochastic state comes from its probabilities.
pub(super) enum Draw<'a> {
    /// One class of each category.
    Sample(&'a mut Random),
    /// The probabilities themselves: without noise, and smooth.
    Mean,
}

/// What the parts of the loss weigh.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights {
    pub(crate) prior: f32,
    pub(crate) posterior: f32,
}

/// Mean losses per tick.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Losses {
    /// Of the features.
    pub features: f64,
    /// Of the change of the loss over a tick.
    pub change: f64,
    /// Of the end of the run.
    pub end: f64,
    /// The divergence of the posterior from the prior.
    pub divergence: f64,
}

impl Losses {
    /// Of several members.
    pub(crate) fn mean(losses: &[Self]) -> Self {
        let mean = |part: fn(&Self) -> f64| losses.iter().map(part).sum::<f64>() / losses.len() as f64;
        Self {
            features: mean(|losses| losses.features),
            change: mean(|losses| losses.change),
            end: mean(|losses| losses.end),
            divergence: mean(|losses| losses.divergence),
        }
    }
}

/// Ticks of several runs beside each other: `x` as rows of features, `a` as rows of actions.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    pub(crate) x: Vec<f32>,
    pub(crate) a: Vec<f32>,
    /// The change since the tick before; none at the first tick of a run.
    pub(crate) change: Vec<Option<f32>>,
    /// The logarithm of the end over now, where the run is over.
    pub(crate) end: Vec<Option<f32>>,
}

/// Variances stay between e^−12 and e^4.
pub(super) fn bounded(log_variance: f32) -> f32 {
    log_variance.clamp(-12.0, 4.0)
}

/// Softmax of every run of `classes` numbers.
pub(super) fn softmax(logits: &[f32], classes: usize) -> Vec<f32> {
    let mut found = logits.to_vec();
    softmax_of(&mut found, classes);
    found
}

/// The same in place.
pub(super) fn softmax_of(found: &mut [f32], classes: usize) {
    for row in found.chunks_exact_mut(classes) {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|x| *x -= top);
    }
    exp(found);
    for row in found.chunks_exact_mut(classes) {
        let sum: f32 = row.iter().sum();
        row.iter_mut().for_each(|x| *x /= sum);
    }
}

pub(super) fn draw(probabilities: &[f32], classes: usize, how: &mut Draw<'_>) -> Vec<f32> {
    match how {
        Draw::Mean => probabilities.to_vec(),
        Draw::Sample(random) => {
            let mut found = vec![0.0; probabilities.len()];
            for (row, found) in probabilities.chunks_exact(classes).zip(found.chunks_exact_mut(classes)) {
                let mut left = random.uniform() as f32;
                let chosen = row.iter().position(|p| {
                    left -= p;
                    left < 0.0
                });
                found[chosen.unwrap_or(classes - 1)] = 1.0;
            }
            found
        }
    }
}

/// Rows of `left` and `right` beside each other.
pub(super) fn beside(left: &[f32], columns: usize, right: &[f32], more: usize) -> Vec<f32> {
    left.chunks_exact(columns).zip(right.chunks_exact(more)).flat_map(|(l, r)| [l, r].concat()).collect()
}

fn split(rows: &[f32], columns: usize, more: usize) -> (Vec<f32>, Vec<f32>) {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for row in rows.chunks_exact(columns + more) {
        left.extend(&row[..columns]);
        right.extend(&row[columns..]);
    }
    (left, right)
}

/// What the backward pass needs of a tick.
struct Memory {
    trace: Trace,
    h: Vec<f32>,
    p: Vec<f32>,
    q: Vec<f32>,
    seen: Vec<f32>,
    state: Vec<f32>,
    /// Gradients of the heads' outputs.
    dx: Vec<f32>,
    dchange: Vec<f32>,
    dend: Vec<f32>,
}

impl Member {
    pub(super) fn new(sizes: Sizes) -> Self {
        let Sizes { hidden, categories, classes, reset } = sizes;
        let stochastic = categories * classes;
        let mut at = 0;
        let gru = Gru::place(stochastic + ACTION, hidden, reset, &mut at);
        let prior = Linear::place(hidden, stochastic, &mut at);
        let posterior = Linear::place(hidden + FEATURES, stochastic, &mut at);
        let features = Linear::place(hidden + stochastic, FEATURES, &mut at);
        let change = Linear::place(hidden + stochastic, 2, &mut at);
        let end = Linear::place(hidden + stochastic, 2, &mut at);
        Self { sizes, gru, prior, posterior, features, change, end, parameters: at }
    }

    pub(super) fn initial(&self, random: &mut Random) -> Vec<f32> {
        let mut parameters = vec![0.0; self.parameters];
        self.gru.initialise(&mut parameters, random);
        for layer in [&self.prior, &self.posterior, &self.features, &self.change, &self.end] {
            layer.initialise(&mut parameters, random);
        }
        parameters
    }

    pub(super) fn stochastic(&self) -> usize {
        self.sizes.categories * self.sizes.classes
    }

    /// The losses of slices in order, and their gradient added to `gradient`.
    pub(super) fn learn(
        &self,
        parameters: &[f32],
        slices: &[Slice],
        weights: Weights,
        how: &mut Draw<'_>,
        gradient: &mut [f32],
    ) -> Losses {
        let (hidden, stochastic) = (self.sizes.hidden, self.stochastic());
        let rows = slices.first().map_or(0, |slice| slice.change.len());
        let scale = 1.0 / (rows * slices.len()).max(1) as f32;
        let mut losses = Losses::default();
        let mut memories: Vec<Memory> = Vec::with_capacity(slices.len());
        let mut h = vec![0.0; rows * hidden];
        let mut given = vec![0.0; rows * (stochastic + ACTION)];
        for slice in slices {
            let (next, trace) = self.gru.forward(parameters, &given, &h);
            h = next;
            let p = softmax(&self.prior.forward(parameters, &h), self.sizes.classes);
            let seen = beside(&h, hidden, &slice.x, FEATURES);
            let q = softmax(&self.posterior.forward(parameters, &seen), self.sizes.classes);
            let z = draw(&q, self.sizes.classes, how);
            let state = beside(&h, hidden, &z, stochastic);
            let guess = self.features.forward(parameters, &state);
            let of_feature = scale / FEATURES as f32;
            let dx: Vec<f32> =
                guess.iter().zip(&slice.x).map(|(guess, x)| (guess - x) * of_feature).collect();
            losses.features +=
                guess.iter().zip(&slice.x).map(|(g, x)| f64::from((g - x).powi(2))).sum::<f64>()
                    * f64::from(0.5 * of_feature);
            let (loss, dchange) = normal(&self.change.forward(parameters, &state), &slice.change, scale);
            losses.change += loss;
            let (loss, dend) = normal(&self.end.forward(parameters, &state), &slice.end, scale);
            losses.end += loss;
            losses.divergence += q
                .iter()
                .zip(&p)
                .map(|(q, p)| f64::from(*q) * f64::from((q.max(1e-20) / p.max(1e-20)).ln()))
                .sum::<f64>()
                * f64::from(scale);
            given = beside(&z, stochastic, &slice.a, ACTION);
            memories.push(Memory { trace, h: h.clone(), p, q, seen, state, dx, dchange, dend });
        }
        self.backward(parameters, &memories, weights, scale, gradient);
        losses
    }

    fn backward(
        &self,
        parameters: &[f32],
        memories: &[Memory],
        weights: Weights,
        scale: f32,
        gradient: &mut [f32],
    ) {
        let (hidden, stochastic) = (self.sizes.hidden, self.stochastic());
        let rows = memories.first().map_or(0, |memory| memory.h.len() / hidden);
        let mut dh_next = vec![0.0; rows * hidden];
        let mut dz_next = vec![0.0; rows * stochastic];
        for memory in memories.iter().rev() {
            let mut dstate = vec![0.0; memory.state.len()];
            for (head, delta) in
                [(&self.features, &memory.dx), (&self.change, &memory.dchange), (&self.end, &memory.dend)]
            {
                head.gradient(&memory.state, delta, gradient);
                add(&mut dstate, &head.backward(parameters, delta));
            }
            let (mut dh, mut dq) = split(&dstate, hidden, stochastic);
            add(&mut dh, &dh_next);
            add(&mut dq, &dz_next);
            // KL(q‖p) = Σ q (ln q − ln p): in the logits of p it is p − q; in q it is ln q − ln p + 1.
            let of_prior: Vec<f32> =
                memory.p.iter().zip(&memory.q).map(|(p, q)| weights.prior * scale * (p - q)).collect();
            for ((dq, q), p) in dq.iter_mut().zip(&memory.q).zip(&memory.p) {
                *dq += weights.posterior * scale * ((q.max(1e-20) / p.max(1e-20)).ln() + 1.0);
            }
            let of_posterior = through_softmax(&memory.q, &dq, self.sizes.classes);
            self.prior.gradient(&memory.h, &of_prior, gradient);
            add(&mut dh, &self.prior.backward(parameters, &of_prior));
            self.posterior.gradient(&memory.seen, &of_posterior, gradient);
            let (of_hidden, _) = split(&self.posterior.backward(parameters, &of_posterior), hidden, FEATURES);
            add(&mut dh, &of_hidden);
            let (dgiven, before) = self.gru.backward(parameters, &memory.trace, &dh, gradient);
            dh_next = before;
            (dz_next, _) = split(&dgiven, stochastic, ACTION);
        }
    }
}

/// The mean of `−ln N(target; mean, variance)` up to a constant over targets that there are, and its gradient
/// in mean and log variance.
fn normal(outputs: &[f32], targets: &[Option<f32>], scale: f32) -> (f64, Vec<f32>) {
    let mut loss = 0.0;
    let mut gradient = vec![0.0; outputs.len()];
    for ((output, gradient), target) in outputs.chunks_exact(2).zip(gradient.chunks_exact_mut(2)).zip(targets)
    {
        let Some(target) = target else { continue };
        let log_variance = bounded(output[1]);
        let (rest, precision) = (output[0] - target, (-log_variance).exp());
        loss += f64::from(scale * 0.5 * (log_variance + rest * rest * precision));
        gradient[0] = scale * rest * precision;
        if log_variance == output[1] {
            gradient[1] = scale * 0.5 * (1.0 - rest * rest * precision);
        }
    }
    (loss, gradient)
}

/// From the gradient in probabilities to that in logits: `q (d − Σ q d)`.
fn through_softmax(q: &[f32], dq: &[f32], classes: usize) -> Vec<f32> {
    q.chunks_exact(classes)
        .zip(dq.chunks_exact(classes))
        .flat_map(|(q, d)| {
            let mean: f32 = q.iter().zip(d).map(|(q, d)| q * d).sum();
            q.iter().zip(d).map(move |(q, d)| q * (d - mean)).collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(random: &mut Random, ticks: usize, rows: usize) -> Vec<Slice> {
        let mut numbers = |n: usize| (0..n).map(|_| random.normal() as f32).collect::<Vec<f32>>();
        (0..ticks)
            .map(|tick| Slice {
                x: numbers(rows * FEATURES),
                a: numbers(rows * ACTION),
                change: numbers(rows).into_iter().map(|x| (tick > 0).then_some(0.3 * x)).collect(),
                end: numbers(rows).into_iter().enumerate().map(|(i, x)| (i > 0).then_some(x)).collect(),
            })
            .collect()
    }

    /// With both weights of the divergence 1 and means for samples, the loss is one smooth function.
    #[test]
    fn gradients_match_finite_differences() {
        for reset in [Reset::After, Reset::Before] {
            let member = Member::new(Sizes { hidden: 6, categories: 2, classes: 3, reset });
            let mut random = Random::new(4, "member");
            let parameters = member.initial(&mut random);
            let slices = slices(&mut random, 4, 3);
            let weights = Weights { prior: 1.0, posterior: 1.0 };
            let value = |parameters: &[f32]| {
                let mut unused = vec![0.0; parameters.len()];
                let losses = member.learn(parameters, &slices, weights, &mut Draw::Mean, &mut unused);
                losses.features + losses.change + losses.end + losses.divergence
            };
            let mut gradient = vec![0.0; parameters.len()];
            member.learn(&parameters, &slices, weights, &mut Draw::Mean, &mut gradient);
            let mut wrong = Vec::new();
            for at in (0..parameters.len()).step_by(3) {
                let step = 1e-2f32;
                let moved = |by: f32| {
                    let mut moved = parameters.clone();
                    moved[at] += by;
                    value(&moved)
                };
                let difference = (moved(step) - moved(-step)) / f64::from(2.0 * step);
                let found = f64::from(gradient[at]);
                if (difference - found).abs() > 1e-3 + 2e-2 * found.abs() {
                    wrong.push((at, found, difference));
                }
            }
            assert!(wrong.is_empty(), "{reset:?}: {wrong:?}");
            assert!(gradient.iter().filter(|g| g.abs() > 1e-4).count() > gradient.len() / 2);
        }
    }

    #[test]
    fn samples_have_their_probabilities() {
        let mut random = Random::new(1, "draw");
        let probabilities = [0.1, 0.2, 0.7];
        let mut counts = [0.0; 3];
        for _ in 0..5000 {
            let drawn = draw(&probabilities, 3, &mut Draw::Sample(&mut random));
            counts.iter_mut().zip(drawn).for_each(|(count, z)| *count += z / 5000.0);
        }
        for (count, p) in counts.iter().zip(probabilities) {
            assert!((count - p).abs() < 0.03, "{counts:?}");
        }
    }
}
