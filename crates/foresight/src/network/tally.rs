//! What passes over shards of a batch add up.

use std::iter::Sum;
use std::ops::Add;

/// Losses and right answers of a forward pass, summed over what is judged: examples, or tokens of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tally {
    /// The cross-entropies.
    pub loss: f64,
    /// Those whose class has the largest number.
    pub correct: usize,
    /// How many were judged.
    pub judged: usize,
}

impl Tally {
    /// The mean of what was judged.
    pub fn mean_loss(self) -> f64 {
        self.loss / self.judged as f64
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Add::add)
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            loss: self.loss + other.loss,
            correct: self.correct + other.correct,
            judged: self.judged + other.judged,
        }
    }
}
