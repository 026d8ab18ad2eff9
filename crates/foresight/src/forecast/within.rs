//! What runs of one task say of another run of it: a Gaussian process from [`Inputs`] to ln(end / now).
//!
//! `k(x, y) = a exp(−|x − y|² / 2ℓ²) + b x·y + 1`, and noise. Its constants were chosen by the logarithmic
//! score of runs that were left out, on runs that are learnt from. Bands are calibrated by runs that are left
//! out (cross-conformal prediction): one at a time and by thirds of the learning rates; for a network of a
//! size that was not learnt from, all of one size at once, and for a schedule that was not learnt from, all
//! of one schedule at once, so that they know how far a forecast is off there.

use serde::{Deserialize, Serialize};

use super::look::{INPUTS, Inputs, Question};
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
    pub(super) settings: Settings,
}

/// Something that runs have in common or not, as two numbers.
type Trait = [f64; 2];

/// What is known of a run before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    /// The logarithm of its highest rate, where it has rates.
    rate: Option<f64>,
    /// The mean and the last of its rates over the highest: which schedule it is.
    schedule: Option<Trait>,
    /// The logarithm of its size, where that is known.
    size: Option<Trait>,
}

impl Settings {
    pub(super) fn of(question: &Question<'_>) -> Self {
        let rates: Vec<f64> = question.ahead.iter().map(|(_, rate)| *rate).collect();
        let highest = rates.iter().copied().fold(0.0, f64::max);
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let last = rates.last().copied().unwrap_or(0.0);
        Self {
            rate: (highest > 0.0).then(|| highest.ln()),
            schedule: (highest > 0.0).then(|| [mean, last].map(|rate| rate / highest)),
            size: (question.size > 0.0).then(|| [question.size.ln(), 0.0]),
        }
    }
}

/// Errors at settings that were not learnt from, over what the few groups that could be left out say: those
/// lie between others, and new ones beyond them. Settled on seeds that no result counts.
const WIDER: f64 = 1.25;

/// What differs by less is taken for one.
const SAME: f64 = 0.15;

fn are_alike(one: &Trait, other: &Trait) -> bool {
    one.iter().zip(other).all(|(one, other)| (one - other).abs() <= SAME)
}

/// What was learnt from runs of one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Within {
    centre: Vec<f64>,
    scale: Vec<f64>,
    inputs: Vec<Vec<f64>>,
    weights: Vec<f64>,
    inverse: Matrix,
    /// Errors over their deviations: of runs that were left out one by one and by rates, by schedules, and by
    /// sizes.
    scores: [Vec<f64>; 3],
    /// Lowest and highest of the logarithms of their rates.
    rates: Option<[f64; 2]>,
    schedules: Vec<Trait>,
    sizes: Vec<Trait>,
}

fn kernel(x: &[f64], y: &[f64]) -> f64 {
    let distance: f64 = x.iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum();
    SMOOTH * (-distance / (2.0 * LENGTH * LENGTH)).exp() + LINEAR * dot(x, y) + 1.0
}

impl Within {
    /// Learns from runs. `everywhere` is the deviation of each input over all tasks: what hardly varies here
    /// must not blow up.
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
        let by = |groups: Vec<Vec<usize>>| -> Vec<f64> {
            // What is the same in all runs cannot be left out.
            let several = groups.len() > 1;
            groups.iter().filter(|_| several).flat_map(|group| left_out(&inverse, &weights, group)).collect()
        };
        let familiar = [by((0..inputs.len()).map(|i| vec![i]).collect()), by(by_rate(examples))].concat();
        let schedules = alike(examples, |settings| settings.schedule);
        let sizes = alike(examples, |settings| settings.size);
        let rates = examples.iter().filter_map(|example| example.settings.rate);
        let bounds = rates.fold(None, |bounds: Option<[f64; 2]>, rate| {
            Some(bounds.map_or([rate; 2], |[low, high]| [low.min(rate), high.max(rate)]))
        });
        let values = |groups: &[(Trait, Vec<usize>)]| groups.iter().map(|(value, _)| *value).collect();
        let members = |groups: Vec<(Trait, Vec<usize>)>| groups.into_iter().map(|(_, group)| group).collect();
        let known = (values(&schedules), values(&sizes));
        let scores = [familiar, by(members(schedules)), by(members(sizes))];
        Self {
            centre,
            scale,
            inputs,
            weights,
            inverse,
            scores,
            rates: bounds,
            schedules: known.0,
            sizes: known.1,
        }
    }

    /// Samples of ln(end / now).
    pub(super) fn samples(&self, inputs: &Inputs, settings: &Settings) -> Vec<f64> {
        let x = normalise(inputs, &self.centre, &self.scale);
        let near: Vec<f64> = self.inputs.iter().map(|known| kernel(&x, known)).collect();
        let mean = dot(&near, &self.weights);
        let explained: f64 = self.inverse.iter().zip(&near).map(|(row, k)| k * dot(row, &near)).sum();
        let deviation = (kernel(&x, &x) + NOISE - explained).max(1e-6).sqrt();
        let (scores, wider) = self.scores_for(settings);
        scores.into_iter().map(|score| mean + wider * deviation * score).collect()
    }

    /// The scores of runs that were left out in the way in which this one is new, and by how much its errors
    /// are larger.
    fn scores_for(&self, settings: &Settings) -> (Vec<f64>, f64) {
        let new = |here: Option<Trait>, known: &[Trait]| {
            here.is_some_and(|here| !known.iter().any(|known| are_alike(known, &here)))
        };
        let [familiar, by_schedule, by_size] = &self.scores;
        let mut scores = Vec::new();
        if new(settings.schedule, &self.schedules) {
            scores.extend(by_schedule);
        }
        if new(settings.size, &self.sizes) {
            scores.extend(by_size);
        }
        // Nothing is new, or the runs that were learnt from do not differ in it.
        let wider = if scores.is_empty() && !self.is_beyond(settings) { 1.0 } else { WIDER };
        (if scores.is_empty() { familiar.clone() } else { scores }, wider)
    }

    /// Whether a rate is outside of those that were learnt from.
    pub(super) fn is_beyond(&self, settings: &Settings) -> bool {
        self.rates.zip(settings.rate).is_some_and(|([low, high], rate)| !(low..=high).contains(&rate))
    }
}

fn normalise(inputs: &Inputs, centre: &[f64], scale: &[f64]) -> Vec<f64> {
    (0..INPUTS).map(|i| ((inputs[i] - centre[i]) / scale[i]).clamp(-BOUND, BOUND)).collect()
}

/// Errors over deviations of a group's forecasts from all others: with `B` the block of the inverse, the
/// errors are `B⁻¹ α` and the covariance is `B⁻¹` (Rasmussen and Williams 2006, section 5.4.2).
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
        examples.iter().enumerate().filter_map(|(i, example)| Some((example.settings.rate?, i))).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let groups = (0..3).map(|third| &order[third * order.len() / 3..(third + 1) * order.len() / 3]);
    groups.filter(|group| !group.is_empty()).map(|group| group.iter().map(|(_, i)| *i).collect()).collect()
}

/// Groups of runs that are alike in something, each with what it is.
fn alike(examples: &[Example], of: fn(&Settings) -> Option<Trait>) -> Vec<(Trait, Vec<usize>)> {
    let mut groups: Vec<(Trait, Vec<usize>)> = Vec::new();
    for (place, example) in examples.iter().enumerate() {
        let Some(here) = of(&example.settings) else { continue };
        match groups.iter_mut().find(|(known, _)| are_alike(known, &here)) {
            Some((_, group)) => group.push(place),
            None => groups.push((here, vec![place])),
        }
    }
    groups
}
