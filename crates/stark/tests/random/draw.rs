//! Choices from a seed, each by its name: a choice that is added later changes none of the others.

use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// What one choice is drawn from.
pub struct Draw(ChaCha8Rng);

impl Draw {
    /// The draws for a choice.
    pub fn new(seed: u64, choice: &str) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let name = choice.as_bytes();
        assert!(name.len() <= 24, "{choice} is too long a name");
        key[8..8 + name.len()].copy_from_slice(name);
        Self(ChaCha8Rng::from_seed(key))
    }

    /// A number of the range.
    pub fn number(&mut self, range: std::ops::RangeInclusive<u32>) -> u32 {
        self.0.random_range(range)
    }

    /// Yes, in one of so many cases.
    pub fn one_in(&mut self, cases: u32) -> bool {
        self.0.random_range(0..cases) == 0
    }

    /// One of several, of which there is one at least.
    pub fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all.choose(&mut self.0).expect("there is one").clone()
    }
}
