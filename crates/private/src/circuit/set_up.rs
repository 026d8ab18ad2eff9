//! What is done once for a model: its weights, masked.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use gatework_fss::executor::Circuit;
use gatework_fss::ops::Weights;
use gatework_fss::{Bound, Error, Evaluator, FixedPoint, Party, Result};

use crate::graph::{Part, Weight, WeightId};

use super::network::Network;
use super::weights::ModelWeights;

impl ModelWeights {
    /// Lengths without words: what an estimate of an inference needs.
    pub fn shapes(network: &Network) -> Self {
        let ring = network.format().ring;
        let shape = |(index, weight): (usize, &Weight)| {
            let reach = i128::from(network.reach(network.graph().weight(WeightId(index)).kind));
            Weights::shape(ring, weight.len(), Bound::proved(-reach, reach))
        };
        Self::new(network.graph().weights().iter().enumerate().map(shape).collect())
    }
}

/// Takes all weights from party 0, in the order of [`Graph::weights`](crate::graph::Graph::weights). Those of
/// one part of the model travel in one message.
pub struct SetUp<'a> {
    network: &'a Network,
}

impl Network {
    /// The circuit that takes the weights: once for a model.
    pub fn set_up(&self) -> SetUp<'_> {
        SetUp { network: self }
    }
}

impl Circuit for SetUp<'_> {
    type Output = ModelWeights;

    async fn run(&self, evaluator: &Evaluator) -> Result<ModelWeights> {
        let graph = self.network.graph();
        let ring = graph.format().ring;
        let mut taken = Vec::with_capacity(graph.weights().len());
        let mut rest = graph.weights();
        while let Some(first) = rest.first() {
            let part: Part = first.part;
            let count = rest.iter().take_while(|weight| weight.part == part).count();
            let (together, after) = rest.split_at(count);
            let futures = together.iter().map(|weight| {
                let reach = self.network.reach(weight.kind);
                Box::pin(evaluator.weights(Party::Zero, ring, weight.len(), -reach..=reach))
                    as Pin<Box<dyn Future<Output = Result<Weights>>>>
            });
            taken.extend(together_in_order(futures.collect()).await?);
            rest = after;
        }
        Ok(ModelWeights::new(taken))
    }

    fn format(&self) -> Option<FixedPoint> {
        Circuit::format(self.network)
    }
}

/// Runs all side by side. In every phase each advances before the next, for dealer and parties alike: that is
/// the order of their key material.
async fn together_in_order<T>(
    mut futures: Vec<Pin<Box<dyn Future<Output = Result<T>> + '_>>>,
) -> Result<Vec<T>> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, done) in futures.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                *done = Some(output?);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(Ok::<_, Error>(())) } else { Poll::Pending }
    })
    .await?;
    Ok(done.into_iter().flatten().collect())
}
