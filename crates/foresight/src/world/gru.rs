//! Gated recurrent units.
//!
//! ```text
//! z = σ(x W_z + h U_z + b_z)        r = σ(x W_r + h U_r + b_r)
//! n = tanh(x W_n + b_n + r (h U_n + c_n))      reset after the product (cuDNN, PyTorch)
//! n = tanh(x W_n + b_n + (r h) U_n + c_n)      reset before it (Cho et al. 2014)
//! h' = (1 − z) h + z n
//! ```

use serde::{Deserialize, Serialize};

use super::linear::Linear;
use crate::dense::{sigmoid, tanh};
use crate::random::Random;

/// Where the reset gate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reset {
    /// After the product with the state.
    After,
    /// Before the product with the state: one product waits for another.
    Before,
}

/// A GRU whose parameters lie in a larger array.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gru {
    pub(super) hidden: usize,
    reset: Reset,
    /// From the input to all three gates: z, r, n.
    pub(crate) input: Linear,
    /// From the state to each gate.
    pub(crate) state: [Linear; 3],
}

/// What the backward pass needs of a step.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    x: Vec<f32>,
    h: Vec<f32>,
    z: Vec<f32>,
    r: Vec<f32>,
    n: Vec<f32>,
    /// `h U_n + c_n` or `r h`.
    inner: Vec<f32>,
}

/// Memory that steps without a backward pass use again and again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    gates: Vec<f32>,
    z: Vec<f32>,
    r: Vec<f32>,
    n: Vec<f32>,
    inner: Vec<f32>,
}

impl Gru {
    pub(crate) fn place(inputs: usize, hidden: usize, reset: Reset, at: &mut usize) -> Self {
        let input = Linear::place(inputs, 3 * hidden, at);
        let state = std::array::from_fn(|_| Linear::place(hidden, hidden, at));
        Self { hidden, reset, input, state }
    }

    pub(super) fn initialise(&self, parameters: &mut [f32], random: &mut Random) {
        self.input.initialise(parameters, random);
        self.state.iter().for_each(|gate| gate.initialise(parameters, random));
    }

    /// The next state, and what the backward pass needs.
    pub(super) fn forward(&self, parameters: &[f32], x: &[f32], h: &[f32]) -> (Vec<f32>, Trace) {
        let gates = self.input.forward(parameters, x);
        let part = |gate: usize| {
            let of_row = move |row: &[f32]| row[gate * self.hidden..(gate + 1) * self.hidden].to_vec();
            gates.chunks_exact(3 * self.hidden).flat_map(of_row).collect::<Vec<f32>>()
        };
        let gate = |place: usize| -> Vec<f32> {
            let mut of_state = self.state[place].forward(parameters, h);
            add(&mut of_state, &part(place));
            sigmoid(&mut of_state);
            of_state
        };
        let (z, r) = (gate(0), gate(1));
        let (mut n, inner): (Vec<f32>, Vec<f32>) = match self.reset {
            Reset::After => {
                let inner = self.state[2].forward(parameters, h);
                let n = part(2).iter().zip(&r).zip(&inner).map(|((x, r), h)| x + r * h).collect();
                (n, inner)
            }
            Reset::Before => {
                let inner: Vec<f32> = r.iter().zip(h).map(|(r, h)| r * h).collect();
                let mut of_state = self.state[2].forward(parameters, &inner);
                add(&mut of_state, &part(2));
                (of_state, inner)
            }
        };
        tanh(&mut n);
        let next = z.iter().zip(&n).zip(h).map(|((z, n), h)| (1.0 - z) * h + z * n).collect();
        (next, Trace { x: x.to_vec(), h: h.to_vec(), z, r, n, inner })
    }

    /// The next state of one row in place of `h`: the bits of [`Self::forward`], with nothing kept for a
    /// backward pass.
    pub(crate) fn advance(&self, parameters: &[f32], x: &[f32], h: &mut [f32], scratch: &mut Scratch) {
        let Scratch { gates, z, r, n, inner } = scratch;
        self.input.forward_into(parameters, x, gates);
        let part = |gate: usize| &gates[gate * self.hidden..(gate + 1) * self.hidden];
        for (place, gate) in [&mut *z, &mut *r].into_iter().enumerate() {
            self.state[place].forward_into(parameters, h, gate);
            add(gate, part(place));
            sigmoid(gate);
        }
        match self.reset {
            Reset::After => {
                self.state[2].forward_into(parameters, h, n);
                n.iter_mut().zip(part(2)).zip(&*r).for_each(|((n, x), r)| *n = x + r * *n);
            }
            Reset::Before => {
                inner.clear();
                inner.extend(r.iter().zip(&*h).map(|(r, h)| r * h));
                self.state[2].forward_into(parameters, inner, n);
                add(n, part(2));
            }
        }
        tanh(n);
        h.iter_mut().zip(&*z).zip(&*n).for_each(|((h, z), n)| *h = (1.0 - z) * *h + z * n);
    }

    /// Adds to the gradient, and returns the gradients of the input and of the state before.
    pub(super) fn backward(
        &self,
        parameters: &[f32],
        trace: &Trace,
        next: &[f32],
        gradient: &mut [f32],
    ) -> (Vec<f32>, Vec<f32>) {
        let Trace { x, h, z, r, n, inner } = trace;
        let cells = next.len();
        let mut before: Vec<f32> = next.iter().zip(z).map(|(d, z)| d * (1.0 - z)).collect();
        let dz: Vec<f32> = (0..cells).map(|i| next[i] * (n[i] - h[i]) * z[i] * (1.0 - z[i])).collect();
        let dn: Vec<f32> = (0..cells).map(|i| next[i] * z[i] * (1.0 - n[i] * n[i])).collect();
        let dr: Vec<f32> = match self.reset {
            Reset::After => {
                let of_state: Vec<f32> = dn.iter().zip(r).map(|(d, r)| d * r).collect();
                self.state[2].gradient(h, &of_state, gradient);
                add(&mut before, &self.state[2].backward(parameters, &of_state));
                (0..cells).map(|i| dn[i] * inner[i] * r[i] * (1.0 - r[i])).collect()
            }
            Reset::Before => {
                self.state[2].gradient(inner, &dn, gradient);
                let of_inner = self.state[2].backward(parameters, &dn);
                before.iter_mut().zip(of_inner.iter().zip(r)).for_each(|(h, (d, r))| *h += d * r);
                (0..cells).map(|i| of_inner[i] * h[i] * r[i] * (1.0 - r[i])).collect()
            }
        };
        for (place, delta) in [&dz, &dr].into_iter().enumerate() {
            self.state[place].gradient(h, delta, gradient);
            add(&mut before, &self.state[place].backward(parameters, delta));
        }
        let rows = [&dz, &dr, &dn].map(|gate| gate.chunks_exact(self.hidden));
        let [zs, rs, ns] = rows;
        let gates: Vec<f32> = zs.zip(rs).zip(ns).flat_map(|((z, r), n)| [z, r, n].concat()).collect();
        self.input.gradient(x, &gates, gradient);
        (self.input.backward(parameters, &gates), before)
    }
}

pub(super) fn add(sum: &mut [f32], more: &[f32]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_a_trace_is_the_same_bits() {
        for reset in [Reset::After, Reset::Before] {
            let mut at = 0;
            let gru = Gru::place(9, 37, reset, &mut at);
            let mut random = Random::new(4, "gru");
            let mut numbers = |n: usize| (0..n).map(|_| random.normal() as f32).collect::<Vec<f32>>();
            let (parameters, x) = (numbers(at), numbers(9));
            let mut h = numbers(37);
            let (mut next, mut scratch) = (h.clone(), Scratch::default());
            for _ in 0..3 {
                h = gru.forward(&parameters, &x, &h).0;
                gru.advance(&parameters, &x, &mut next, &mut scratch);
                assert_eq!(h, next, "{reset:?}");
            }
        }
    }

    #[test]
    fn both_forms_match_finite_differences() {
        for reset in [Reset::After, Reset::Before] {
            let mut at = 0;
            let gru = Gru::place(3, 4, reset, &mut at);
            let mut random = Random::new(2, "gru");
            let mut parameters: Vec<f32> = (0..at).map(|_| 0.5 * random.normal() as f32).collect();
            let mut numbers = |n: usize| (0..n).map(|_| random.normal() as f32).collect::<Vec<f32>>();
            let (x, h, wanted) = (numbers(6), numbers(8), numbers(8));
            // The scalar is Σ wanted · h'.
            let value = |parameters: &[f32], x: &[f32], h: &[f32]| -> f64 {
                let (next, _) = gru.forward(parameters, x, h);
                next.iter().zip(&wanted).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let (_, trace) = gru.forward(&parameters, &x, &h);
            let mut gradient = vec![0.0; at];
            let (dx, dh) = gru.backward(&parameters, &trace, &wanted, &mut gradient);
            let close = |found: f32, difference: f64| {
                assert!((f64::from(found) - difference).abs() < 3e-3, "{reset:?}: {found} {difference}");
            };
            let step = 1e-2f32;
            for i in 0..at {
                let kept = parameters[i];
                parameters[i] = kept + step;
                let above = value(&parameters, &x, &h);
                parameters[i] = kept - step;
                let below = value(&parameters, &x, &h);
                parameters[i] = kept;
                close(gradient[i], (above - below) / f64::from(2.0 * step));
            }
            let shifted = |v: &[f32], i: usize, by: f32| {
                let mut v = v.to_vec();
                v[i] += by;
                v
            };
            for (i, &found) in dx.iter().enumerate() {
                let [a, b] = [step, -step].map(|by| value(&parameters, &shifted(&x, i, by), &h));
                close(found, (a - b) / f64::from(2.0 * step));
            }
            for (i, &found) in dh.iter().enumerate() {
                let [a, b] = [step, -step].map(|by| value(&parameters, &x, &shifted(&h, i, by)));
                close(found, (a - b) / f64::from(2.0 * step));
            }
        }
    }
}
