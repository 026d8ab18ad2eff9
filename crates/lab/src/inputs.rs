//! Inputs that are the same on every machine for the same seed.

use std::ops::Range;

use bytemuck::Pod;
use gatework_gpu::{Buffer, Result, Stream};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// A stream of random inputs from a seed (ChaCha8).
///
/// ```
/// use gatework_lab::Inputs;
/// assert_eq!(Inputs::new(7).normal(3), Inputs::new(7).normal(3));
/// assert_ne!(Inputs::new(7).normal(3), Inputs::new(8).normal(3));
/// ```
#[derive(Debug, Clone)]
pub struct Inputs {
    generator: ChaCha8Rng,
}

impl Inputs {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { generator: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// `count` values of mean 0 and standard deviation 1.
    pub fn normal(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.generator.sample(StandardNormal)).collect()
    }

    /// `count` values spread evenly over `range`. Panics if the range is empty.
    pub fn uniform(&mut self, count: usize, range: Range<f32>) -> Vec<f32> {
        (0..count).map(|_| self.generator.random_range(range.clone())).collect()
    }

    /// `count` integers, every one of 32 bits as likely.
    pub fn words(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.generator.random()).collect()
    }

    /// `count` integers of `range`. Panics if the range is empty.
    pub fn integers(&mut self, count: usize, range: Range<i64>) -> Vec<i64> {
        (0..count).map(|_| self.generator.random_range(range.clone())).collect()
    }
}

/// `len` elements that repeat `pattern`: random data of any size without the host ever holding all of it.
///
/// Queued on `stream`: other streams wait for it, or the caller does.
pub fn repeated<T: Pod>(stream: &Stream, pattern: &[T], len: usize) -> Result<Buffer<T>> {
    let pattern = stream.upload(pattern)?;
    let mut buffer = stream.alloc(len)?;
    let mut filled = 0;
    while filled < len && !pattern.is_empty() {
        let run = pattern.len().min(len - filled);
        stream.copy(&pattern.slice(..run), &mut buffer.slice_mut(filled..filled + run))?;
        filled += run;
    }
    Ok(buffer)
}

/// A buffer for an output, filled so that an element that is never written shows: all ones, which is NaN in
/// every floating-point format.
pub fn poisoned<T: Pod>(stream: &Stream, len: usize) -> Result<Buffer<T>> {
    let mut buffer = stream.alloc(len)?;
    // The emulated device poisons by itself and knows which bytes were never written; filling them would hide
    // it.
    if !stream.device().is_emulated() {
        let mut ones = T::zeroed();
        bytemuck::bytes_of_mut(&mut ones).fill(0xff);
        stream.fill(&mut buffer, ones)?;
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_values_have_mean_zero_and_deviation_one() {
        let values = Inputs::new(1).normal(100_000);
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
        let variance =
            values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
    }

    #[test]
    fn a_pattern_repeats_to_the_last_element() {
        let stream = gatework_gpu::Device::emulated(0).unwrap().stream().unwrap();
        let buffer = repeated(&stream, &[1u32, 2, 3], 8).unwrap();
        assert_eq!(stream.download(&buffer).unwrap(), [1, 2, 3, 1, 2, 3, 1, 2]);
    }

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        assert_eq!(Inputs::new(1).words(2), GOLDEN_WORDS);
        assert!(Inputs::new(1).integers(1000, -3..4).iter().all(|value| (-3..4).contains(value)));
    }

    /// Records name seeds: if these words change, old records no longer say what was run.
    const GOLDEN_WORDS: [u32; 2] = [2_359_561_649, 1_728_662_762];
}
