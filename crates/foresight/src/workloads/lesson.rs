//! What a member of the world model learns from slices of runs: its loss as formulas in plain loops and double
//! precision, and their derivatives by a tape.

use super::tape::{Place, Tape, at};
use crate::random::Random;
use crate::state::FEATURES;
use crate::world::inside::{Slice, Weights};
use crate::world::{ACTION, Reset, WorldOptions};

/// A mistake that backward passes through time invite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Through {
    /// None: derivatives go back to the first tick.
    AllTicks,
    /// Derivatives end at the state before a tick.
    OneTick,
}

/// The losses of the features, the change, the end and the divergence; and the derivatives in parameters of
/// what is learnt from. `draws` are of the stochastic states.
pub(super) fn learn(
    parameters: &[f64],
    options: &WorldOptions,
    slices: &[Slice],
    draws: &Random,
    through: Through,
) -> ([f64; 4], Vec<f64>) {
    let mut tape = Tape::default();
    let places: Vec<Place> = parameters.iter().map(|w| tape.given(*w)).collect();
    let mut model = Model { tape, parameters: places.clone(), options, sum: Vec::new(), losses: [0.0; 4] };
    for window in 0..options.batch {
        model.window(slices, window, draws, through);
    }
    let Model { mut tape, sum, losses, .. } = model;
    let zero = tape.given(0.0);
    let all = sum.into_iter().fold(zero, |sum, part| tape.add(sum, part));
    (losses, at(&tape.derivatives(all), &places))
}

struct Model<'a> {
    tape: Tape,
    parameters: Vec<Place>,
    options: &'a WorldOptions,
    /// What the loss is the sum of.
    sum: Vec<Place>,
    losses: [f64; 4],
}

impl Model<'_> {
    /// `x W + b` of the layer that begins at `at`, which moves behind it.
    fn linear(&mut self, at: &mut usize, x: &[Place], outputs: usize) -> Vec<Place> {
        let (matrix, bias) = (*at, *at + x.len() * outputs);
        *at = bias + outputs;
        (0..outputs)
            .map(|j| {
                let mut sum = self.parameters[bias + j];
                for (i, x) in x.iter().enumerate() {
                    let product = self.tape.multiply(*x, self.parameters[matrix + i * outputs + j]);
                    sum = self.tape.add(sum, product);
                }
                sum
            })
            .collect()
    }

    fn given(&mut self, numbers: &[f32]) -> Vec<Place> {
        numbers.iter().map(|x| self.tape.given(f64::from(*x))).collect()
    }

    fn gru(&mut self, at: &mut usize, x: &[Place], h: &[Place]) -> Vec<Place> {
        let hidden = h.len();
        let gates = self.linear(at, x, 3 * hidden);
        let mut gate = |model: &mut Self, place: usize| -> Vec<Place> {
            let of_state = model.linear(at, h, hidden);
            let of_row = |(j, of_state): (usize, Place)| {
                let inner = model.tape.add(gates[place * hidden + j], of_state);
                model.tape.sigmoid(inner)
            };
            of_state.into_iter().enumerate().map(of_row).collect()
        };
        let (z, r) = (gate(self, 0), gate(self, 1));
        let inner: Vec<Place> = match self.options.reset {
            Reset::After => {
                let inner = self.linear(at, h, hidden);
                inner.iter().zip(&r).map(|(inner, r)| self.tape.multiply(*inner, *r)).collect()
            }
            Reset::Before => {
                let kept: Vec<Place> = h.iter().zip(&r).map(|(h, r)| self.tape.multiply(*h, *r)).collect();
                self.linear(at, &kept, hidden)
            }
        };
        (0..hidden)
            .map(|j| {
                let n = self.tape.add(gates[2 * hidden + j], inner[j]);
                let n = self.tape.tanh(n);
                // h + z (n - h).
                let back = self.tape.scale(h[j], -1.0);
                let way = self.tape.add(n, back);
                let step = self.tape.multiply(z[j], way);
                self.tape.add(h[j], step)
            })
            .collect()
    }

    fn softmax(&mut self, logits: &[Place]) -> Vec<Place> {
        let mut found = Vec::with_capacity(logits.len());
        for row in logits.chunks(self.options.classes) {
            let powers: Vec<Place> = row.iter().map(|x| self.tape.exp(*x)).collect();
            let mut sum = powers[0];
            for power in &powers[1..] {
                sum = self.tape.add(sum, *power);
            }
            let total = self.tape.value(sum);
            let part = self.tape.instead(sum, 1.0 / total, -1.0 / (total * total));
            found.extend(powers.iter().map(|power| self.tape.multiply(*power, part)));
        }
        found
    }

    /// One class of every category for what they are drawn from; derivatives pass as if it were `q` itself.
    fn draw(&mut self, q: &[Place], draws: &Random, first: usize) -> Vec<Place> {
        let mut found = Vec::with_capacity(q.len());
        for (category, row) in q.chunks(self.options.classes).enumerate() {
            let bits = draws.numbered((first + category) as u64);
            let mut left = f64::from(((bits >> 11) as f64 / (1u64 << 53) as f64) as f32);
            let chosen = row.iter().position(|p| {
                left -= self.tape.value(*p);
                left < 0.0
            });
            let chosen = chosen.unwrap_or(row.len() - 1);
            let one = |(i, p): (usize, &Place)| self.tape.instead(*p, f64::from(u8::from(i == chosen)), 1.0);
            found.extend(row.iter().enumerate().map(one));
        }
        found
    }

    /// Adds a part of the loss, and what it is counted as.
    fn lose(&mut self, part: usize, loss: Place, counted: f64) {
        self.losses[part] += counted;
        self.sum.push(loss);
    }

    /// `−ln N(target; mean, variance)` up to a constant.
    fn normal(&mut self, part: usize, output: &[Place], target: Option<f32>, scale: f64) {
        let Some(target) = target else { return };
        let raw = self.tape.value(output[1]);
        let bounded = raw.clamp(-12.0, 4.0);
        let log_variance = self.tape.instead(output[1], bounded, f64::from(u8::from(bounded == raw)));
        let target = self.tape.given(-f64::from(target));
        let rest = self.tape.add(output[0], target);
        let squared = self.tape.multiply(rest, rest);
        let back = self.tape.scale(log_variance, -1.0);
        let precision = self.tape.exp(back);
        let scaled = self.tape.multiply(squared, precision);
        let both = self.tape.add(log_variance, scaled);
        let loss = self.tape.scale(both, 0.5 * scale);
        self.lose(part, loss, self.tape.value(loss));
    }

    fn window(&mut self, slices: &[Slice], window: usize, draws: &Random, through: Through) {
        let WorldOptions { hidden, categories, classes, batch, .. } = *self.options;
        let stochastic = categories * classes;
        let scale = 1.0 / (batch * slices.len()) as f64;
        let Weights { prior: of_prior, posterior: of_posterior } = self.options.weights();
        let (mut h, mut z) = (self.given(&vec![0.0; hidden]), self.given(&vec![0.0; stochastic]));
        let mut action = self.given(&[0.0; ACTION]);
        for (tick, slice) in slices.iter().enumerate() {
            if through == Through::OneTick {
                for place in h.iter_mut().chain(&mut z) {
                    let value = self.tape.value(*place);
                    *place = self.tape.given(value);
                }
            }
            let mut place = 0;
            h = self.gru(&mut place, &[&z[..], &action].concat(), &h);
            let logits = self.linear(&mut place, &h, stochastic);
            let p = self.softmax(&logits);
            let x = self.given(&slice.x[window * FEATURES..(window + 1) * FEATURES]);
            let logits = self.linear(&mut place, &[&h[..], &x].concat(), stochastic);
            let q = self.softmax(&logits);
            z = self.draw(&q, draws, (tick * batch + window) * categories);
            let state = [&h[..], &z].concat();
            let guess = self.linear(&mut place, &state, FEATURES);
            for (guess, x) in guess.iter().zip(&x) {
                let back = self.tape.scale(*x, -1.0);
                let off = self.tape.add(*guess, back);
                let squared = self.tape.multiply(off, off);
                let loss = self.tape.scale(squared, 0.5 * scale / FEATURES as f64);
                self.lose(0, loss, self.tape.value(loss));
            }
            let output = self.linear(&mut place, &state, 2);
            self.normal(1, &output, slice.change[window], scale);
            let output = self.linear(&mut place, &state, 2);
            self.normal(2, &output, slice.end[window], scale);
            // KL(q || p), once as if q were given, and once as if p were.
            for (q, p) in q.iter().zip(&p) {
                let (q_now, p_now) = (self.tape.value(*q), self.tape.value(*p));
                let log_p = self.tape.ln(*p);
                let of_p = self.tape.scale(log_p, -q_now * f64::from(of_prior) * scale);
                let log_q = self.tape.ln(*q);
                let log_p = self.tape.given(-p_now.ln());
                let ratio = self.tape.add(log_q, log_p);
                let product = self.tape.multiply(*q, ratio);
                let of_q = self.tape.scale(product, f64::from(of_posterior) * scale);
                self.lose(3, of_p, q_now * (q_now / p_now).ln() * scale);
                self.lose(3, of_q, 0.0);
            }
            action = self.given(&slice.a[window * ACTION..(window + 1) * ACTION]);
        }
    }
}
