//! What host code and kernels share.

use bytemuck::{Pod, Zeroable};

use crate::dimensions;

gatework_gpu::shared! {
    /// Included by every kernel of the engine.
    pub(crate) header SHARED = "shared.cuh" after "gw/swizzle.cuh";

    /// Query rows of a tile.
    pub(crate) const QUERY_TILE: u32 = 64;
    /// Keys of a tile.
    pub(crate) const KEY_TILE: u32 = 128;
    /// Rows below the values of a tile: one of ones, which sums p, and zeros to the next multiple of eight.
    pub(crate) const SUM_ROWS: u32 = 8;
    /// Threads of a warpgroup.
    pub(crate) const WARPGROUP: u32 = 128;
    /// Bytes of an mbarrier.
    pub(crate) const BARRIER_BYTES: u32 = 8;
    /// The place in a list of items where a block stops.
    pub(crate) const NO_ITEM: u32 = u32::MAX;

    /// Of the attention kernel's FEATURES: warpgroups of a block issue their products in turn.
    pub(crate) const WITH_TURNS: u32 = 1;
    /// Codes between powers of two follow a curve.
    pub(crate) const WITH_CURVE: u32 = 2;
    /// Rows do not see keys before some place either.
    pub(crate) const WITH_WINDOW: u32 = 4;
    /// Heads have sinks.
    pub(crate) const WITH_SINKS: u32 = 8;
    /// Scores have a soft cap.
    pub(crate) const WITH_SOFT_CAP: u32 = 16;

    /// Rows and keys are those of packed sequences.
    pub(crate) const WITH_SEQUENCES: u32 = 32;

    /// Threads of a block of the quantiser.
    pub(crate) const QUANTISE_THREADS: u32 = 256;
    /// Shared memory before a tile of the quantiser: a word for each of its warps, twice.
    pub(crate) const QUANTISE_WORDS_BYTES: u32 = 64;
    /// The largest e4m3.
    pub(crate) const LARGEST_CODE: f32 = 448.0;

    /// Formats of numbers that come in and go out.
    pub enum Number {
        /// 32 bits.
        F32,
        /// 16 bits, five of them an exponent.
        F16,
        /// The upper half of 32 bits.
        Bf16,
        /// 8 bits, with scales beside: inputs alone.
        E4m3,
    }

    /// One launch of the attention kernel. Rows and keys are those of one head; strides are in elements of
    /// the output.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct Problem {
        pub(crate) rows: u32,
        pub(crate) keys: u32,
        pub(crate) key_tiles: u32,
        pub(crate) query_tiles: u32,
        pub(crate) heads: u32,
        pub(crate) key_heads: u32,
        /// Query row i sees keys up to i + diagonal; without a mask this is past every key.
        pub(crate) diagonal: i32,
        pub(crate) log2_scale: f32,
        pub(crate) batch_stride: u64,
        pub(crate) head_stride: u64,
        pub(crate) row_stride: u64,
        /// Results of each part of the keys lie this far apart.
        pub(crate) split_stride: u64,
        pub(crate) split_lse_stride: u64,
        /// Parts of the keys.
        pub(crate) splits: u32,
        /// Tiles of each part: a multiple of the tiles of values with one scale.
        pub(crate) split_tiles: u32,
        /// Entries of the list of items: a multiple of the blocks. As many as blocks: there is no list, and
        /// the last rows, which see the most keys under a causal mask, come first.
        pub(crate) items: u32,
        /// Under a window, query row i sees keys from i + first_diagonal on.
        pub(crate) first_diagonal: i32,
        /// The largest score after a soft cap, in eighths of log2.
        pub(crate) cap: f32,
        /// What scores in eighths of log2 are multiplied with before the hyperbolic tangent, which is of
        /// halved log2.
        pub(crate) cap_factor: f32,
        /// Of packed sequences: groups of tiles of values of a head, and the words after the list of items
        /// at which work and sequences begin. Rows, tiles and keys are then those of all sequences, and
        /// diagonals are how many keys after and before its own place a row sees.
        pub(crate) value_groups: u32,
        pub(crate) work_at: u32,
        pub(crate) sequences_at: u32,
        pub(crate) unused: u32,
    }

    /// A block of rows of a packed sequence, and the query head.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(crate) struct PackedWork {
        pub(crate) sequence: u32,
        pub(crate) first_row: u32,
        pub(crate) head: u32,
        pub(crate) unused: u32,
    }

    /// A packed sequence: where its rows begin among those of all, and its tiles among those of a head.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(crate) struct PackedSequence {
        pub(crate) first_row: u32,
        pub(crate) rows: u32,
        pub(crate) keys: u32,
        pub(crate) query_tile: u32,
        pub(crate) key_tile: u32,
        pub(crate) value_group: u32,
        pub(crate) unused: [u32; 2],
    }

    /// Of a tile of packed rows, the first, and the end of its sequence's; or the tiles of a group of values.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(crate) struct Span {
        pub(crate) first: u32,
        pub(crate) end: u32,
    }

    /// A matrix of heads for the quantiser; strides are in elements.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct Matrix {
        pub(crate) batch_stride: u64,
        pub(crate) head_stride: u64,
        pub(crate) row_stride: u64,
        pub(crate) rows: u32,
        pub(crate) heads: u32,
        pub(crate) tiles: u32,
        /// What the largest number of a tile becomes.
        pub(crate) limit: f32,
        /// Scales of e4m3 numbers: how far apart those of two heads are.
        pub(crate) scales_of_head: u32,
        /// And those of two blocks of as many rows as a tile has keys.
        pub(crate) scales_of_block: u32,
        /// Of packed sequences: groups of tiles of values.
        pub(crate) groups: u32,
        pub(crate) unused: u32,
    }

    /// What parts of the keys gave, for the kernel that combines them.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct Parts {
        pub(crate) count: u32,
        pub(crate) rows: u32,
        pub(crate) heads: u32,
        pub(crate) unused: u32,
        pub(crate) batch_stride: u64,
        pub(crate) head_stride: u64,
        pub(crate) row_stride: u64,
        /// Rows of all heads.
        pub(crate) total: u64,
    }

    /// Words of a plan before its lists: how many appends, items, and rows of all sequences there are.
    pub(crate) const PLAN_APPENDS: u32 = 0;
    pub(crate) const PLAN_ITEMS: u32 = 1;
    pub(crate) const PLAN_ROWS: u32 = 2;
    /// A multiple of 16 bytes.
    pub(crate) const PLAN_WORDS: u32 = 4;
    /// No place for an open page.
    pub(crate) const NO_PLACE: u32 = u32::MAX;
    /// Shared memory of the kernel over caches that says whether a block is the last.
    pub(crate) const CACHED_FLAG_BYTES: u32 = 16;

    /// Rows that go into a page, after those that it keeps.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(crate) struct AppendItem {
        pub(crate) page: u32,
        pub(crate) kept: u32,
        pub(crate) added: u32,
        /// The first of the added rows among all that come.
        pub(crate) first_row: u32,
        /// The place of the open page that kept rows are read from, if there are any.
        pub(crate) from: u32,
        /// The place where this page's rows are kept from now on, or NO_PLACE if it is full.
        pub(crate) to: u32,
        pub(crate) unused: [u32; 2],
    }

    /// A full page of which some rows are kept in f16 again.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(crate) struct ReopenItem {
        pub(crate) page: u32,
        pub(crate) kept: u32,
        pub(crate) to: u32,
        pub(crate) unused: u32,
    }

    /// What kernels that write into a cache know of it.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct CacheShape {
        pub(crate) key_heads: u32,
        /// What the largest number of a page's keys becomes.
        pub(crate) limit: f32,
        /// The word of the plan at which appends begin.
        pub(crate) appends_at: u32,
        pub(crate) unused: u32,
    }

    /// A sequence whose last rows attend.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(crate) struct CachedSequence {
        /// The first of its pages among those of all sequences.
        pub(crate) table: u32,
        pub(crate) keys: u32,
        pub(crate) rows: u32,
        /// The first of its rows among those of all sequences.
        pub(crate) first_row: u32,
    }

    /// A block of packed rows over a part of their keys.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
    pub(crate) struct CachedItem {
        pub(crate) sequence: u32,
        /// Which block of packed rows.
        pub(crate) tile: u32,
        /// The part's pages, by their place in the sequence.
        pub(crate) first_page: u32,
        pub(crate) pages: u32,
        /// Which of the tile's parts this is.
        pub(crate) part: u32,
        pub(crate) parts: u32,
        /// The first of the tile's parts among those of all.
        pub(crate) first_part: u32,
        /// The tile among those that have several parts.
        pub(crate) counter: u32,
    }

    /// One launch of the kernel over caches.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct CacheProblem {
        pub(crate) heads: u32,
        pub(crate) key_heads: u32,
        /// Keys before a row's own place that it sees, under a window, and after it.
        pub(crate) left: i32,
        pub(crate) right: i32,
        pub(crate) log2_scale: f32,
        /// As in `Problem`.
        pub(crate) cap: f32,
        pub(crate) cap_factor: f32,
        /// What the largest number of a tile of queries becomes.
        pub(crate) limit: f32,
        /// Words of the plan at which its lists begin.
        pub(crate) sequences_at: u32,
        pub(crate) items_at: u32,
        pub(crate) tables_at: u32,
        pub(crate) unused: u32,
    }

    text dimensions::declare;
}
