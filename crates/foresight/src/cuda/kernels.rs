//! The engine's kernels.

use gatework_gpu::{Header, Module};

use super::shared::SHARED;
use super::team::{Residence, Team, WeightFormat};
use crate::world::Reset;

/// Files that kernels include.
pub(super) static HEADERS: [Header; 5] = {
    let [four, functions, reduce, team] =
        gatework_gpu::headers!["four.cuh", "functions.cuh", "reduce.cuh", "team.cuh"];
    [four, functions, reduce, team, SHARED]
};

gatework_gpu::modules! {
    headers HEADERS;
    /// Causal attention and its gradient.
    ATTENTION = "attention";
    /// Linear combinations of snapshots.
    COMBINE = "combine";
    /// Backward through time for an ensemble.
    LEARN = "learn";
    /// Between products of bf16: roundings, biases, GELU, averages.
    MIXED = "mixed";
    /// What Muon's iterations have beside their products.
    MUON = "muon";
    /// Products of matrices.
    PRODUCT = "product";
    /// Gated recurrent units, and rollouts of whole models.
    RECURRENT = "recurrent";
    /// Norms, means, variances, extrema, cosines.
    STATISTICS = "statistics";
    /// What a transformer's step has beside its products.
    TRANSFORMER = "transformer";
    /// Steps of AdamW, and what Muon's has beside its products.
    UPDATE = "update";
}

/// Attention with heads of so many numbers, in whole products; and whether all rows begin at whole groups.
pub(crate) fn attention(head: u32, wide: bool) -> Module {
    ATTENTION.define("HEAD", head).define("WIDE", wide)
}

/// Combinations with the CPU's bits.
pub(crate) fn combine() -> Module {
    COMBINE.exact()
}

/// What members of the world model learn from a window.
pub(crate) fn learn(reset: Reset) -> Module {
    LEARN.define("RESET_BEFORE", reset == Reset::Before)
}

/// Between products of bf16.
pub(crate) fn mixed() -> Module {
    MIXED
}

/// Between the products of Newton–Schulz iterations.
pub(crate) fn muon() -> Module {
    MUON
}

/// Products: which of both matrices lie as their transposes, whether all rows begin at whole groups, and the
/// sides of a block's tile, 64 or 128.
pub(crate) fn product(turned: [bool; 2], wide: bool, tile: u32) -> Module {
    let [left, right] = turned;
    PRODUCT
        .define("LEFT_TURNED", left)
        .define("RIGHT_TURNED", right)
        .define("WIDE", wide)
        .define("TILE", tile)
}

/// Statistics of many tensors.
pub(crate) fn statistics() -> Module {
    STATISTICS
}

/// Normalisations, biases, cross-entropies and embeddings.
pub(crate) fn transformer() -> Module {
    TRANSFORMER
}

/// Steps with the CPU's bits, and with their sums or without.
pub(crate) fn update(measure: bool) -> Module {
    UPDATE.define("MEASURE", measure).exact()
}

/// How a recurrent kernel is made: what it is compiled for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) format: WeightFormat,
    pub(crate) team: Team,
    pub(crate) residence: Residence,
    pub(crate) reset: Reset,
}

/// What rollouts do beside imagining.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Beside {
    /// States are sampled.
    pub(crate) sampled: bool,
    /// Ticks that were seen are looked back on first.
    pub(crate) encoded: bool,
}

/// Gated recurrent units and rollouts.
pub(crate) fn recurrent(form: Form, beside: Beside) -> Module {
    RECURRENT
        .define("HALVED", form.format == WeightFormat::Bf16)
        .define("CLUSTERED", form.team == Team::Cluster)
        .define("RESIDENT", form.residence == Residence::Shared)
        .define("RESET_BEFORE", form.reset == Reset::Before)
        .define("SAMPLED", beside.sampled)
        .define("ENCODED", beside.encoded)
}
