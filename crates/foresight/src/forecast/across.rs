//! What runs of many tasks say of a run of a task that was not among them: a robust linear law from a few of
//! the [`Inputs`] to ln(end / now), mostly a correction of the power laws. Every task counts the same, and
//! bands are calibrated by tasks that are left out whole.

use serde::{Deserialize, Serialize};

use super::look::{INPUTS, Inputs, LAST_RATE, MEAN_RATE, MULTI_POWER_LAW, NOISE, PASSES, POWER_LAW, SLOPE};
use super::symmetric::{Matrix, dot, solve};

/// Inputs of the law, and of the logarithm of its error.
const OF_LAW: [usize; 6] = [POWER_LAW, MULTI_POWER_LAW, SLOPE, LAST_RATE, MEAN_RATE, PASSES];
const OF_ERROR: [usize; 3] = [SLOPE, PASSES, NOISE];
const RIDGE_OF_LAW: f64 = 30.0;
const RIDGE_OF_ERROR: f64 = 10.0;
/// Errors beyond this count by their size, not by their square (Huber).
const HUBER: f64 = 0.5;
const ROUNDS: usize = 8;
/// Added to errors before their logarithm is taken.
const LITTLE: f64 = 0.05;
/// Nothing is further out than this, in deviations.
const BOUND: f64 = 4.0;
/// Scores that each task is represented by.
const OF_TASK: usize = 4;

/// What was learnt from runs of many tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Across {
    centre: Vec<f64>,
    scale: Vec<f64>,
    law: Vec<f64>,
    error: Vec<f64>,
    /// Errors over what was expected of them, of tasks that were left out.
    scores: Vec<f64>,
}

/// A run of a task, by the task's number.
pub(super) struct Known {
    pub(super) task: usize,
    pub(super) inputs: Inputs,
    pub(super) target: f64,
}

/// Means and deviations of all inputs.
pub(super) fn moments<'a>(inputs: impl Iterator<Item = &'a Inputs> + Clone) -> [Inputs; 2] {
    let n = inputs.clone().count().max(1) as f64;
    let centre: Inputs = std::array::from_fn(|i| inputs.clone().map(|x| x[i]).sum::<f64>() / n);
    let scale = std::array::from_fn(|i| {
        (inputs.clone().map(|x| (x[i] - centre[i]).powi(2)).sum::<f64>() / n).sqrt() + 1e-9
    });
    [centre, scale]
}

impl Across {
    /// Fewest tasks.
    pub(super) const LEAST: usize = 8;

    /// Learns from runs of `tasks` tasks.
    pub(super) fn learn(known: &[Known], tasks: usize) -> Self {
        let [centre, scale] = moments(known.iter().map(|run| &run.inputs));
        let mut counts = vec![0.0; tasks];
        known.iter().for_each(|run| counts[run.task] += 1.0);
        let mean = known.len() as f64 / tasks as f64;
        let weights: Vec<f64> = known.iter().map(|run| mean / counts[run.task]).collect();
        let rows = |which: &[usize]| -> Matrix {
            known.iter().map(|run| row(&run.inputs, &centre, &scale, which)).collect()
        };
        let (of_law, of_error) = (rows(&OF_LAW), rows(&OF_ERROR));
        let targets: Vec<f64> = known.iter().map(|run| run.target).collect();
        // What fits over all tasks but one say of the runs of that one.
        let crossed = |fit: &dyn Fn(Option<usize>) -> Vec<f64>, rows: &Matrix| -> Vec<f64> {
            let fits: Vec<Vec<f64>> = (0..tasks).map(|task| fit(Some(task))).collect();
            known.iter().zip(rows).map(|(run, row)| dot(row, &fits[run.task])).collect()
        };
        let law = |left_out: Option<usize>| {
            robust_law(&of_law, &targets, &weights, |i| Some(known[i].task) != left_out)
        };
        let errors: Vec<f64> =
            crossed(&law, &of_law).iter().zip(&targets).map(|(found, target)| target - found).collect();
        let sizes: Vec<f64> = errors.iter().map(|error| (error.abs() + LITTLE).ln()).collect();
        let size = |left_out: Option<usize>| {
            ridge(&of_error, &sizes, &weights, RIDGE_OF_ERROR, |i| Some(known[i].task) != left_out)
        };
        let expected = crossed(&size, &of_error);
        let mut scores = Vec::new();
        for task in 0..tasks {
            let of_task = (0..known.len()).filter(|&i| known[i].task == task);
            let mut own: Vec<f64> = of_task.map(|i| errors[i] / expected[i].exp()).collect();
            own.sort_by(f64::total_cmp);
            scores.extend((0..OF_TASK).map(|i| quantile(&own, (i as f64 + 0.5) / OF_TASK as f64)));
        }
        let (law, error) = (law(None), size(None));
        Self { centre: centre.to_vec(), scale: scale.to_vec(), law, error, scores }
    }

    /// Samples of ln(end / now).
    pub(super) fn samples(&self, inputs: &Inputs) -> Vec<f64> {
        let part = |which: &[usize]| row(inputs, &self.centre, &self.scale, which);
        let (mean, size) = (dot(&part(&OF_LAW), &self.law), dot(&part(&OF_ERROR), &self.error).exp());
        self.scores.iter().map(|score| mean + size * score).collect()
    }
}

/// Some inputs, normalised, and a one.
fn row(inputs: &Inputs, centre: &[f64], scale: &[f64], which: &[usize]) -> Vec<f64> {
    debug_assert!(which.iter().all(|&i| i < INPUTS));
    let value = |i: usize| ((inputs[i] - centre[i]) / scale[i]).clamp(-BOUND, BOUND);
    which.iter().map(|&i| value(i)).chain([1.0]).collect()
}

/// Ridge regression over the rows that are used; the last column, which is one, is free.
fn ridge(
    rows: &Matrix,
    targets: &[f64],
    weights: &[f64],
    strength: f64,
    used: impl Fn(usize) -> bool,
) -> Vec<f64> {
    let columns = rows.first().map_or(0, Vec::len);
    let mut normal = vec![vec![0.0; columns]; columns];
    let mut right = vec![0.0; columns];
    for i in (0..rows.len()).filter(|&i| used(i)) {
        for a in 0..columns {
            for b in 0..columns {
                normal[a][b] += weights[i] * rows[i][a] * rows[i][b];
            }
            right[a] += weights[i] * rows[i][a] * targets[i];
        }
    }
    (0..columns).for_each(|a| normal[a][a] += if a + 1 < columns { strength } else { 1e-6 });
    solve(&normal, &right)
}

/// The same with Huber's loss, by weighting anew.
fn robust_law(rows: &Matrix, targets: &[f64], weights: &[f64], used: impl Fn(usize) -> bool) -> Vec<f64> {
    let mut current = weights.to_vec();
    let mut law = Vec::new();
    for _ in 0..ROUNDS {
        law = ridge(rows, targets, &current, RIDGE_OF_LAW, &used);
        for (i, weight) in current.iter_mut().enumerate() {
            let error = (targets[i] - dot(&rows[i], &law)).abs();
            *weight = weights[i] * (HUBER / error.max(1e-9)).min(1.0);
        }
    }
    law
}

/// A quantile of sorted values, between neighbours.
pub(super) fn quantile(sorted: &[f64], level: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = level * last as f64;
    let (below, part) = (place as usize, place.fract());
    sorted[below] + part * (sorted[(below + 1).min(last)] - sorted[below])
}
