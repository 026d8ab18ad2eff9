//! What host code and kernels share.

gatework_gpu::shared! {
    /// Included by the engine's kernels.
    pub(crate) header SHARED = "shared.cuh" after "field.cuh";

    /// Layers of the lowest pass of a transform of several, and of the whole of one that is just as long.
    pub(crate) const LOWEST: u32 = 12;
}
