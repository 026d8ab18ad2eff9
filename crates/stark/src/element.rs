//! What columns are made of.

use std::fmt::Debug;

pub use starknet_ff::FieldElement as Felt252;
use stwo::core::fields::m31::{BaseField, P};
use stwo::core::fields::qm31::SecureField;
use stwo::core::vcs::blake2_hash::Blake2sHash;

/// An element of a column: a fixed number of 32-bit words.
pub trait Element: Copy + Debug + Default + Send + Sync + 'static {
    /// Words of one element.
    const WORDS: usize;
    /// Appends the element's words.
    fn write(&self, words: &mut Vec<u32>);
    /// The element that has these words.
    fn read(words: &[u32]) -> Self;
}

/// A word of [0, P] in [0, P), which kernels take. `SimdBackend` leaves P where it negates zero, and
/// `BaseColumn::to_cpu` shows it.
pub(crate) fn reduced(word: u32) -> u32 {
    word.min(word.wrapping_sub(P))
}

impl Element for BaseField {
    const WORDS: usize = 1;
    fn write(&self, words: &mut Vec<u32>) {
        words.push(reduced(self.0));
    }
    fn read(words: &[u32]) -> Self {
        Self(words[0])
    }
}

impl Element for SecureField {
    const WORDS: usize = 4;
    fn write(&self, words: &mut Vec<u32>) {
        words.extend(self.to_m31_array().map(|coordinate| reduced(coordinate.0)));
    }
    fn read(words: &[u32]) -> Self {
        Self::from_u32_unchecked(words[0], words[1], words[2], words[3])
    }
}

impl Element for Blake2sHash {
    const WORDS: usize = 8;
    fn write(&self, words: &mut Vec<u32>) {
        words.extend(bytemuck::cast::<[u8; 32], [u32; 8]>(self.0));
    }
    fn read(words: &[u32]) -> Self {
        Self(std::array::from_fn(|byte| words[byte / 4].to_le_bytes()[byte % 4]))
    }
}

/// In Montgomery form on the device as on the host: nothing is converted.
impl Element for Felt252 {
    const WORDS: usize = 8;
    fn write(&self, words: &mut Vec<u32>) {
        words.extend(bytemuck::cast::<[u64; 4], [u32; 8]>(self.into_mont()));
    }
    fn read(words: &[u32]) -> Self {
        Self::from_mont(std::array::from_fn(|at| {
            u64::from(words[2 * at + 1]) << 32 | u64::from(words[2 * at])
        }))
    }
}
