//! The engine's kernels, and the files that they include.

use gatework_gpu::{Header, Source};

use super::shared::SHARED;

/// Files that kernels include.
static HEADERS: [Header; 4] = {
    let [aes, operands, tree] = gatework_gpu::headers!["aes.cuh", "operands.cuh", "tree.cuh"];
    [aes, operands, tree, SHARED]
};

gatework_gpu::modules! {
    headers HEADERS;
    /// Formulas, read as data.
    pub(super) ARITHMETIC = "arithmetic";
    /// Comparisons with secret places.
    pub(super) COMPARE = "compare";
    /// Products of matrices, word by word.
    pub(super) GEMM = "gemm";
    /// The dealer's keys of point functions.
    pub(super) GENERATE = "generate";
    /// Products of matrices in limbs of 8 bits.
    pub(super) LIMBS = "limbs";
    /// Sums of tables under unit vectors.
    pub(super) LOOKUP = "lookup";
    /// Words to their effective bits and back.
    pub(super) PACKING = "packing";
    /// The generator in counter mode.
    pub(super) PRG = "prg";
    /// Roots of trees.
    pub(super) ROOTS = "roots";
    /// Sums of rows and columns.
    pub(super) SUMS = "sums";
}

#[cfg(feature = "lab")]
gatework_gpu::modules! {
    headers HEADERS;
    /// What comparisons are held against.
    pub(super) PUBLISHED = "published";
}

/// A source made at run time, which may include the engine's headers.
pub(super) fn with_headers(source: Source) -> Source {
    source.include_all(&HEADERS)
}
