//! stwo's traits on a device, one file a trait, each named as the kernels it launches.

mod accumulation;
pub(crate) mod circle_fft;
mod columns;
pub(crate) mod fri;
mod grind;
mod lookups;
pub(crate) mod merkle;
pub(crate) mod oods;
mod poly;
mod quotients;
pub(crate) mod schedule;
mod twiddles;

use gatework_gpu::Grid;
use stwo::core::fields::qm31::SecureField;

pub(crate) use self::columns::{Runs, gather};
pub use self::poly::interpolate_kept;
pub use self::twiddles::DeviceTwiddles;

/// Threads of a block where nothing asks for another number.
const THREADS: u32 = 256;

/// A thread for each of `items`.
pub(crate) fn one_thread_each(items: usize) -> Grid {
    Grid::covering(items, THREADS)
}

/// The words of an element, as a kernel's argument.
pub(crate) fn words(value: SecureField) -> [u32; 4] {
    value.to_m31_array().map(|coordinate| coordinate.0)
}

/// Words of elements, one after the other.
pub(crate) fn flat_words(values: &[SecureField]) -> Vec<u32> {
    values.iter().copied().flat_map(words).collect()
}
