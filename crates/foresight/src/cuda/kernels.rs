//! The engine's kernels.

use gatework_gpu::{Header, Module};

use super::shared::SHARED;

/// Files that kernels include.
static HEADERS: [Header; 2] = {
    let [reduce] = gatework_gpu::headers!["reduce.cuh"];
    [reduce, SHARED]
};

gatework_gpu::modules! {
    headers HEADERS;
    /// Linear combinations of snapshots.
    COMBINE = "combine";
    /// Norms, means, variances, extrema, cosines.
    STATISTICS = "statistics";
    /// Steps of AdamW, and what Muon's has beside its products.
    UPDATE = "update";
}

/// Combinations with the CPU's bits.
pub(crate) fn combine() -> Module {
    COMBINE.exact()
}

/// Statistics of many tensors.
pub(crate) fn statistics() -> Module {
    STATISTICS
}

/// Steps with the CPU's bits, and with their sums or without.
pub(crate) fn update(measure: bool) -> Module {
    UPDATE.define("MEASURE", measure).exact()
}
