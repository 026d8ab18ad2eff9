//! The kernels of the runtime's own workloads, `gpu/*`: one module a file of `kernels/`.

gatework_gpu::modules! {
    /// `y <- a x + y`, elementwise: `saxpy(const f32* x, f32* y, f32 a, u64 n)`. One thread four elements.
    pub SAXPY = "saxpy";
    /// `out[0] <- sum of x`, in a fixed order: `reduce(const f32* x, f32* partials, u32* ticket, f32* out,
    /// u64 n)`. One partial a block; `ticket` starts at zero and is left at zero.
    pub REDUCE = "reduce";
    /// `out[c][r] <- in[r][c]`: `transpose(const f32* in, f32* out, u32 rows, u32 columns)`. Blocks of `TILE
    /// / 4 x BLOCK_ROWS` threads (16 x 16), one tile (64) a block, `TILE * (TILE + 1) * 4` bytes of shared
    /// memory.
    pub TRANSPOSE = "transpose";
    /// `x[i] <- 1664525 x[i] + step`, modulo 2^32: `chain(u32* x, u32 step, u32 n)`. The order of steps
    /// shows.
    pub CHAIN = "chain";
    /// `c <- a b^T` for e4m3 tile images: `fp8_tile(const u8* a, const u8* b, f32* c, u32 k_tiles)`.
    /// One block of 256 threads a 64 x 128 tile of `c`, [`FP8_TILE_SHARED_BYTES`] of shared memory.
    pub FP8_TILE = "fp8_tile";
    /// Zero-padded tiles in reverse order by `cp.async` of 4, 8 or 16 bytes a thread, in two stages:
    /// `copy_pipeline_4(const u8* from, u8* out, u64 bytes, u32 tiles)`, `copy_pipeline_8`,
    /// `copy_pipeline_16`. One block of 128 threads, shared memory for two tiles of 128 elements.
    pub COPY_PIPELINE = "copy_pipeline";
    /// Tiles of 2048 bytes in reverse order by bulk copies: `bulk_ring(const u8* from, u8* out, u32 tiles)`.
    /// One block of 160 threads, shared memory for four tiles and four barriers.
    pub BULK_RING = "bulk_ring";
    /// Sums that one half of a block computes and the other stores, handed over by named barriers:
    /// `barrier_relay(const u32* words, const u64* longs, const u32x4* quads, u32* out, u32 turns)`.
    /// One block of 128 threads, 512 bytes of shared memory.
    pub BARRIER_RELAY = "barrier_relay";
    /// Values that go round the blocks of a cooperative launch:
    /// `grid_ring(u32* values, u32* next, u32* arrived, u32 rounds)`.
    pub GRID_RING = "grid_ring";
    /// Conversions between number formats, elementwise, in three kernels: `convert_f32`, `convert_halves`
    /// (f16 and bf16) and `convert_bytes` (e4m3 and e5m2), each named for what it converts from.
    pub CONVERT_FORMATS = "convert_formats";
    /// Floating-point functions, elementwise: `float_exact(const f32* a, const f32* b, const f32* c, f32*
    /// out, u32 n)` and `float_approximate(const f32* exponents, const f32* positives, f32* out, u32 n)`.
    pub FLOAT_WORDS = "float_words";
    /// Integer instructions, elementwise: `integer_words(const u32* a, const u32* b, const u32* c, u32* out,
    /// u32 n)`, and all 65536 byte permutations: `permute_words(const u32* a, const u32* b, u32* out)`.
    pub INTEGER_WORDS = "integer_words";
    /// Atomic operations by every thread on the same 21 cells: `atomic_words(const u32* words, const u64*
    /// longs, const u64* initial, u64* block_cells, u64* cells, u32* tickets, u32* next_ticket)`. 168 bytes
    /// of shared memory.
    pub ATOMIC_WORDS = "atomic_words";
    /// Messages from block 0 to block 1 that atomics and fences order: `message_passing(const u32* messages,
    /// u32* mailbox, u32* sent, u64* taken, u32* relay, u32* out, u32 count)`. Two blocks of 64 threads, a
    /// cooperative launch.
    pub MESSAGE_PASSING = "message_passing";
    /// Loads and stores of 8 x 8 tiles, one, two and four at a time, as stored and transposed:
    /// `matrix_tiles(const u32* from, u32* fragments, u32* same, u32* crossed)`. Six blocks of one warp.
    pub MATRIX_TILES = "matrix_tiles";
    /// `d <- c + A B` by `mma`, in the format that the macro `FORMAT` names:
    /// `mma_product(const u32* a, const u32* b, const Element* c, Element* d)`. One warp a product of 16 x 8.
    pub MMA_PRODUCT = "mma_product";
    /// `d <- c + A B`, 32 bytes of K a step, in the format that the macro `FORMAT` names: `mma_sums(const
    /// u32* a, const u32* b, const f32* c, f32* d, u32 steps)`, one warp a product of 16 x 8; `wgmma_sums`
    /// and `wgmma_sums_half`, 128 threads a product of 64 x 8 or 64 x 16, shared memory for one step.
    pub TENSOR_SUMS = "tensor_sums";
    /// What the lanes of a warp tell each other, one result for each call and thread, in two kernels:
    /// `warp_shuffle(const u32* words, const u64* longs, const f32* floats, const u32* sources, u64* out, u32
    /// mask, u32 distance)` and `warp_vote(const u32* words, u64* out, u32 mask)`, with one word of shared
    /// memory a thread.
    pub WARP_EXCHANGE = "warp_exchange";
    /// `d[0] <- c + A[0] B[0]`, `d[1] <- A[1] B[1]` by the `wgmma` that macros name, for widths of 8, 24, 64,
    /// 128, 256: `wgmma_product_8(const u8* a, const u8* b, const Element* c, Element* d, Layout a_layout,
    /// Layout b_layout)`, ... One block of 128 threads; shared memory for the images of A and B.
    pub WGMMA_PRODUCT = "wgmma_product";
    /// Arithmetic on pairs of f16, elementwise: `half_words(const u32* a, const u32* b, const u32* c, u32*
    /// out, u32 n)`.
    pub HALF_WORDS = "half_words";
    /// Products of e4m3 tiles of 64 x 32 with f16 accumulators: `half_product(const u8* a, const u8* b, const
    /// u8* rows, u32* out)`. One block of 128 threads, 4 KiB of shared memory.
    pub HALF_PRODUCT = "half_product";
    /// Tiles that the blocks of a cluster hand to each other, in three kernels: `cluster_ring(const u32*
    /// values, u32* out, u32 rounds)`, `cluster_multicast(const u32* tiles, u32* out, u32 count)` and
    /// `cluster_send`, which takes what the first does. Blocks of 64 threads, shared memory for two tiles of
    /// 64 words and four barriers.
    pub CLUSTER_EXCHANGE = "cluster_exchange";
    /// Atomics of every scope and order by every thread on the same 11 cells: `scoped_atomics(const u32*
    /// words, const u64* longs, const u64* initial, u64* block_cells, u64* cluster_cells, u64* device_cells,
    /// u64* system_cells)`. 176 bytes of shared memory.
    pub SCOPED_ATOMICS = "scoped_atomics";
    /// A mailbox that every block loads in bulk after another has written it: `proxy_relay(u32* mailbox, u32*
    /// turn)`. A cooperative launch of blocks of 128 threads, shared memory for the mailbox and a barrier.
    pub PROXY_RELAY = "proxy_relay";
    /// Tiles of all blocks combined by bulk reductions: `bulk_reduce(const u32* words, const u64* longs,
    /// Cells* cells)`. Blocks of 64 threads.
    pub BULK_REDUCE = "bulk_reduce";
    /// Barriers that are made and ended in one place: `barrier_life(const u32x4* from, const u32x4* other,
    /// u32x4* out, u32 turns)`. One block of 64 threads, shared memory for two tiles of 1 KiB and a barrier.
    pub BARRIER_LIFE = "barrier_life";
    /// Boxes of a tensor of one, two or three dimensions, and where they are put:
    /// `tensor_tiles_1(GW_TENSOR_MAP(from), GW_TENSOR_MAP(to), const i32* corners, u32* images, u32
    /// box_bytes)`, ... One block of 64 threads a box.
    pub TENSOR_TILES = "tensor_tiles";
}

/// Dynamic shared memory of [`FP8_TILE`]: three stages of 24 KiB and six barriers.
pub const FP8_TILE_SHARED_BYTES: u32 = 3 * (64 + 128) * 128 + 6 * 8;
