//! What host code and kernels share.

use bytemuck::{Pod, Zeroable};

gatework_gpu::shared! {
    /// Included by every kernel of the engine.
    pub(super) header SHARED = "shared.cuh";

    /// Threads of a block that reduces.
    pub(super) const REDUCE_THREADS: u32 = 256;
    /// Arrays that statistics are of: weights, gradient, displacement, the one before, first and second
    /// moments.
    pub(super) const STATISTIC_ARRAYS: u32 = 6;
    /// The displacement among them.
    pub(super) const STATISTIC_DISPLACEMENT: u32 = 2;
    /// The displacement before.
    pub(super) const STATISTIC_BEFORE: u32 = 3;
    /// Sums that come with a step.
    pub(super) const UPDATE_SUMS: u32 = 7;
    /// Added to the root of the second moment.
    pub(super) const ADAM_EPSILON: f32 = crate::optimiser::EPSILON;

    /// Coefficients of a Newton–Schulz iteration, and what is added to the length that comes before them.
    pub(super) const MUON_A: f32 = crate::optimiser::MUON_A;
    pub(super) const MUON_B: f32 = crate::optimiser::MUON_B;
    pub(super) const MUON_C: f32 = crate::optimiser::MUON_C;
    pub(super) const MUON_TINY: f32 = crate::optimiser::MUON_TINY;

    /// Added to the variance that a normalisation divides by.
    pub(super) const NORM_EPSILON: f32 = crate::network::transformer::EPSILON;
    /// √(2/π), and what GELU's cube is multiplied with.
    pub(super) const GELU_SCALE: f32 = crate::network::transformer::GELU_SCALE;
    pub(super) const GELU_CUBIC: f32 = crate::network::transformer::GELU_CUBIC;

    /// Steps of a product whose tiles are in shared memory.
    pub(super) const PRODUCT_STAGES: u32 = 4;

    /// One product of whole matrices, row by row.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(super) struct ProductShape {
        pub(super) m: u32,
        pub(super) n: u32,
        pub(super) k: u32,
        /// Whether what was there is added to.
        pub(super) accumulate: u32,
    }

    /// Places of a block of attention, and its threads.
    pub(super) const ATTEND_TILE: u32 = 64;
    pub(super) const ATTEND_THREADS: u32 = 128;

    /// Causal attention of all heads.
    #[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
    pub(super) struct AttendShape {
        /// Tokens of a window.
        pub(super) context: u32,
        /// Numbers of all heads of a token.
        pub(super) width: u32,
        /// Numbers of a head.
        pub(super) head: u32,
        /// Scores are multiplied with this, and with this over ln 2 for powers of two.
        pub(super) scale: f32,
        pub(super) power: f32,
    }

    /// Rows whose gradients are added to one row of a table.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(super) struct RowGroup {
        /// The row of the table.
        pub(super) key: u32,
        pub(super) from: u32,
        pub(super) end: u32,
    }

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
        /// Which of the squared lengths says how its gradient is clipped.
        pub(super) length: u32,
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
        /// Whether a segment whose length is no number, or none that is finite, stays as it is.
        pub(super) guarded: u32,
    }

    /// Threads of a block of a team.
    pub(super) const TEAM_THREADS: u32 = 256;
    /// Rows of the state's matrix that a thread of a team has in registers, by the format: multiples of 4.
    /// In f32 they are 112 registers; in bf16 80, or 160 where the compiler unpacks them before the first
    /// step.
    pub(super) const HELD_ROWS_F32: u32 = 28;
    pub(super) const HELD_ROWS_BF16: u32 = 20;

    /// One launch of the GRU's kernel. Places are bytes in a block's shared memory, whose first are the slab's
    /// part that registers do not hold, if it stays there.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(super) struct GruShape {
        /// Blocks of a team.
        pub(super) blocks: u32,
        pub(super) steps: u32,
        pub(super) inputs: u32,
        pub(super) hidden: u32,
        /// Numbers of the state that a block owns: a multiple of a vector's columns.
        pub(super) width: u32,
        /// 32-bit words of a block's slab.
        pub(super) words: u32,
        /// Those of them that registers alone hold, which come first, and all rows that registers hold.
        pub(super) held_words: u32,
        pub(super) held_rows: u32,
        /// Inputs of this step and of the next.
        pub(super) inputs_at: u32,
        /// The state of this step and of the next.
        pub(super) state_at: u32,
        /// The state after its reset, where that comes before the product.
        pub(super) reset_at: u32,
        /// What groups of threads have of the products; and of that of the state after its reset.
        pub(super) partial_at: u32,
        pub(super) of_reset_at: u32,
        /// What the block keeps until it knows the state after its reset.
        pub(super) kept_at: u32,
        pub(super) bias_at: u32,
    }

    /// Features of a tick.
    pub(super) const FEATURES: u32 = crate::state::FEATURES as u32;
    /// Nothing is further out than this, once it is normalised.
    pub(super) const FEATURE_BOUND: f64 = crate::state::BOUND;
    /// After so many ticks old ones are forgotten at this rate.
    pub(super) const FEATURE_MEMORY: f64 = crate::state::MEMORY;
    /// Numbers of an action.
    pub(super) const ACTION: u32 = crate::world::ACTION as u32;

    /// One launch of the rollout's kernel. Places are bytes in a block's shared memory; words are 32 bits of
    /// its slab, counted behind those that registers hold.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(super) struct RolloutShape {
        /// Blocks of a team.
        pub(super) blocks: u32,
        pub(super) ticks: u32,
        pub(super) hidden: u32,
        /// Numbers of the state that a block owns.
        pub(super) width: u32,
        pub(super) categories: u32,
        pub(super) classes: u32,
        /// Categories that a block owns.
        pub(super) own_categories: u32,
        /// Columns of their classes, in whole vectors.
        pub(super) prior_width: u32,
        /// Columns of the heads that a block owns, in whole vectors.
        pub(super) head_width: u32,
        /// Words of a block's slab in all.
        pub(super) words: u32,
        /// Those of them that registers alone hold, which come first, and all rows that registers hold.
        pub(super) held_words: u32,
        pub(super) held_rows: u32,
        /// Where its columns of the prior begin, and those of the posterior.
        pub(super) prior_word: u32,
        pub(super) posterior_word: u32,
        /// The stochastic state, and behind it the action.
        pub(super) given_at: u32,
        pub(super) state_at: u32,
        pub(super) reset_at: u32,
        pub(super) partial_at: u32,
        pub(super) kept_at: u32,
        pub(super) bias_at: u32,
        /// Logits of the block's classes, of this tick and of the one before.
        pub(super) logits_at: u32,
        /// Their Gumbel noise, for this tick and for the next.
        pub(super) noise_at: u32,
        /// Classes that were chosen, and their margins.
        pub(super) choices_at: u32,
        /// Entropies of all categories, of this tick and of the two before.
        pub(super) entropies_at: u32,
        /// What groups of threads have of the prior or the posterior, and of the state after its reset.
        pub(super) of_logits_at: u32,
        /// A tick's features, normalised.
        pub(super) seen_at: u32,
        /// Ticks to look back on, the place of the first in the ring, and places of the ring.
        pub(super) history: u32,
        pub(super) first_place: u32,
        pub(super) places: u32,
    }

    /// Threads of a block that learns from a window.
    pub(super) const LEARN_THREADS: u32 = 256;
    /// Sides of a block's tile of a layer's gradient.
    pub(super) const OUTER_ROWS: u32 = 16;
    pub(super) const OUTER_COLUMNS: u32 = 64;
    /// Numbers of a tick of a window: features, action, the change and whether there is one, the end and
    /// whether there is one.
    pub(super) const LESSON: u32 = FEATURES + ACTION + 4;

    /// A layer of a member: what it read and the gradient of what it wrote, in the trace, and where its
    /// parameters are.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(super) struct WorldLayer {
        pub(super) from: u32,
        pub(super) from_row: u32,
        pub(super) inputs: u32,
        pub(super) delta: u32,
        pub(super) delta_row: u32,
        pub(super) outputs: u32,
        pub(super) matrix: u32,
        /// Its blocks among those of a member.
        pub(super) first_block: u32,
        pub(super) end_block: u32,
    }

    /// One launch of what members learn. Layers are places among a member's parameters, arrays among its
    /// trace; the rest of places are bytes in a block's shared memory.
    #[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
    pub(super) struct WorldShape {
        /// Numbers of a member.
        pub(super) parameters: u64,
        pub(super) trace: u64,
        pub(super) ticks: u32,
        pub(super) windows: u32,
        pub(super) hidden: u32,
        pub(super) categories: u32,
        pub(super) classes: u32,
        /// Whether stochastic states are drawn; they are their probabilities otherwise.
        pub(super) sampled: u32,
        pub(super) input: u32,
        pub(super) state_z: u32,
        pub(super) state_r: u32,
        pub(super) state_n: u32,
        pub(super) prior: u32,
        pub(super) posterior: u32,
        pub(super) features: u32,
        pub(super) change: u32,
        pub(super) end: u32,
        pub(super) given_at: u32,
        pub(super) state_at: u32,
        pub(super) seen_at: u32,
        pub(super) inner_at: u32,
        pub(super) gates_at: u32,
        pub(super) prior_at: u32,
        pub(super) posterior_at: u32,
        pub(super) dgates_at: u32,
        pub(super) dinner_at: u32,
        pub(super) dprior_at: u32,
        pub(super) dposterior_at: u32,
        pub(super) dheads_at: u32,
        pub(super) partial_at: u32,
        pub(super) dh_at: u32,
        pub(super) dz_at: u32,
        /// One over ticks and windows, and over features too.
        pub(super) scale: f32,
        pub(super) of_feature: f32,
        /// Of the divergence, times that.
        pub(super) prior_weight: f32,
        pub(super) posterior_weight: f32,
    }
}
