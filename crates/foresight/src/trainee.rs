//! What the engine needs of something that learns.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Result;
pub use crate::network::Group;
use crate::network::Tally;
use crate::optimiser::Sums;

/// A step that is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The learning rate.
    pub rate: f64,
    /// Groups, from the first on, that keep their weights and their moments.
    pub frozen: usize,
    /// The part of the batch that is used, from above 0 to 1. The data order moves on by a whole batch.
    pub share: f64,
    /// How many times the number of examples that count a backward pass is of: see [`crate::sampling`]. 0 for
    /// all of them.
    pub sampled: f64,
    /// Whether statistics are wanted.
    pub measure: bool,
}

impl Step {
    /// A full step without statistics.
    pub fn full(rate: f64) -> Self {
        Self { rate, frozen: 0, share: 1.0, sampled: 0.0, measure: false }
    }
}

/// The effects of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// The mean training loss of the batch, before the step.
    pub loss: f64,
    /// The part of its examples that the backward pass was of.
    pub kept: f64,
    /// The length of its gradient, before it was clipped. Activations can hide in the loss that this is no
    /// number.
    pub gradient: f64,
    /// Statistics, if they were asked for.
    pub statistics: Option<Statistics>,
}

/// Statistics of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Of every group.
    pub groups: Vec<Sums>,
    /// The simple gradient noise scale `tr Σ / |G|²` in examples (McCandlish et al. 2018), from the gradients
    /// of shards of the batch; not finite where they disagree completely.
    pub noise_scale: f64,
}

/// Which weights are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The weights that are trained.
    Trained,
    /// Their exponential moving average.
    Averaged,
}

/// How a network does on examples that nobody trained on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The mean loss.
    pub loss: f64,
    /// The part of examples whose class was right.
    pub accuracy: f64,
}

/// The loss on the examples that are held back for the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Its mean.
    pub loss: f64,
    /// Its means over parts of the examples, always the same parts in the same order, so that two probes can
    /// be paired.
    pub parts: Vec<f64>,
}

impl Evaluation {
    /// What shards of the examples came to.
    pub(crate) fn of(tallies: &[Tally]) -> Self {
        let all: Tally = tallies.iter().copied().sum();
        Self { loss: all.mean_loss(), accuracy: all.correct as f64 / all.judged as f64 }
    }
}

impl Probe {
    /// What the parts came to.
    pub(crate) fn of(tallies: &[Tally]) -> Self {
        let all: Tally = tallies.iter().copied().sum();
        Self { loss: all.mean_loss(), parts: tallies.iter().map(|part| part.mean_loss()).collect() }
    }
}

/// Something that learns by steps: weights, an optimiser, an order of data.
///
/// Given the same calls it does the same, bit for bit; everything that decides what it does next is in its
/// snapshot.
pub trait Trainee {
    /// All that decides what it does next: weights, average, optimiser, data order, random state.
    type Snapshot: Clone + Serialize + DeserializeOwned;
    /// Weights alone.
    type Weights: Clone + Serialize + DeserializeOwned;

    /// What a snapshot must agree in to be restored, in words.
    fn fingerprint(&self) -> String;

    /// Its groups, from the input on.
    fn groups(&self) -> &[Group];

    /// Takes a step.
    fn step(&mut self, step: &Step) -> Result<Taken>;

    /// The loss of weights on the examples that are held back for the engine.
    fn probe(&self, which: Which) -> Result<Probe>;

    /// How weights do on the examples that the run is judged by.
    fn evaluate(&self, which: Which) -> Result<Evaluation>;

    /// Everything as it is.
    fn snapshot(&self) -> Result<Self::Snapshot>;

    /// The same, in the memory of an older one.
    fn snapshot_into(&self, snapshot: &mut Self::Snapshot) -> Result<()> {
        *snapshot = self.snapshot()?;
        Ok(())
    }

    /// Everything as it was.
    fn restore(&mut self, snapshot: &Self::Snapshot) -> Result<()>;

    /// Everything as it was, except that the data order stays where it is: what came in between is not seen
    /// again.
    fn roll_back(&mut self, snapshot: &Self::Snapshot) -> Result<()>;

    /// The weights as they are.
    fn weights(&self) -> Result<Self::Weights>;

    /// The same, in the memory of older ones.
    fn weights_into(&self, weights: &mut Self::Weights) -> Result<()> {
        *weights = self.weights()?;
        Ok(())
    }

    /// Replaces the weights by `Σ c_i w_i`; optimiser, average and data order stay.
    fn combine(&mut self, terms: &[(f32, &Self::Weights)]) -> Result<()>;

    /// What a step costs, in full-backward equivalents: a full step of a whole batch is 1.
    ///
    /// A layer's forward pass, the gradient of its matrix and the gradient of its input are the same
    /// multiply-adds each; the input of the first trained layer needs none. So with `f_l` of layer `l` and
    /// `k` frozen layers a step is `Σ_l f_l + Σ_{l ≥ k} f_l + Σ_{l > k} f_l`, over the same with `k = 0`,
    /// times the share of the batch.
    fn cost(&self, frozen: usize, share: f64) -> f64 {
        example_work(self.groups(), frozen) / example_work(self.groups(), 0) * share
    }

    /// The same where the backward pass is of a part of the examples alone.
    fn cost_of(&self, frozen: usize, share: f64, kept: f64) -> f64 {
        let forward = self.groups().iter().map(|group| group.multiply_adds as f64).sum::<f64>();
        let forward = forward / example_work(self.groups(), 0) * share;
        forward + kept * (self.cost(frozen, share) - forward)
    }

    /// Multiply-adds of a full step of a whole batch.
    fn step_work(&self) -> f64;

    /// What a probe costs in the same unit.
    fn probe_cost(&self) -> f64;
}

/// Multiply-adds of one example's step with `frozen` groups.
pub fn example_work(groups: &[Group], frozen: usize) -> f64 {
    let work =
        |from: usize| -> f64 { groups.iter().skip(from).map(|group| group.multiply_adds as f64).sum() };
    work(0) + work(frozen) + work(frozen + 1)
}

/// The cost of a forward pass of `examples`, in full steps of `batch`.
pub fn forward_cost(groups: &[Group], examples: usize, batch: usize) -> f64 {
    let forward: f64 = groups.iter().map(|group| group.multiply_adds as f64).sum();
    forward * examples as f64 / (example_work(groups, 0) * batch as f64)
}

/// `tr Σ / |G|²` from mean gradients of shards. With `E|g_b|² = |G|² + tr Σ / b`, the shards' and the whole
/// batch's squared lengths are two equations in the two unknowns.
pub(crate) fn noise_scale(shards: &[(f64, usize)], whole: f64) -> f64 {
    let batch: usize = shards.iter().map(|(_, size)| size).sum();
    let small = batch as f64 / shards.len() as f64;
    let mean = shards.iter().map(|(length, _)| length).sum::<f64>() / shards.len() as f64;
    let (batch, small_inverse) = (batch as f64, 1.0 / small);
    let trace = (mean - whole) / (small_inverse - 1.0 / batch);
    let signal = (whole * batch - mean * small) / (batch - small);
    (trace / signal.max(0.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_scale_is_that_of_known_gradients() {
        // |G|² = 4 and tr Σ = 8 at shards of 16 of a batch of 64.
        let shards = [(4.0 + 8.0 / 16.0, 16); 4];
        assert!((noise_scale(&shards, 4.0 + 8.0 / 64.0) - 2.0).abs() < 1e-9);
    }
}
