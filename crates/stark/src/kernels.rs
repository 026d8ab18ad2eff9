//! The engine's kernels, and the files that they include.

use gatework_gpu::{Header, Module, Source};

use crate::shared::{LOWEST, SHARED};

/// Files that kernels include.
static HEADERS: [Header; 8] = {
    let [blake2s, butterfly, circle, field, rows, sums, transcript] = gatework_gpu::headers![
        "blake2s.cuh",
        "butterfly.cuh",
        "circle.cuh",
        "field.cuh",
        "rows.cuh",
        "sums.cuh",
        "transcript.cuh",
    ];
    [blake2s, butterfly, circle, field, rows, sums, transcript, SHARED]
};

gatework_gpu::modules! {
    headers HEADERS;
    /// Sums of quotients of several components.
    pub(crate) ACCUMULATION = "accumulation";
    /// Transforms on tiles of less than full size.
    pub(crate) CIRCLE_FFT = "circle_fft";
    /// Passes of `LAYERS` layers of the circle transform, on tiles of full size: [`circle_pass`].
    CIRCLE_PASS = "circle_pass";
    /// Whole columns: reordered, gathered, summed.
    pub(crate) COLUMNS = "columns";
    /// Folds of FRI, and challenges that are drawn on the device.
    pub(crate) FRI = "fri";
    /// Proof of work.
    pub(crate) GRIND = "grind";
    /// Constraints of any AIR, read as data.
    pub(crate) INTERPRETER = "interpreter";
    /// Fractions of LogUp and their running sums.
    pub(crate) LOGUP = "logup";
    /// Multilinear extensions, and the layers and sums of GKR.
    pub(crate) LOOKUPS = "lookups";
    /// Leaves and layers of Blake2s trees.
    pub(crate) MERKLE = "merkle";
    /// Values of polynomials at a point outside of their domain.
    pub(crate) OODS = "oods";
    /// Quotients by the samples.
    pub(crate) QUOTIENTS = "quotients";
    /// Tables of twiddles.
    pub(crate) TWIDDLES = "twiddles";
}

#[cfg(feature = "lab")]
gatework_gpu::modules! {
    headers HEADERS;
    /// Butterflies and compressions alone, for floors.
    pub(crate) RATES = "rates";
    /// What generated kernels are held against.
    pub(crate) WIDE_FIBONACCI = "wide_fibonacci";
}

/// A source made at run time, which may include the engine's headers.
pub(crate) fn with_headers(source: Source) -> Source {
    source.include_all(&HEADERS)
}

/// Passes of `layers` layers of the circle transform.
pub(crate) fn circle_pass(layers: u32) -> Module {
    CIRCLE_PASS.define("LAYERS", layers)
}

/// What every proof may need: of the transform's passes the one that all long transforms have.
pub(crate) fn of_proofs() -> [Module; 13] {
    [
        ACCUMULATION,
        CIRCLE_FFT,
        circle_pass(LOWEST),
        COLUMNS,
        FRI,
        GRIND,
        INTERPRETER,
        LOGUP,
        LOOKUPS,
        MERKLE,
        OODS,
        QUOTIENTS,
        TWIDDLES,
    ]
}

#[cfg(test)]
mod tests {
    use gatework_gpu::{Architecture, compile, presence};

    use super::*;
    use crate::cuda::schedule;

    /// Without NVRTC, which needs no GPU, only the emulated device's compiler is asked.
    #[test]
    fn every_module_compiles_and_none_spills() {
        let passes = schedule::PASSES.map(circle_pass);
        let modules = || of_proofs().into_iter().chain(passes).map(|module| module.source());
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
