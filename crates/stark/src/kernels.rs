//! The engine's kernels, and the files that they include.

use gatework_gpu::{Header, Source};

use crate::shared::SHARED;

/// Files that kernels include.
static HEADERS: [Header; 11] = {
    let [blake2s, butterfly, circle, felt252, field, poseidon252, constants, rows, sums, transcript] = gatework_gpu::headers![
        "blake2s.cuh",
        "butterfly.cuh",
        "circle.cuh",
        "felt252.cuh",
        "field.cuh",
        "poseidon252.cuh",
        "poseidon252_constants.cuh",
        "rows.cuh",
        "sums.cuh",
        "transcript.cuh",
    ];
    [blake2s, butterfly, circle, felt252, field, poseidon252, constants, rows, sums, transcript, SHARED]
};

/// Files that kernels of one's own may include, as `field.cuh` for the arithmetic of M31 and QM31.
pub static KERNEL_HEADERS: &[Header] = &HEADERS;

gatework_gpu::modules! {
    headers HEADERS;
    /// Sums of quotients of several components.
    pub(crate) ACCUMULATION = "accumulation";
    /// Transforms on tiles of less than full size.
    pub(crate) CIRCLE_FFT = "circle_fft";
    /// Passes of `LAYERS` layers of the circle transform, on tiles of full size.
    pub(crate) CIRCLE_PASS = "circle_pass";
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
    /// Proof of work by Poseidon252.
    pub(crate) POSEIDON252_GRIND = "poseidon252_grind";
    /// Leaves and layers of Poseidon252 trees.
    pub(crate) POSEIDON252_MERKLE = "poseidon252_merkle";
    /// Quotients by the samples.
    pub(crate) QUOTIENTS = "quotients";
    /// Rows of streamed columns that are ahead of others.
    pub(crate) SHIFTED_ROWS = "shifted_rows";
    /// Tables of twiddles.
    pub(crate) TWIDDLES = "twiddles";
}

#[cfg(feature = "lab")]
gatework_gpu::modules! {
    headers HEADERS;
    /// Butterflies, compressions and permutations alone, for floors.
    pub(crate) RATES = "rates";
    /// What generated kernels are held against.
    pub(crate) WIDE_FIBONACCI = "wide_fibonacci";
}

/// A source made at run time, which may include the engine's headers.
pub(crate) fn with_headers(source: Source) -> Source {
    source.include_all(&HEADERS)
}
