//! A member of the world model in plain loops and double precision.

use crate::state::FEATURES;
use crate::world::{ACTION, Reset, WorldOptions};

/// `y = x W + b` with `W` as `inputs × outputs` and then `b` from a place on, which moves behind them.
fn linear(parameters: &[f32], at: &mut usize, x: &[f64], outputs: usize) -> Vec<f64> {
    let (matrix, rest) = parameters[*at..].split_at(x.len() * outputs);
    *at += x.len() * outputs + outputs;
    (0..outputs)
        .map(|j| {
            let product: f64 =
                x.iter().enumerate().map(|(i, x)| x * f64::from(matrix[i * outputs + j])).sum();
            product + f64::from(rest[j])
        })
        .collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The next state of a GRU whose parameters begin at `at`.
pub(super) fn gru(parameters: &[f32], at: &mut usize, x: &[f64], h: &[f64], reset: Reset) -> Vec<f64> {
    let hidden = h.len();
    let gates = linear(parameters, at, x, 3 * hidden);
    let mut of_state = |state: &[f64]| linear(parameters, at, state, hidden);
    let (update, keep) = (of_state(h), of_state(h));
    let gate = |place: usize, state: &[f64]| -> Vec<f64> {
        (0..hidden).map(|i| sigmoid(gates[place * hidden + i] + state[i])).collect()
    };
    let (z, r) = (gate(0, &update), gate(1, &keep));
    let inner: Vec<f64> = match reset {
        Reset::After => of_state(h).iter().zip(&r).map(|(inner, r)| r * inner).collect(),
        Reset::Before => of_state(&h.iter().zip(&r).map(|(h, r)| r * h).collect::<Vec<f64>>()),
    };
    let n = |i: usize| (gates[2 * hidden + i] + inner[i]).tanh();
    (0..hidden).map(|i| (1.0 - z[i]) * h[i] + z[i] * n(i)).collect()
}

fn softmax(logits: &[f64], classes: usize) -> Vec<f64> {
    let row = |row: &[f64]| {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = row.iter().map(|x| (x - top).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(move |power| power / sum).collect::<Vec<f64>>()
    };
    logits.chunks(classes).flat_map(row).collect()
}

/// A member and what it makes of a run.
pub(super) struct PlainMember<'a> {
    parameters: &'a [f32],
    options: WorldOptions,
    h: Vec<f64>,
    z: Vec<f64>,
    action: Vec<f64>,
}

impl<'a> PlainMember<'a> {
    pub(super) fn new(parameters: &'a [f32], options: WorldOptions) -> Self {
        let (h, z) = (vec![0.0; options.hidden], vec![0.0; options.categories * options.classes]);
        Self { parameters, options, h, z, action: vec![0.0; ACTION] }
    }

    fn advance(&mut self) -> usize {
        let mut at = 0;
        let given = [&self.z[..], &self.action].concat();
        self.h = gru(self.parameters, &mut at, &given, &self.h, self.options.reset);
        at
    }

    /// Follows a tick by the posterior.
    pub(super) fn observe(&mut self, features: &[f32], action: &[f32; ACTION]) {
        let mut at = self.advance();
        let stochastic = self.z.len();
        linear(self.parameters, &mut at, &self.h, stochastic);
        let seen = [&self.h[..], &features.iter().copied().map(f64::from).collect::<Vec<f64>>()].concat();
        self.z = softmax(&linear(self.parameters, &mut at, &seen, stochastic), self.options.classes);
        self.action = action.iter().copied().map(f64::from).collect();
    }

    /// Goes on by the prior under an action: mean and variance of the change of ln loss.
    pub(super) fn imagine(&mut self, action: &[f32; ACTION]) -> [f64; 2] {
        let (state, mut at) = self.tick(action);
        at += (state.len() + 1) * FEATURES;
        let output = linear(self.parameters, &mut at, &state, 2);
        [output[0], output[1].clamp(-12.0, 4.0).exp()]
    }

    /// The same, with the features, and with `|h|` and the mean entropy of the categories.
    pub(super) fn imagine_all(&mut self, action: &[f32; ACTION]) -> PlainTick {
        let (state, mut at) = self.tick(action);
        let features = linear(self.parameters, &mut at, &state, FEATURES);
        let output = linear(self.parameters, &mut at, &state, 2);
        let entropy: f64 = self.z.iter().map(|p| -p * p.max(1e-20).ln()).sum();
        PlainTick {
            change: [output[0], output[1].clamp(-12.0, 4.0).exp()],
            norm: self.h.iter().map(|h| h * h).sum::<f64>().sqrt(),
            entropy: entropy / self.options.categories as f64,
            features,
        }
    }

    /// Both states after an action, beside each other, and where the heads behind the posterior begin.
    fn tick(&mut self, action: &[f32; ACTION]) -> (Vec<f64>, usize) {
        self.action = action.iter().copied().map(f64::from).collect();
        let mut at = self.advance();
        let stochastic = self.z.len();
        self.z = softmax(&linear(self.parameters, &mut at, &self.h, stochastic), self.options.classes);
        at += (self.h.len() + FEATURES + 1) * stochastic;
        ([&self.h[..], &self.z].concat(), at)
    }
}

/// What a member imagines of a tick.
pub(super) struct PlainTick {
    /// Mean and variance of the change of ln loss.
    pub(super) change: [f64; 2],
    pub(super) norm: f64,
    pub(super) entropy: f64,
    pub(super) features: Vec<f64>,
}
