//! The order in which examples are seen.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::random::Random;

/// Batches without end: every epoch is a permutation of all examples that follows from the seed and the
/// epoch's number, and a batch never straddles two. What is left of an epoch and is less than a batch is not
/// seen in it.
///
/// Its state is two numbers. The permutation is computed again after a restore.
#[derive(Debug, Clone)]
pub struct Order {
    source: Random,
    examples: usize,
    batch: usize,
    place: Place,
    permutation: Vec<u32>,
}

/// Where an [`Order`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    epoch: u64,
    position: u64,
}

impl Order {
    /// Batches of `batch` out of `examples`.
    pub fn new(examples: usize, batch: usize, seed: u64) -> Result<Self> {
        if batch == 0 || batch > examples {
            return Err(Error::data(format!(
                "a batch of {batch} cannot be drawn from {examples} examples: 'batch' must be from 1 to {examples}"
            )));
        }
        let mut order = Self {
            source: Random::new(seed, "order"),
            examples,
            batch,
            place: Place { epoch: 0, position: 0 },
            permutation: Vec::new(),
        };
        order.shuffle();
        Ok(order)
    }

    fn shuffle(&mut self) {
        self.permutation = self.source.fork(self.place.epoch).permutation(self.examples);
    }

    /// The examples of the next batch.
    pub fn next_batch(&mut self) -> &[u32] {
        if self.place.position as usize + self.batch > self.examples {
            self.place = Place { epoch: self.place.epoch + 1, position: 0 };
            self.shuffle();
        }
        let from = self.place.position as usize;
        self.place.position += self.batch as u64;
        &self.permutation[from..from + self.batch]
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Refuses a place where it cannot be: it stops before a batch that would leave the epoch.
    pub(crate) fn require(&self, place: Place) -> Result<()> {
        if place.epoch < u64::MAX && place.position <= self.examples as u64 {
            return Ok(());
        }
        Err(Error::shape("the snapshot is at a place that no epoch of this data has"))
    }

    /// Goes to where it was.
    pub fn go_to(&mut self, place: Place) {
        let shuffled = self.place.epoch == place.epoch;
        self.place = place;
        if !shuffled {
            self.shuffle();
        }
    }

    /// Examples of a batch.
    pub fn batch(&self) -> usize {
        self.batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_sees_every_example_once_and_epochs_differ() {
        let mut order = Order::new(12, 4, 9).unwrap();
        let mut epochs: Vec<Vec<u32>> = Vec::new();
        for _ in 0..2 {
            epochs.push((0..3).flat_map(|_| order.next_batch().to_vec()).collect());
        }
        assert_ne!(epochs[0], epochs[1]);
        for mut epoch in epochs {
            epoch.sort_unstable();
            assert_eq!(epoch, (0..12).collect::<Vec<_>>());
        }
    }

    #[test]
    fn it_does_not_go_where_no_epoch_is() {
        let order = Order::new(10, 3, 9).unwrap();
        assert!(order.require(Place { epoch: 7, position: 9 }).is_ok());
        for nowhere in [Place { epoch: 0, position: u64::MAX }, Place { epoch: u64::MAX, position: 0 }] {
            let said = order.require(nowhere).unwrap_err().to_string();
            assert!(said.contains("no epoch of this data"), "{said}");
        }
    }

    #[test]
    fn it_goes_back_to_any_place() {
        let mut order = Order::new(10, 3, 9).unwrap();
        let places: Vec<(Place, Vec<u32>)> =
            (0..9).map(|_| (order.place(), order.next_batch().to_vec())).collect();
        for (place, batch) in places.iter().rev() {
            order.go_to(*place);
            assert_eq!(order.next_batch(), batch);
        }
    }

    #[test]
    fn a_batch_larger_than_the_data_is_refused() {
        let said = Order::new(10, 11, 1).unwrap_err().to_string();
        assert!(said.contains("a batch of 11 cannot be drawn from 10 examples"), "{said}");
        assert!(Order::new(10, 0, 1).is_err());
    }
}
