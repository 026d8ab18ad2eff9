//! `foresight/statistics-host`: the sums over all parameters that features are made of, in the pass of a
//! step.

use gatework_lab::{Case, Outputs, RunError, Work};

use super::update::Trained;
use super::{Job, Ready};
use crate::optimiser::{Method, Optimiser, Sums};

#[derive(Clone, Copy)]
pub(super) struct Statistics;

fn case(width: usize) -> Case {
    Case::new(format!("width-{width}")).with("width", width)
}

/// Two steps: the cosine of successive ones needs a step before.
fn trained(case: &Case, seed: u64) -> Result<Trained, RunError> {
    Trained::new(Method::AdamW, case.dimension("width"), 2, seed)
}

/// Each sum over all groups, as a root or as it is, so that all are of about one size.
fn outputs(groups: impl Iterator<Item = [f64; 7]>) -> Outputs {
    let sums: Vec<f64> = groups.flatten().collect();
    Outputs::new().with("sums", sums)
}

/// Per parameter.
fn of_group(sums: &Sums) -> [f64; 7] {
    let Sums { gradient, weight, update, along, before, first_moment, second_moment, parameters } = *sums;
    [gradient, weight, 1e4 * update, 1e4 * along, 1e4 * before, first_moment, second_moment]
        .map(|sum| sum / parameters)
}

fn plain(trained: &Result<Trained, RunError>, along_itself: bool) -> Result<Outputs, RunError> {
    let trained = trained.as_ref().map_err(ToString::to_string)?;
    let found = trained.plain();
    let gradient = trained.gradients.last().ok_or("there are no gradients")?;
    Ok(outputs(trained.groups.iter().map(|group| {
        let range = group.matrix.start..group.bias.end;
        let count = range.len() as f64;
        let mean = |value: &dyn Fn(usize) -> f64| range.clone().map(value).sum::<f64>() / count;
        // Weights are those before the step.
        [
            mean(&|i| f64::from(gradient[i]).powi(2)),
            mean(&|i| (found.weights[i] - found.step[i]).powi(2)),
            mean(&|i| 1e4 * found.step[i].powi(2)),
            mean(&|i| 1e4 * found.step[i] * if along_itself { found.step[i] } else { found.before[i] }),
            mean(&|i| 1e4 * found.before[i].powi(2)),
            mean(&|i| found.first[i].powi(2)),
            mean(&|i| found.second[i]),
        ]
    })))
}

impl Job for Statistics {
    fn name(&self) -> &'static str {
        "foresight/statistics-host"
    }

    fn summary(&self) -> &'static str {
        "seven sums over the parameters, gradients, steps and moments of every group"
    }

    fn cases(&self) -> Vec<Case> {
        [3, 16, 61, 130].map(case).to_vec()
    }

    fn timed(&self) -> Case {
        case(512)
    }

    fn shipped(&self, case: &Case, seed: u64) -> Result<Ready, RunError> {
        let trained = trained(case, seed)?;
        Ok(Box::new(move || {
            let mut weights = trained.weights.clone();
            let mut optimiser = Optimiser::new(trained.options, weights.len());
            let mut sums = Vec::new();
            for gradient in &trained.gradients {
                (_, sums) =
                    optimiser.step(&trained.groups, &mut weights, &mut gradient.clone(), 1e-2, 0, true);
            }
            Ok(outputs(sums.iter().map(of_group)))
        }))
    }

    fn plain(&self, case: &Case, seed: u64) -> Ready {
        let trained = trained(case, seed);
        Box::new(move || plain(&trained, false))
    }

    fn within(&self, _: &Case) -> [f64; 2] {
        [1e-5, 1e-4]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> (&'static str, Ready) {
        let trained = trained(case, seed);
        ("the step along itself", Box::new(move || plain(&trained, true)))
    }

    fn work(&self, case: &Case) -> Work {
        let width = case.dimension("width") as u64;
        let parameters = 10 * width + (width + 1) * (width + 3) + 5 * (width + 4);
        Work { operations: 2 * 32 * parameters, bytes: 2 * 4 * 9 * parameters }
    }

    fn promise(&self) -> f64 {
        0.8
    }
}
