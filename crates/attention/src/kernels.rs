//! The engine's kernels.

use gatework_gpu::Header;

use crate::shared::SHARED;

/// Files that kernels include.
static HEADERS: [Header; 9] = {
    let [consumer, dimensions, images, marks, numbers, parts, slices, softmax] = gatework_gpu::headers![
        "consumer.cuh",
        "dimensions.cuh",
        "images.cuh",
        "marks.cuh",
        "numbers.cuh",
        "parts.cuh",
        "slices.cuh",
        "softmax.cuh"
    ];
    [consumer, dimensions, images, marks, numbers, parts, slices, softmax, SHARED]
};

gatework_gpu::modules! {
    headers HEADERS;
    /// Rows into pages of a cache.
    pub(crate) APPEND = "append";
    /// Attention over tile images.
    pub(crate) ATTENTION = "attention";
    /// Attention over pages of a cache.
    pub(crate) CACHED = "cached";
    /// Attention over all keys from attention over parts of them.
    pub(crate) COMBINE = "combine";
    /// Tile images from matrices of any format.
    pub(crate) QUANTISE = "quantise";
}
