//! Random numbers from a key and a counter, so that their whole state is two words.

use serde::{Deserialize, Serialize};

/// A stream of random numbers: SplitMix64 read as a counter-based generator. Number `n` is `mix(key + (n + 1)
/// φ)` with `φ = 2^64 / golden ratio`, so that a stream can be saved and continued exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Random {
    key: u64,
    counter: u64,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Random {
    /// The stream of `seed` for one purpose. Streams of other purposes have nothing to do with it.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let key = purpose.bytes().fold(mix(seed ^ GOLDEN), |key, byte| mix(key ^ u64::from(byte)));
        Self { key, counter: 0 }
    }

    /// The stream number `index` of the same seed and purpose.
    pub fn fork(&self, index: u64) -> Self {
        Self { key: mix(self.key ^ mix(index.wrapping_add(GOLDEN))), counter: 0 }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(1);
        mix(self.key.wrapping_add(self.counter.wrapping_mul(GOLDEN)))
    }

    /// The 64 random bits number `n` from here on, which [`Self::bits`] would come to after `n` others.
    pub fn numbered(&self, n: u64) -> u64 {
        mix(self.key.wrapping_add(self.counter.wrapping_add(n).wrapping_add(1).wrapping_mul(GOLDEN)))
    }

    /// `key + counter φ`: number `n` from here on is `mix(base + (n + 1) φ)`.
    #[cfg(feature = "cuda")]
    pub(crate) fn base(&self) -> u64 {
        self.key.wrapping_add(self.counter.wrapping_mul(GOLDEN))
    }

    /// A stream from a [`base`](Self::base) on.
    #[cfg(feature = "lab")]
    pub(crate) fn from_base(base: u64) -> Self {
        Self { key: base, counter: 0 }
    }

    /// Passes so many numbers, which others have drawn.
    #[cfg(feature = "cuda")]
    pub(crate) fn skip(&mut self, count: u64) {
        self.counter = self.counter.wrapping_add(count);
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..`n`, by the high word of a product: the bias is below `n / 2^64`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Standard normal, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A permutation of 0..`n`, by Fisher and Yates.
    pub fn permutation(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for last in (1..n).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_stream_goes_on_where_it_was() {
        let mut random = Random::new(7, "test");
        for _ in 0..100 {
            random.bits();
        }
        let saved = postcard::to_stdvec(&random).unwrap();
        let mut restored: Random = postcard::from_bytes(&saved).unwrap();
        let mut ahead = random.clone();
        (0..3).for_each(|_| _ = ahead.bits());
        assert_eq!(random.numbered(3), ahead.bits());
        assert_eq!((0..50).map(|_| random.bits()).collect::<Vec<_>>(), {
            (0..50).map(|_| restored.bits()).collect::<Vec<_>>()
        });
    }

    #[test]
    fn numbers_have_their_moments_and_streams_differ() {
        let mut random = Random::new(1, "moments");
        let normals: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = normals.iter().sum::<f64>() / 20_000.0;
        let variance = normals.iter().map(|x| x * x).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        assert_ne!(Random::new(1, "a").bits(), Random::new(1, "b").bits());
        assert_ne!(Random::new(1, "a").fork(0).bits(), Random::new(1, "a").fork(1).bits());
        let mut sorted = random.permutation(100);
        assert_ne!(sorted, (0..100).collect::<Vec<_>>());
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }
}
