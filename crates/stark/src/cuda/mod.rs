//! stwo's traits on a device, one file a trait, each named as the kernels it launches.

mod accumulation;
pub(crate) mod circle_fft;
mod columns;
pub(crate) mod fri;
mod grind;
pub(crate) mod groups;
pub(crate) mod homes;
mod lookups;
pub(crate) mod merkle;
pub(crate) mod oods;
mod poly;
mod poseidon252_grind;
mod poseidon252_merkle;
mod quotients;
pub(crate) mod schedule;
mod subtrees;
mod twiddles;

use gatework_gpu::{Grid, Module};
use stwo::core::fields::qm31::SecureField;

pub(crate) use self::columns::{Runs, gather};
pub use self::poly::interpolate_kept;
pub(crate) use self::poly::interpolate_streamed;
pub use self::twiddles::DeviceTwiddles;
use crate::kernels;
use crate::shared::LOWEST;
use schedule::Pass;

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

/// What every proof may need: of the transform's passes the one that all long transforms have.
pub(crate) fn modules_of_proofs() -> [Module; 16] {
    [
        kernels::ACCUMULATION,
        kernels::CIRCLE_FFT,
        Pass::full(LOWEST).module(),
        kernels::COLUMNS,
        kernels::FRI,
        kernels::GRIND,
        kernels::INTERPRETER,
        kernels::LOGUP,
        kernels::LOOKUPS,
        kernels::MERKLE,
        kernels::OODS,
        kernels::POSEIDON252_GRIND,
        kernels::POSEIDON252_MERKLE,
        kernels::QUOTIENTS,
        kernels::SHIFTED_ROWS,
        kernels::TWIDDLES,
    ]
}

#[cfg(test)]
mod tests {
    use gatework_gpu::{Architecture, compile, presence};

    use super::schedule::PASSES;
    use super::*;

    /// Without NVRTC, which needs no GPU, only the emulated device's compiler is asked.
    #[test]
    fn every_module_compiles_and_none_spills() {
        let passes = PASSES.map(|layers| Pass::full(layers).module());
        let modules = || modules_of_proofs().into_iter().chain(passes).map(|module| module.source());
        for source in modules() {
            compile(&source, &Architecture::Emulated).unwrap();
        }
        if !presence::nvrtc().is_found() {
            eprintln!("NVRTC was not found: nothing was compiled for sm_90a");
            return;
        }
        for source in modules() {
            let binary = compile(&source, &Architecture::Sm("sm_90a".into())).unwrap();
            for (kernel, resources) in &binary.resources {
                assert_eq!(resources.spill_stores + resources.spill_loads, 0, "{kernel}");
            }
        }
    }
}
