//! One step of all parameters, with its statistics.

use std::ops::{Add, Range};

use serde::{Deserialize, Serialize};

use super::muon::{orthogonalise, scratch_bytes as muon_bytes};
use crate::dense::{dot, squares, sum};
use crate::network::Parameters;

/// Which step is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Adam with decoupled weight decay, for everything.
    AdamW,
    /// Muon for matrices between hidden layers; AdamW for biases, the first and the last layer.
    Muon,
}

/// Constants of a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OptimiserOptions {
    /// Which step.
    pub method: Method,
    /// Decay of the first moment (AdamW).
    pub beta1: f32,
    /// Decay of the second moment (AdamW).
    pub beta2: f32,
    /// Decay of the momentum (Muon).
    pub momentum: f32,
    /// Decoupled weight decay, times the learning rate, on matrices.
    pub weight_decay: f32,
    /// Gradients longer than this are scaled down to it; 0 for never.
    pub clip: f64,
}

impl Default for OptimiserOptions {
    fn default() -> Self {
        let (method, momentum) = (Method::AdamW, 0.95);
        Self { method, beta1: 0.9, beta2: 0.99, momentum, weight_decay: 0.01, clip: 0.0 }
    }
}

impl OptimiserOptions {
    /// What moments are multiplied with after so many steps, since they began at zero: `1 / (1 − β₁ᵗ)`, `1 /
    /// (1 − β₂ᵗ)`.
    pub(crate) fn corrections(&self, steps: u64) -> [f32; 2] {
        [self.beta1, self.beta2].map(|beta| (1.0 / (1.0 - power(beta, steps))) as f32)
    }

    /// Bytes that the step of one of these takes for a while: with Muon, the largest of its products.
    pub(crate) fn scratch_bytes(&self, groups: &[Parameters]) -> usize {
        let inner = groups.get(1..groups.len().saturating_sub(1)).unwrap_or_default();
        match self.method {
            Method::AdamW => 0,
            Method::Muon => inner.iter().map(|group| muon_bytes(group.sides)).max().unwrap_or(0),
        }
    }
}

/// `betaⁿ` by products alone: a power of the system's library may differ from machine to machine.
pub(crate) fn power(beta: f32, mut n: u64) -> f64 {
    let (mut square, mut product) = (f64::from(beta), 1.0);
    while n > 0 {
        if n % 2 == 1 {
            product *= square;
        }
        square *= square;
        n /= 2;
    }
    product
}

/// What Muon's orthogonal direction of a matrix is multiplied with.
pub(crate) fn muon_scale(sides: [usize; 2]) -> f32 {
    MUON_SCALE * (sides[0].max(sides[1]) as f32).sqrt()
}

/// Sums of one pass over a group's parameters. They can be added over groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// `Σ g²` of gradients.
    pub gradient: f64,
    /// `Σ w²` of weights before the step.
    pub weight: f64,
    /// `Σ u²` of the step `u`.
    pub update: f64,
    /// `Σ u u'` with the step before.
    pub along: f64,
    /// `Σ u'²` of the step before.
    pub before: f64,
    /// `Σ m²` of first moments.
    pub first_moment: f64,
    /// `Σ v` of second moments.
    pub second_moment: f64,
    /// Parameters that were counted.
    pub parameters: f64,
}

impl Add for Sums {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            gradient: self.gradient + other.gradient,
            weight: self.weight + other.weight,
            update: self.update + other.update,
            along: self.along + other.along,
            before: self.before + other.before,
            first_moment: self.first_moment + other.first_moment,
            second_moment: self.second_moment + other.second_moment,
            parameters: self.parameters + other.parameters,
        }
    }
}

/// Sums of matrices with their biases, as those of the groups that they belong to.
pub(crate) fn grouped(parameters: &[Parameters], sums: Vec<Sums>) -> Vec<Sums> {
    let mut grouped: Vec<Sums> = Vec::new();
    let mut layer = None;
    for (parameters, sums) in parameters.iter().zip(sums) {
        match grouped.last_mut() {
            Some(group) if layer == Some(parameters.layer) => *group = *group + sums,
            _ => grouped.push(sums),
        }
        layer = Some(parameters.layer);
    }
    grouped
}

/// Moments of gradients, and how many steps they are of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Optimiser {
    options: OptimiserOptions,
    steps: u64,
    first: Vec<f32>,
    second: Vec<f32>,
    /// The last displacement, for the cosine with the next.
    last: Vec<f32>,
}

/// Added to the root of the second moment.
pub(crate) const EPSILON: f32 = 1e-8;
/// Parameters that are updated and then counted while they are in the cache.
const BLOCK: usize = 4096;
/// The root mean square that an entry of Muon's step has, as AdamW's has (Liu et al. 2025, arXiv 2502.16982).
const MUON_SCALE: f32 = 0.2;

impl Optimiser {
    /// For that many parameters.
    pub fn new(options: OptimiserOptions, parameters: usize) -> Self {
        let zeros = || vec![0.0; parameters];
        Self { options, steps: 0, first: zeros(), second: zeros(), last: zeros() }
    }

    /// With first moments, second moments and the last displacement after so many steps.
    #[cfg(feature = "cuda")]
    pub(crate) fn of(options: OptimiserOptions, steps: u64, moments: [Vec<f32>; 3]) -> Self {
        let [first, second, last] = moments;
        Self { options, steps, first, second, last }
    }

    /// What [`Self::of`] takes.
    #[cfg(feature = "cuda")]
    pub(crate) fn parts(&self) -> (u64, [&[f32]; 3]) {
        (self.steps, [&self.first, &self.second, &self.last])
    }

    /// The same to be written over, after so many steps.
    #[cfg(feature = "cuda")]
    pub(crate) fn parts_mut(&mut self, steps: u64) -> [&mut [f32]; 3] {
        self.steps = steps;
        [&mut self.first, &mut self.second, &mut self.last]
    }

    /// Becomes as another one, in the memory that it has.
    pub(crate) fn copy(&mut self, other: &Self) {
        (self.options, self.steps) = (other.options, other.steps);
        self.first.clone_from(&other.first);
        self.second.clone_from(&other.second);
        self.last.clone_from(&other.last);
    }

    /// Whether these are moments of so many parameters, which can go on.
    pub(crate) fn is_of(&self, parameters: usize) -> bool {
        let moments = [&self.first, &self.second, &self.last];
        moments.iter().all(|moments| moments.len() == parameters) && self.steps < u64::MAX
    }

    /// Steps that were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Moves `weights` against `gradient` at rate `rate`, all groups from number `frozen` on; those before
    /// keep weights and moments. Returns the gradient's length before it is clipped, and with `measure` the
    /// sums of every group, zeros for the frozen.
    pub fn step(
        &mut self,
        groups: &[Parameters],
        weights: &mut [f32],
        gradient: &mut [f32],
        rate: f32,
        frozen: usize,
        measure: bool,
    ) -> (f64, Vec<Sums>) {
        self.steps += 1;
        let length = self.clip(gradient);
        let mut found = Vec::with_capacity(groups.len());
        for (place, group) in groups.iter().enumerate() {
            if place < frozen {
                found.push(Sums::default());
                continue;
            }
            let inner = place > 0 && place + 1 < groups.len();
            let mut sums = Sums::default();
            if self.options.method == Method::Muon && inner {
                sums = self.muon(group, weights, gradient, rate, measure);
            } else {
                let decay = self.options.weight_decay;
                for block in blocks(group.matrix.clone()) {
                    sums = sums + self.adam(block, weights, gradient, rate, decay, measure);
                }
            }
            for block in blocks(group.bias.clone()) {
                sums = sums + self.adam(block, weights, gradient, rate, 0.0, measure);
            }
            found.push(sums);
        }
        (length, found)
    }

    fn clip(&self, gradient: &mut [f32]) -> f64 {
        let length = squares(gradient).sqrt();
        if self.options.clip > 0.0 && length > self.options.clip {
            let scale = (self.options.clip / length) as f32;
            gradient.iter_mut().for_each(|g| *g *= scale);
        }
        length
    }

    /// `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) g²`, `w ← w − rate (m̂ / (√v̂ + ε) + decay w)`, with
    /// `m̂ = m / (1 − β₁ᵗ)` and `v̂ = v / (1 − β₂ᵗ)`.
    fn adam(
        &mut self,
        block: Range<usize>,
        weights: &mut [f32],
        gradient: &[f32],
        rate: f32,
        decay: f32,
        measure: bool,
    ) -> Sums {
        let OptimiserOptions { beta1, beta2, .. } = self.options;
        let [first_scale, second_scale] = self.options.corrections(self.steps);
        let mut step = [0.0f32; BLOCK];
        let step = &mut step[..block.len()];
        let weights = &mut weights[block.clone()];
        let gradient = &gradient[block.clone()];
        let (first, second) = (&mut self.first[block.clone()], &mut self.second[block.clone()]);
        let all =
            step.iter_mut().zip(weights.iter()).zip(gradient).zip(first.iter_mut().zip(second.iter_mut()));
        for (((step, w), g), (m, v)) in all {
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            *step = -rate * (*m * first_scale / ((*v * second_scale).sqrt() + EPSILON) + decay * w);
        }
        let second_sum = if measure { sum(second) } else { 0.0 };
        move_by(step, weights, gradient, first, &mut self.last[block], second_sum, measure)
    }

    /// `m ← μ m + g`, `w ← w − rate (0.2 √max(rows, columns) · orthogonal(g + μ m) + decay w)`.
    fn muon(
        &mut self,
        group: &Parameters,
        weights: &mut [f32],
        gradient: &[f32],
        rate: f32,
        measure: bool,
    ) -> Sums {
        let OptimiserOptions { momentum, weight_decay, .. } = self.options;
        let range = group.matrix.clone();
        let first = &mut self.first[range.clone()];
        let gradient = &gradient[range.clone()];
        first.iter_mut().zip(gradient).for_each(|(m, g)| *m = momentum * *m + g);
        let mut step: Vec<f32> = gradient.iter().zip(first.iter()).map(|(g, m)| g + momentum * m).collect();
        orthogonalise(&mut step, group.sides);
        let scale = muon_scale(group.sides);
        let weights = &mut weights[range.clone()];
        step.iter_mut()
            .zip(weights.iter())
            .for_each(|(step, w)| *step = -rate * (scale * *step + weight_decay * w));
        move_by(&step, weights, gradient, first, &mut self.last[range], 0.0, measure)
    }
}

fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(BLOCK).map(move |from| from..(from + BLOCK).min(range.end))
}

/// `w ← w + u`; what was asked for is added up while all of it is in the cache.
fn move_by(
    step: &[f32],
    weights: &mut [f32],
    gradient: &[f32],
    first: &[f32],
    last: &mut [f32],
    second_moment: f64,
    measure: bool,
) -> Sums {
    let mut sums = Sums::default();
    if measure {
        sums = Sums {
            gradient: squares(gradient),
            weight: squares(weights),
            update: squares(step),
            along: dot(step, last),
            before: squares(last),
            first_moment: squares(first),
            second_moment,
            parameters: step.len() as f64,
        };
    }
    last.copy_from_slice(step);
    weights.iter_mut().zip(step).for_each(|(w, step)| *w += step);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Architecture;

    fn descend(method: Method) -> (Vec<f32>, Vec<Sums>) {
        let groups = Architecture::mlp([1, 1, 4], &[8, 8], 2).unwrap().parameters();
        let count = groups.last().unwrap().bias.end;
        let mut weights: Vec<f32> = (0..count).map(|i| ((i * 37 % 19) as f32 - 9.0) / 9.0).collect();
        let options = OptimiserOptions { method, weight_decay: 0.0, ..OptimiserOptions::default() };
        let mut optimiser = Optimiser::new(options, count);
        let mut sums = Vec::new();
        for step in 0..300 {
            // The gradient of Σ w² / 2.
            let mut gradient = weights.clone();
            (_, sums) = optimiser.step(
                &groups,
                &mut weights,
                &mut gradient,
                0.03 * (1.0 - step as f32 / 300.0),
                0,
                true,
            );
        }
        (weights, sums)
    }

    #[test]
    fn both_methods_find_the_bottom_of_a_bowl() {
        for method in [Method::AdamW, Method::Muon] {
            let (weights, sums) = descend(method);
            let size = squares(&weights).sqrt() / (weights.len() as f64).sqrt();
            // It was 0.6. Muon's steps do not shrink with the gradient, so that it ends within its last
            // rates.
            assert!(size < 0.1, "{method:?}: {size}");
            assert_eq!(sums.len(), 3);
            assert!(sums.iter().all(|sums| sums.update > 0.0 && sums.before > 0.0));
        }
    }

    #[test]
    fn the_first_step_of_adam_is_the_sign_times_the_rate() {
        let groups = Architecture::mlp([1, 1, 1], &[], 1).unwrap().parameters();
        let mut weights = vec![0.5, 0.5];
        let options = OptimiserOptions { weight_decay: 0.1, ..OptimiserOptions::default() };
        let mut optimiser = Optimiser::new(options, 2);
        optimiser.step(&groups, &mut weights, &mut [3.0, -7.0], 0.01, 0, false);
        // Decay is for matrices alone: 0.01 · 0.1 · 0.5 on the first.
        assert!((weights[0] - (0.5 - 0.01 - 0.0005)).abs() < 1e-6, "{weights:?}");
        assert!((weights[1] - 0.51).abs() < 1e-6, "{weights:?}");
    }

    #[test]
    fn powers_are_products() {
        assert_eq!([0, 1, 2, 5].map(|n| power(0.5, n)), [1.0, 0.5, 0.25, 0.03125]);
        assert!((power(0.999, 1_000) / 0.999f32.powi(1000) as f64 - 1.0).abs() < 1e-3);
        assert_eq!(power(0.9, u64::MAX), 0.0);
    }

    #[test]
    fn a_long_gradient_is_clipped() {
        let mut gradient = vec![3.0, 4.0];
        let options = OptimiserOptions { clip: 1.0, ..OptimiserOptions::default() };
        Optimiser::new(options, 2).clip(&mut gradient);
        assert!((squares(&gradient) - 1.0).abs() < 1e-6);
    }
}
