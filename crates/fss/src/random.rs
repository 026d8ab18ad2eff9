//! The dealer's randomness: a seed from the operating system, expanded by ChaCha20.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// A stream of secret random numbers.
pub struct Randomness(ChaCha20Rng);

impl Randomness {
    /// Seeded by the operating system.
    pub fn from_os() -> Result<Self> {
        let mut seed = Zeroizing::new([0u8; 32]);
        getrandom::fill(seed.as_mut_slice()).map_err(Error::Randomness)?;
        Ok(Self(ChaCha20Rng::from_seed(*seed)))
    }

    /// The same stream every time: whoever knows the seed knows every mask. For tests and measurements only.
    pub fn insecure_from_seed_for_tests(seed: u64) -> Self {
        Self(ChaCha20Rng::seed_from_u64(seed))
    }

    /// 128 random bits.
    pub fn block(&mut self) -> u128 {
        u128::from(self.0.next_u64()) | u128::from(self.0.next_u64()) << 64
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }
}

impl Drop for Randomness {
    fn drop(&mut self) {
        self.0 = ChaCha20Rng::from_seed([0; 32]);
        zeroize::optimization_barrier(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_streams_of_the_operating_system_differ() {
        let mut streams = [Randomness::from_os().unwrap(), Randomness::from_os().unwrap()];
        let [first, second] = streams.each_mut().map(Randomness::block);
        assert_ne!(first, second);
    }

    #[test]
    fn a_seed_repeats() {
        let draw = |seed| Randomness::insecure_from_seed_for_tests(seed).word();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
