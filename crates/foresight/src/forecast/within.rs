//! What runs of one task say of another run of it: a Gaussian process from [`Inputs`] to ln(end / now).
//!
//! `k(x, y) = a exp(−|x − y|² / 2ℓ²) + b x·y + 1`, and noise. Its constants were chosen by the logarithmic score of runs that were left
//! out, on runs that are learnt from. Bands are calibrated by runs that are left out one at a time, by thirds of the learning rates, and
//! by schedules, so that they know how far a forecast is off at settings that were not seen (cross-conformal prediction).

use serde::{Deserialize, Serialize};

use super::look::{INPUTS, Inputs, MEAN_RATE};
use super::symmetric::{Matrix, dot, inverse};

const LENGTH: f64 = 7.0;
const SMOOTH: f64 = 0.5;
const LINEAR: f64 = 0.03;
const NOISE: f64 = 0.03;
/// Nothing is further out than this, in deviations.
const BOUND: f64 = 6.0;

/// A run that is learnt from.
pub(super) struct Example {
    pub(super) inputs: Inputs,
    /// ln(end / now).
    pub(super) target: f64,
    /// The logarithm of its highest rate, where it has rates.
    pub(super) rate: Option<f64>,
}

/// What was learnt from runs of one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Within {
    centre: Vec<f64>,
    scale: Vec<f64>,
    inputs: Vec<Vec<f64>>,
    weights: Vec<f64>,
    inverse: Matrix,
    /// Errors over their deviations, of runs that were left out.
    scores: Vec<f64>,
    /// Lowest and highest of the logarithms of their rates.
    rates: Option<[f64; 2]>,
}

fn kernel(x: &[f64], y: &[f64]) -> f64 {
    let distance: f64 = x.iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum();
    SMOOTH * (-distance / (2.0 * LENGTH * LENGTH)).exp() + LINEAR * dot(x, y) + 1.0
}

impl Within {
    /// Learns from runs. `everywhere` is the deviation of each input over all tasks: what hardly varies here must not blow up.
    pub(super) fn learn(examples: &[Example], everywhere: &Inputs) -> Self {
        let n = examples.len() as f64;
        let mean = |i: usize| examples.iter().map(|example| example.inputs[i]).sum::<f64>() / n;
        let centre: Vec<f64> = (0..INPUTS).map(mean).collect();
        let scale: Vec<f64> = (0..INPUTS)
            .map(|i| {
                let variance =
                    examples.iter().map(|example| (example.inputs[i] - centre[i]).powi(2)).sum::<f64>() / n;
                variance.sqrt() + 0.1 * everywhere[i] + 1e-6
            })
            .collect();
        let inputs: Vec<Vec<f64>> =
            examples.iter().map(|example| normalise(&example.inputs, &centre, &scale)).collect();
        let covariance: Matrix = (0..inputs.len())
            .map(|i| {
                (0..inputs.len())
                    .map(|j| kernel(&inputs[i], &inputs[j]) + if i == j { NOISE } else { 0.0 })
                    .collect()
            })
            .collect();
        let inverse = inverse(&covariance);
        let targets: Vec<f64> = examples.iter().map(|example| example.target).collect();
        let weights: Vec<f64> = inverse.iter().map(|row| dot(row, &targets)).collect();
        let mut scores: Vec<f64> =
            (0..inputs.len()).flat_map(|i| left_out(&inverse, &weights, &[i])).collect();
        for groups in [by_rate(examples), by_schedule(examples)] {
            // Without rates there are no such groups.
            if groups.len() > 1 {
                scores.extend(groups.iter().flat_map(|group| left_out(&inverse, &weights, group)));
            }
        }
        let rates = examples.iter().filter_map(|example| example.rate);
        let bounds = rates.fold(None, |bounds: Option<[f64; 2]>, rate| {
            Some(bounds.map_or([rate; 2], |[low, high]| [low.min(rate), high.max(rate)]))
        });
        Self { centre, scale, inputs, weights, inverse, scores, rates: bounds }
    }

    /// Samples of ln(end / now).
    pub(super) fn samples(&self, inputs: &Inputs) -> Vec<f64> {
        let x = normalise(inputs, &self.centre, &self.scale);
        let near: Vec<f64> = self.inputs.iter().map(|known| kernel(&x, known)).collect();
        let mean = dot(&near, &self.weights);
        let explained: f64 = self.inverse.iter().zip(&near).map(|(row, k)| k * dot(row, &near)).sum();
        let deviation = (kernel(&x, &x) + NOISE - explained).max(1e-6).sqrt();
        self.scores.iter().map(|score| mean + deviation * score).collect()
    }

    /// Whether a rate is outside of those that were learnt from.
    pub(super) fn is_beyond(&self, rate: Option<f64>) -> bool {
        self.rates.zip(rate).is_some_and(|([low, high], rate)| !(low..=high).contains(&rate))
    }
}

fn normalise(inputs: &Inputs, centre: &[f64], scale: &[f64]) -> Vec<f64> {
    (0..INPUTS).map(|i| ((inputs[i] - centre[i]) / scale[i]).clamp(-BOUND, BOUND)).collect()
}

/// Errors over deviations of a group's forecasts from all others: with `B` the block of the inverse, the errors are `B⁻¹ α` and the
/// covariance is `B⁻¹` (Rasmussen and Williams 2006, section 5.4.2).
fn left_out(inverse_covariance: &Matrix, weights: &[f64], group: &[usize]) -> Vec<f64> {
    let block: Matrix =
        group.iter().map(|&i| group.iter().map(|&j| inverse_covariance[i][j]).collect()).collect();
    let covariance = inverse(&block);
    let own: Vec<f64> = group.iter().map(|&i| weights[i]).collect();
    covariance.iter().enumerate().map(|(i, row)| dot(row, &own) / row[i].max(1e-12).sqrt()).collect()
}

/// Three groups of like rates.
fn by_rate(examples: &[Example]) -> Vec<Vec<usize>> {
    let mut order: Vec<(f64, usize)> =
        examples.iter().enumerate().filter_map(|(i, example)| Some((example.rate?, i))).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let groups = (0..3).map(|third| &order[third * order.len() / 3..(third + 1) * order.len() / 3]);
    groups.filter(|group| !group.is_empty()).map(|group| group.iter().map(|(_, i)| *i).collect()).collect()
}

/// Runs whose rate falls, and those whose does not.
fn by_schedule(examples: &[Example]) -> Vec<Vec<usize>> {
    let (falling, staying): (Vec<usize>, Vec<usize>) =
        (0..examples.len()).partition(|&i| examples[i].inputs[MEAN_RATE] < 0.95);
    [falling, staying].into_iter().filter(|group| !group.is_empty()).collect()
}
