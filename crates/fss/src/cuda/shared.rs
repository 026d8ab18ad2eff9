//! What host code and kernels share.

use bytemuck::{Pod, Zeroable};

use crate::dpf;

gatework_gpu::shared! {
    /// Included by the engine's kernels.
    pub(super) header SHARED = "shared.cuh";

    /// Threads of a block that derives words or roots.
    pub(super) const PRG_THREADS: u32 = 256;
    /// Threads of a block that compares.
    pub(super) const COMPARE_THREADS: u32 = 256;
    /// Threads of a block that compares alone on its multiprocessor.
    pub(super) const COMPARE_MOST_THREADS: u32 = 768;
    /// Threads of a block that looks up.
    pub(super) const LOOKUP_THREADS: u32 = 128;
    /// Threads of a block that makes keys.
    pub(super) const GENERATE_THREADS: u32 = 256;
    /// Threads of a block that packs or opens.
    pub(super) const PACKING_THREADS: u32 = 256;
    /// Threads of a block that adds up rows.
    pub(super) const SUMS_THREADS: u32 = 128;
    /// Most threads of a block that evaluates a formula.
    pub(super) const ARITHMETIC_THREADS: u32 = 256;

    /// Words of a run of the generator: of n bits each they are n whole blocks.
    pub(super) const RUN_WORDS: u32 = 128;
    /// log2 of the bits of a leaf.
    pub(super) const LEAF_BITS: u32 = dpf::LEAF_BITS;
    /// Keys of a tile of correction words.
    pub(super) const TILE_KEYS: u32 = dpf::TILE as u32;
    /// Comparisons with one key in one launch.
    pub(super) const MOST_SHIFTS: u32 = 16;
    /// Parts of a message in one launch.
    pub(super) const MOST_PARTS: u32 = 16;
    /// Operands of a formula.
    pub(super) const MOST_OPERANDS: u32 = 64;
    /// A place that is nowhere.
    pub(super) const NOWHERE: u32 = crate::formula::NOWHERE;
    /// Rows and columns of a tile of a product.
    pub(super) const GEMM_TILE: u32 = 64;
    /// Inner indices of a tile that are in shared memory at once.
    pub(super) const GEMM_DEPTH: u32 = 16;

    /// Rows of a tile of a product by limbs.
    pub(super) const LIMB_TILE: u32 = 64;
    /// Threads below each other in a block that has such a tile.
    pub(super) const LIMB_THREADS: u32 = 128;
    /// Inner indices of one step of it.
    pub(super) const LIMB_DEPTH: u32 = 64;

    /// Round keys of AES-128, round by round: four words, or eight bit planes of the key of both blocks.
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct RoundKeys {
        pub(super) words: [[u32; 8]; 11],
    }

    /// What is added to the points of a batch, in turns.
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct Shifts {
        pub(super) at: [u64; MOST_SHIFTS as usize],
        pub(super) count: u64,
    }

    /// Words of one ring that are packed, less others if there are any.
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct PackPart {
        pub(super) words: u64 => "const u64*",
        pub(super) minus: u64 => "const u64*",
        pub(super) len: u64,
        /// The byte of the message that they start at.
        pub(super) first: u64,
        pub(super) bits: u32,
        pub(super) unused: u32,
    }

    /// Parts of a message.
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct PackParts {
        pub(super) at: [PackPart; MOST_PARTS as usize],
    }

    /// Packed words of one ring, and what they are added to, if anything.
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct OpenPart {
        pub(super) own: u64 => "const u64*",
        pub(super) sums: u64 => "u64*",
        pub(super) len: u64,
        /// The byte of the message that they start at.
        pub(super) first: u64,
        pub(super) bits: u32,
        pub(super) unused: u32,
    }

    /// Parts of a message.
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct OpenParts {
        pub(super) at: [OpenPart; MOST_PARTS as usize],
    }

    /// Which word of an operand belongs to a word of the result.
    pub(super) enum ViewKind {
        Whole,
        From,
        Each,
        Cycle,
        Places,
    }

    /// Words that a formula reads.
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct Operand {
        pub(super) words: u64 => "const u64*",
        pub(super) places: u64 => "const u32*",
        /// Of its view: where it starts, how often a word repeats, or the period.
        pub(super) number: u32,
        pub(super) view: u32 => "ViewKind",
    }

    /// All that a formula reads.
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct Operands {
        pub(super) at: [Operand; MOST_OPERANDS as usize],
    }

    /// What the interpreter of formulas does in one step.
    pub(super) enum Operation {
        Operand,
        Constant,
        Add,
        Subtract,
        Multiply,
        Xor,
        And,
        ShiftLeft,
        ShiftRight,
        Below,
    }

    /// One step of a formula.
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct Instruction {
        pub(super) operation: u32 => "Operation",
        /// Where the result goes.
        pub(super) slot: u32,
        /// A slot, the number of an operand, or the low half of a constant.
        pub(super) a: u32,
        /// A slot, a distance, or the high half of a constant.
        pub(super) b: u32,
    }
}
