//! What host code and kernels share.

use bytemuck::{Pod, Zeroable};

gatework_gpu::shared! {
    /// Included by every kernel of the engine.
    pub(super) header SHARED = "shared.cuh";

    /// Threads of a block that reduces.
    pub(super) const REDUCE_THREADS: u32 = 256;
    /// Arrays that statistics are of: weights, gradient, displacement, the one before, first and second moments.
    pub(super) const STATISTIC_ARRAYS: u32 = 6;
    /// The displacement among them.
    pub(super) const STATISTIC_DISPLACEMENT: u32 = 2;
    /// The displacement before.
    pub(super) const STATISTIC_BEFORE: u32 = 3;
    /// Sums that come with a step.
    pub(super) const UPDATE_SUMS: u32 = 7;
    /// Added to the root of the second moment.
    pub(super) const ADAM_EPSILON: f32 = crate::optimiser::EPSILON;

    /// Neighbouring parameters of one segment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(super) struct Chunk {
        pub(super) start: u64,
        pub(super) end: u64,
        pub(super) segment: u32,
        pub(super) unused: u32,
    }

    /// A tensor: where its chunks are, and what its step takes.
    #[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
    pub(super) struct Segment {
        pub(super) first_chunk: u32,
        pub(super) chunks: u32,
        /// Decoupled weight decay.
        pub(super) decay: f32,
        /// Of Muon's direction.
        pub(super) scale: f32,
    }

    /// Constants of a step of AdamW.
    #[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
    pub(super) struct AdamConstants {
        /// The longest gradient; 0 for any.
        pub(super) clip: f64,
        pub(super) beta1: f32,
        /// 1 − β₁.
        pub(super) rest1: f32,
        pub(super) beta2: f32,
        /// 1 − β₂.
        pub(super) rest2: f32,
        /// 1 / (1 − β₁ᵗ).
        pub(super) first_scale: f32,
        /// 1 / (1 − β₂ᵗ).
        pub(super) second_scale: f32,
        pub(super) rate: f32,
        pub(super) unused: f32,
    }
}
