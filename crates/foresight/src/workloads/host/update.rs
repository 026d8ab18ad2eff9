//! `foresight/update-host`: steps of AdamW and of Muon, and the average of the weights that they lead to.

use gatework_lab::{Case, Inputs, Outputs, RunError, Work};

use super::{Job, Ready};
use crate::network::{Architecture, Parameters};
use crate::optimiser::{Average, Method, Optimiser, OptimiserOptions};

const STEPS: usize = 3;
pub(in crate::workloads) const RATE: f32 = 1e-2;
pub(in crate::workloads) const AVERAGE: f32 = 0.9;

#[derive(Clone, Copy)]
pub(super) struct Update;

fn case(method: Method, width: usize) -> Case {
    let (name, muon) = match method {
        Method::AdamW => ("adamw", 0),
        Method::Muon => ("muon", 1),
    };
    Case::new(format!("{name}-{width}")).with("width", width).with("muon", muon)
}

/// Groups of parameters, initial weights, and the gradients of all steps.
pub(in crate::workloads) struct Trained {
    pub(in crate::workloads) options: OptimiserOptions,
    pub(in crate::workloads) groups: Vec<Parameters>,
    pub(in crate::workloads) weights: Vec<f32>,
    pub(in crate::workloads) gradients: Vec<Vec<f32>>,
}

impl Trained {
    pub(in crate::workloads) fn new(
        method: Method,
        width: usize,
        steps: usize,
        seed: u64,
    ) -> Result<Self, RunError> {
        let groups = Architecture::mlp([1, 1, 9], &[width, width + 3], 5)?.parameters();
        let count = groups.last().map_or(0, |group| group.bias.end);
        let mut inputs = Inputs::new(seed);
        let weights = inputs.normal(count);
        let gradients = (0..steps).map(|_| inputs.normal(count)).collect();
        Ok(Self {
            options: OptimiserOptions { method, ..OptimiserOptions::default() },
            groups,
            weights,
            gradients,
        })
    }

    /// Weights and moments after every gradient, the last step, and the average, in double precision.
    pub(in crate::workloads) fn plain(&self) -> Plain {
        let double = |x: &[f32]| x.iter().copied().map(f64::from).collect::<Vec<f64>>();
        let count = self.weights.len();
        let zeros = || vec![0.0; count];
        let weights = double(&self.weights);
        let mut plain = Plain {
            average: weights.clone(),
            weights,
            first: zeros(),
            second: zeros(),
            step: zeros(),
            before: zeros(),
        };
        for (t, gradient) in (1u32..).zip(&self.gradients) {
            plain.before = plain.step.clone();
            for (place, group) in self.groups.iter().enumerate() {
                let inner = place > 0 && place + 1 < self.groups.len();
                if self.options.method == Method::Muon && inner {
                    plain.muon(&self.options, group, gradient);
                    plain.adam(&self.options, group.bias.clone(), gradient, t, 0.0);
                } else {
                    let decay = f64::from(self.options.weight_decay);
                    plain.adam(&self.options, group.matrix.clone(), gradient, t, decay);
                    plain.adam(&self.options, group.bias.clone(), gradient, t, 0.0);
                }
            }
            let keep = f64::from(AVERAGE).min(f64::from(t) / (f64::from(t) + 10.0));
            for i in 0..count {
                plain.weights[i] += plain.step[i];
                plain.average[i] = keep * plain.average[i] + (1.0 - keep) * plain.weights[i];
            }
        }
        plain
    }
}

/// What plain loops come to.
pub(in crate::workloads) struct Plain {
    pub(in crate::workloads) weights: Vec<f64>,
    pub(in crate::workloads) average: Vec<f64>,
    pub(in crate::workloads) first: Vec<f64>,
    pub(in crate::workloads) second: Vec<f64>,
    pub(in crate::workloads) step: Vec<f64>,
    pub(in crate::workloads) before: Vec<f64>,
}

impl Plain {
    fn adam(
        &mut self,
        options: &OptimiserOptions,
        range: std::ops::Range<usize>,
        gradient: &[f32],
        t: u32,
        decay: f64,
    ) {
        let (beta1, beta2) = (f64::from(options.beta1), f64::from(options.beta2));
        for i in range {
            let g = f64::from(gradient[i]);
            self.first[i] = beta1 * self.first[i] + (1.0 - beta1) * g;
            self.second[i] = beta2 * self.second[i] + (1.0 - beta2) * g * g;
            let first = self.first[i] / (1.0 - beta1.powi(t as i32));
            let second = self.second[i] / (1.0 - beta2.powi(t as i32));
            self.step[i] = -f64::from(RATE) * (first / (second.sqrt() + 1e-8) + decay * self.weights[i]);
        }
    }

    fn muon(&mut self, options: &OptimiserOptions, group: &Parameters, gradient: &[f32]) {
        let momentum = f64::from(options.momentum);
        let range = group.matrix.clone();
        let [rows, columns] = group.sides;
        let mut x = Vec::with_capacity(range.len());
        for i in range.clone() {
            let g = f64::from(gradient[i]);
            self.first[i] = momentum * self.first[i] + g;
            x.push(g + momentum * self.first[i]);
        }
        let length = x.iter().map(|x| x * x).sum::<f64>().sqrt() + 1e-7;
        x.iter_mut().for_each(|x| *x /= length);
        let product = |a: &[f64], b: &[f64], [m, n, k]: [usize; 3]| -> Vec<f64> {
            (0..m * n).map(|at| (0..k).map(|p| a[at / n * k + p] * b[p * n + at % n]).sum()).collect()
        };
        for _ in 0..5 {
            let turned: Vec<f64> = (0..x.len()).map(|at| x[at % rows * columns + at / rows]).collect();
            let gram = product(&x, &turned, [rows, rows, columns]);
            let square = product(&gram, &gram, [rows, rows, rows]);
            let mixed: Vec<f64> =
                gram.iter().zip(&square).map(|(gram, square)| -4.7750 * gram + 2.0315 * square).collect();
            let next = product(&mixed, &x, [rows, columns, rows]);
            x = x.iter().zip(next).map(|(x, next)| 3.4445 * x + next).collect();
        }
        let scale = 0.2 * (rows.max(columns) as f64).sqrt();
        for (i, x) in range.zip(x) {
            self.step[i] = -f64::from(RATE) * (scale * x + f64::from(options.weight_decay) * self.weights[i]);
        }
    }
}

fn trained(case: &Case, seed: u64) -> Result<Trained, RunError> {
    let method = if case.dimension("muon") == 1 { Method::Muon } else { Method::AdamW };
    Trained::new(method, case.dimension("width"), STEPS, seed)
}

fn outputs(trained: &Result<Trained, RunError>) -> Result<Outputs, RunError> {
    let trained = trained.as_ref().map_err(ToString::to_string)?;
    let plain = trained.plain();
    let single = |x: &[f64]| x.iter().map(|x| *x as f32).collect::<Vec<f32>>();
    Ok(Outputs::new().with("weights", single(&plain.weights)).with("average", single(&plain.average)))
}

impl Job for Update {
    fn name(&self) -> &'static str {
        "foresight/update-host"
    }

    fn summary(&self) -> &'static str {
        "three steps of AdamW or Muon, and the average of the weights"
    }

    fn cases(&self) -> Vec<Case> {
        vec![case(Method::AdamW, 8), case(Method::AdamW, 65), case(Method::Muon, 8), case(Method::Muon, 33)]
    }

    fn timed(&self) -> Case {
        case(Method::AdamW, 512)
    }

    fn shipped(&self, case: &Case, seed: u64) -> Result<Ready, RunError> {
        let trained = trained(case, seed)?;
        Ok(Box::new(move || {
            let mut weights = trained.weights.clone();
            let mut optimiser = Optimiser::new(trained.options, weights.len());
            let mut average = Average::new(AVERAGE, &weights);
            for gradient in &trained.gradients {
                optimiser.step(&trained.groups, &mut weights, &mut gradient.clone(), RATE, 0, false);
                average.take(&weights);
            }
            let average = average.weights().to_vec();
            Ok(Outputs::new().with("weights", weights).with("average", average))
        }))
    }

    fn plain(&self, case: &Case, seed: u64) -> Ready {
        let trained = trained(case, seed);
        Box::new(move || outputs(&trained))
    }

    fn within(&self, _: &Case) -> [f64; 2] {
        [2e-6, 2e-5]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> (&'static str, Ready) {
        let trained = trained(case, seed).map(|trained| Trained {
            options: OptimiserOptions { weight_decay: 0.0, ..trained.options },
            ..trained
        });
        ("no weight decay", Box::new(move || outputs(&trained)))
    }

    fn work(&self, case: &Case) -> Work {
        let width = case.dimension("width") as u64;
        let parameters = 10 * width + (width + 1) * (width + 3) + 5 * (width + 4);
        let products = if case.dimension("muon") == 1 { 20 * width * width * width } else { 0 };
        let steps = STEPS as u64;
        Work { operations: steps * (18 * parameters + products), bytes: steps * 4 * 9 * parameters }
    }

    fn promise(&self) -> f64 {
        0.8
    }
}
