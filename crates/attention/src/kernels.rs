//! The engine's kernels.

use gatework_gpu::Header;

use crate::shared::SHARED;

/// Files that kernels include.
static HEADERS: [Header; 6] = {
    let [consumer, images, marks, numbers, softmax] =
        gatework_gpu::headers!["consumer.cuh", "images.cuh", "marks.cuh", "numbers.cuh", "softmax.cuh"];
    [consumer, images, marks, numbers, softmax, SHARED]
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
