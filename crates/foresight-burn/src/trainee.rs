//! A model of burn as something that the engine trains.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Int, Tensor, TensorData};
use gatework_foresight::data::{Examples, Order, Place, Splits};
use gatework_foresight::network::Parameters;
use gatework_foresight::optimiser::{Average, Optimiser, OptimiserOptions};
use gatework_foresight::{
    Error, Evaluation, Group, Probe, Result, Statistics, Step, Taken, Trainee, Which, example_work,
    forward_cost,
};
use serde::{Deserialize, Serialize};

use crate::flat::{Collected, assign, gradient};

/// Examples of a part of a probe, and of a forward pass that is not trained on.
const PART: usize = 32;

/// A module that gives one number a class.
pub trait Classifier<B: AutodiffBackend>: Module<B> {
    /// From rows of examples to rows of one number a class.
    fn logits(&self, inputs: Tensor<B, 2>) -> Tensor<B, 2>;
}

/// What a trainee is made of beside its model.
#[derive(Debug, Clone, Copy)]
pub struct BurnOptions {
    /// Constants of its optimiser.
    pub optimiser: OptimiserOptions,
    /// Decay of the average of weights.
    pub average_decay: f32,
    /// Examples of a step.
    pub batch: usize,
    /// Of the data order. Initial weights are the model's.
    pub seed: u64,
}

/// A model of burn that the engine trains.
pub struct BurnTrainee<B: AutodiffBackend, M> {
    model: M,
    device: B::Device,
    splits: Arc<Splits>,
    fingerprint: String,
    parameters: Vec<Parameters>,
    groups: Vec<Group>,
    weights: Vec<f32>,
    average: Average,
    optimiser: Optimiser,
    order: Order,
}

/// All that decides what a [`BurnTrainee`] does next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BurnSnapshot {
    fingerprint: String,
    weights: Vec<f32>,
    average: Average,
    optimiser: Optimiser,
    place: Place,
}

/// A tensor of two or more dimensions begins a group, as rows by all other sides; vectors belong to the group
/// before them.
fn lay_out(sides: &[Vec<usize>]) -> Vec<Parameters> {
    let mut found: Vec<Parameters> = Vec::new();
    let mut at = 0;
    for sides in sides {
        let count: usize = sides.iter().product();
        match found.last_mut() {
            Some(group) if sides.len() < 2 => group.bias.end = at + count,
            _ => found.push(Parameters {
                layer: found.len(),
                matrix: at..at + count,
                sides: [sides[0], count / sides[0].max(1)],
                bias: at + count..at + count,
            }),
        }
        at += count;
    }
    found
}

impl<B: AutodiffBackend, M: Classifier<B>> BurnTrainee<B, M> {
    /// The model with its initial weights.
    pub fn new(model: M, device: B::Device, splits: Arc<Splits>, options: BurnOptions) -> Result<Self> {
        let mut collected = Collected::default();
        model.visit(&mut collected);
        if collected.values.is_empty() {
            return Err(Error::Shape { what: "the model has no parameters".into() });
        }
        let Collected { values: weights, sides } = collected;
        let parameters = lay_out(&sides);
        let groups = parameters.iter().map(|group| Group {
            name: format!("group {}", group.layer + 1),
            parameters: group.range().len(),
            multiply_adds: group.matrix.len() as u64,
        });
        Ok(Self {
            groups: groups.collect(),
            fingerprint: format!("a model of burn with tensors {sides:?}"),
            average: Average::new(options.average_decay, &weights),
            optimiser: Optimiser::new(options.optimiser, weights.len()),
            order: Order::new(splits.train.count(), options.batch, options.seed)?,
            model,
            device,
            splits,
            parameters,
            weights,
        })
    }

    /// Says how many multiply-adds a forward pass of one example takes in every group.
    pub fn with_multiply_adds(mut self, multiply_adds: &[u64]) -> Result<Self> {
        if multiply_adds.len() != self.groups.len() {
            let what = format!(
                "{} counts of multiply-adds were given for {} groups",
                multiply_adds.len(),
                self.groups.len()
            );
            return Err(Error::Shape { what });
        }
        self.groups.iter_mut().zip(multiply_adds).for_each(|(group, count)| group.multiply_adds = *count);
        Ok(self)
    }

    /// The model with the weights that are trained, or with their average.
    pub fn model(&self, which: Which) -> M {
        let weights = match which {
            Which::Trained => &self.weights,
            Which::Averaged => self.average.weights(),
        };
        assign(self.model.clone(), weights, weights.len())
    }

    /// Rows of ln probabilities, and the classes that are right.
    fn log_probabilities(
        &self,
        model: &M,
        examples: &Examples,
        indices: &[u32],
    ) -> (Tensor<B, 2>, Tensor<B, 2, Int>) {
        let inputs: Vec<f32> =
            indices.iter().flat_map(|&index| examples.input(index as usize)).copied().collect();
        let labels: Vec<i64> = indices.iter().map(|&index| examples.label(index as usize) as i64).collect();
        let rows = indices.len();
        let inputs = Tensor::from_data(TensorData::new(inputs, [rows, examples.size()]), &self.device);
        let labels = Tensor::from_data(TensorData::new(labels, [rows, 1]), &self.device);
        (log_softmax(model.logits(inputs), 1), labels)
    }

    /// Losses of examples and whether each is right.
    fn judge(&self, which: Which, examples: &Examples) -> Vec<(f64, bool)> {
        let model = self.model(which);
        let indices: Vec<u32> = (0..examples.count() as u32).collect();
        let mut found = Vec::with_capacity(indices.len());
        for part in indices.chunks(PART) {
            let (logs, labels) = self.log_probabilities(&model, examples, part);
            let losses = logs.clone().gather(1, labels.clone()).neg().into_data();
            let right = logs.argmax(1).equal(labels).into_data();
            found.extend(losses.iter::<f32>().map(f64::from).zip(right.iter::<bool>()));
        }
        found
    }
}

fn mean(losses: &[(f64, bool)]) -> f64 {
    losses.iter().map(|(loss, _)| loss).sum::<f64>() / losses.len() as f64
}

impl<B: AutodiffBackend, M: Classifier<B>> Trainee for BurnTrainee<B, M> {
    type Snapshot = BurnSnapshot;
    type Weights = Vec<f32>;

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn step(&mut self, step: &Step) -> Result<Taken> {
        let batch = self.order.next_batch().to_vec();
        let used = ((step.share * batch.len() as f64).round() as usize).clamp(1, batch.len());
        let from = self.parameters.get(step.frozen).map_or(self.weights.len(), |group| group.matrix.start);
        let model = assign(self.model.clone(), &self.weights, from);
        let (logs, labels) = self.log_probabilities(&model, &self.splits.train, &batch[..used]);
        let loss = logs.gather(1, labels).mean().neg();
        let value = loss.clone().into_data().iter::<f32>().next().map_or(f64::NAN, f64::from);
        let mut found = if from < self.weights.len() {
            gradient::<B, M>(&model, &loss.backward())
        } else {
            vec![0.0; self.weights.len()]
        };
        let (length, sums) = self.optimiser.step(
            &self.parameters,
            &mut self.weights,
            &mut found,
            step.rate as f32,
            step.frozen,
            step.measure,
        );
        self.average.take(&self.weights);
        let statistics = step.measure.then_some(Statistics { groups: sums, noise_scale: f64::INFINITY });
        Ok(Taken { loss: value, kept: 1.0, gradient: length, statistics })
    }

    fn probe(&self, which: Which) -> Result<Probe> {
        let losses = self.judge(which, &self.splits.probe);
        Ok(Probe { loss: mean(&losses), parts: losses.chunks(PART).map(mean).collect() })
    }

    fn evaluate(&self, which: Which) -> Result<Evaluation> {
        let losses = self.judge(which, &self.splits.validation);
        let right = losses.iter().filter(|(_, right)| *right).count();
        Ok(Evaluation { loss: mean(&losses), accuracy: right as f64 / losses.len() as f64 })
    }

    fn snapshot(&self) -> Result<BurnSnapshot> {
        Ok(BurnSnapshot {
            fingerprint: self.fingerprint.clone(),
            weights: self.weights.clone(),
            average: self.average.clone(),
            optimiser: self.optimiser.clone(),
            place: self.order.place(),
        })
    }

    fn restore(&mut self, snapshot: &BurnSnapshot) -> Result<()> {
        self.roll_back(snapshot)?;
        self.order.go_to(snapshot.place);
        Ok(())
    }

    fn roll_back(&mut self, snapshot: &BurnSnapshot) -> Result<()> {
        if snapshot.fingerprint != self.fingerprint {
            let what =
                format!("the snapshot is of {}, this one is {}", snapshot.fingerprint, self.fingerprint);
            return Err(Error::Shape { what });
        }
        self.weights.copy_from_slice(&snapshot.weights);
        self.average = snapshot.average.clone();
        self.optimiser = snapshot.optimiser.clone();
        Ok(())
    }

    fn weights(&self) -> Result<Vec<f32>> {
        Ok(self.weights.clone())
    }

    fn combine(&mut self, terms: &[(f32, &Vec<f32>)]) -> Result<()> {
        if terms.iter().any(|(_, weights)| weights.len() != self.weights.len()) {
            let what = format!("weights of another size do not fit a model of {}", self.weights.len());
            return Err(Error::Shape { what });
        }
        self.weights.fill(0.0);
        for (factor, weights) in terms {
            self.weights.iter_mut().zip(*weights).for_each(|(sum, w)| *sum += factor * w);
        }
        Ok(())
    }

    fn step_work(&self) -> f64 {
        example_work(&self.groups, 0) * self.order.batch() as f64
    }

    fn probe_cost(&self) -> f64 {
        forward_cost(&self.groups, self.splits.probe.count(), self.order.batch())
    }
}
