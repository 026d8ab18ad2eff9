//! Data that needs no file.

use super::examples::{Examples, Splits};
use super::idx::{read_images, read_labels};
use super::tokens::Tokens;
use crate::error::Result;
use crate::random::Random;

/// Noisy XOR: points around (±1, ±1) with normal noise of deviation 0.4, of class 1 where the signs differ.
pub fn xor(count: usize, seed: u64) -> Result<Examples> {
    let mut random = Random::new(seed, "xor");
    let mut inputs = Vec::with_capacity(2 * count);
    let mut labels = Vec::with_capacity(count);
    for _ in 0..count {
        let corner = random.below(4);
        let sign = |bit: usize| if corner >> bit & 1 == 1 { 1.0 } else { -1.0 };
        inputs.extend([0, 1].map(|bit| (sign(bit) + 0.4 * random.normal()) as f32));
        labels.push(u16::from(corner == 1 || corner == 2));
    }
    Examples::new([1, 1, 2], 2, inputs, labels)
}

/// The 1797 digits of 8 by 8 that ship with this crate, of which `probe` are held back and 397 validate.
pub fn digits(probe: usize, seed: u64) -> Result<Splits> {
    let images = include_bytes!("../../data/digits-images.idx3");
    let labels = include_bytes!("../../data/digits-labels.idx1");
    let ([rows, columns], grey) = read_images("digits", images)?;
    let inputs = grey.iter().map(|&grey| f32::from(grey) / 8.0 - 1.0).collect();
    let all = Examples::new([1, rows, columns], 10, inputs, read_labels("digits", labels)?)?;
    Splits::hold_back(&all, probe, 397, seed)
}

/// The Rust source that ships with this crate, as tokens of GPT-2.
pub fn rust_slice() -> Result<Tokens> {
    Tokens::parse(include_bytes!("../../data/rust-slice.tokens"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_are_all_there() {
        let splits = digits(200, 1).unwrap();
        assert_eq!([splits.train.count(), splits.probe.count(), splits.validation.count()], [1200, 200, 397]);
        assert_eq!((splits.train.shape(), splits.classes()), ([1, 8, 8], 10));
        let mut seen = [0; 10];
        (0..1200).for_each(|i| seen[splits.train.label(i)] += 1);
        assert!(seen.iter().all(|&count| count > 80), "{seen:?}");
    }
}
