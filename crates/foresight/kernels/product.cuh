#include "gw/gw.cuh"
#include "shared.cuh"

// C <- A B, or C <- C + A B, for A (m x k) and B (k x n) of bf16 and C of f32, whole matrices row by row. Sums are of f32 and run
// over k in order: nothing is split, so that the bits are the same under every schedule, and for both sizes of tiles.
//
// LEFT_TURNED: A lies as its transpose, k rows of m numbers. RIGHT_TURNED: B does, n rows of k. WIDE: rows of both are multiples of
// eight numbers, and begin at such.
//
// A block has a tile of TILE x TILE, TILE 64 or 128, in steps of 32 over k; two warps share its rows and TILE / 32 its columns. Three
// steps are on their way meanwhile.
//
// A warp with 64 x 32 of a tile of 128 reads 24 cycles of shared memory for 16 of the tensor cores, one with 32 x 32 of 64 the same
// for 8.

constexpr u32 DEPTH = 32, GROUP = 8, STAGES = PRODUCT_STAGES, THREADS = 2 * TILE;
// What a warp has of a tile, in fragments of 16 rows and of 8 columns.
constexpr u32 ROWS = TILE / 2 / 16, COLUMNS = 4;
// Tiles as they lie in memory.
constexpr u32 LEFT_COLUMNS = LEFT_TURNED ? TILE : DEPTH, RIGHT_COLUMNS = RIGHT_TURNED ? DEPTH : TILE;
// From one row to the next in shared memory: 16 bytes more than a row has, so that eight rows fall on different banks.
constexpr u32 LEFT_STRIDE = LEFT_COLUMNS + GROUP, RIGHT_STRIDE = RIGHT_COLUMNS + GROUP;
constexpr u32 LEFT_NUMBERS = TILE * DEPTH / LEFT_COLUMNS * LEFT_STRIDE, RIGHT_NUMBERS = TILE * DEPTH / RIGHT_COLUMNS * RIGHT_STRIDE;

// A matrix as it lies in memory.
struct Stored {
    const u16* numbers;
    u32 rows, columns;
};

// Queues the copy of a tile; zeros beyond the matrix.
template <u32 WIDTH>
GW_DEVICE void fetch(u16* tile, const Stored& matrix, u32 top, u32 left) {
    GW_UNROLL
    for (u32 i = 0; i < TILE * DEPTH / GROUP / THREADS; ++i) {
        const u32 group = gw::thread() + i * THREADS, line = group / (WIDTH / GROUP), place = group % (WIDTH / GROUP) * GROUP;
        const u32 row = top + line, column = left + place;
        u16* to = tile + line * (WIDTH + GROUP) + place;
        const u16* from = matrix.numbers + (u64)row * matrix.columns + column;
        const bool is_there = row < matrix.rows && column < matrix.columns;
        if constexpr (WIDE) {
            gw::copy_async<16>(to, is_there ? from : matrix.numbers, is_there ? 16 : 0);
        } else {
            GW_UNROLL
            for (u32 j = 0; j < GROUP; ++j) to[j] = is_there && column + j < matrix.columns ? from[j] : (u16)0;
        }
    }
}

// Four 8 x 8 tiles of A: rows, rows + 8, both again eight further along k. Fragments have pairs along k.
GW_DEVICE void load_left(u32 (&fragment)[4], const u16* tile, u32 row, u32 k) {
    const u32 part = gw::lane() / 8, line = gw::lane() % 8;
    const u32 rows = row + part % 2 * 8, depth = k + part / 2 * 8;
    if constexpr (LEFT_TURNED)
        gw::load_matrix<4, gw::TRANSPOSED>(fragment, tile + (depth + line) * LEFT_STRIDE + rows);
    else
        gw::load_matrix<4>(fragment, tile + (rows + line) * LEFT_STRIDE + depth);
}

// Four 8 x 8 tiles of B: k and k + 8 of eight columns, then of the next eight.
GW_DEVICE void load_right(u32 (&fragment)[4], const u16* tile, u32 column, u32 k) {
    const u32 part = gw::lane() / 8, line = gw::lane() % 8;
    const u32 columns = column + part / 2 * 8, depth = k + part % 2 * 8;
    if constexpr (RIGHT_TURNED)
        gw::load_matrix<4>(fragment, tile + (columns + line) * RIGHT_STRIDE + depth);
    else
        gw::load_matrix<4, gw::TRANSPOSED>(fragment, tile + (depth + line) * RIGHT_STRIDE + columns);
}

GW_KERNEL_BOUNDED(product, THREADS, 2)(const u16* a, const u16* b, f32* c, ProductShape shape) {
    const u32 top = gw::block_y() * TILE, left = gw::block_x() * TILE;
    const Stored a_stored = {a, LEFT_TURNED ? shape.k : shape.m, LEFT_TURNED ? shape.m : shape.k};
    const Stored b_stored = {b, RIGHT_TURNED ? shape.n : shape.k, RIGHT_TURNED ? shape.k : shape.n};
    // Two warps along the rows, the others along the columns.
    const u32 own_row = gw::warp() % 2 * (TILE / 2), own_column = gw::warp() / 2 * 32;
    // Of no use to matrices that end before it: the whole warp agrees.
    const bool has_work = top + own_row < shape.m && left + own_column < shape.n;
    const u32 steps = (shape.k + DEPTH - 1) / DEPTH;
    const auto left_tile = [](u32 step) { return gw::shared<u16>() + step % STAGES * (LEFT_NUMBERS + RIGHT_NUMBERS); };
    const auto right_tile = [&](u32 step) { return left_tile(step) + LEFT_NUMBERS; };
    const auto fetch_step = [&](u32 step) {
        const u32 k = step * DEPTH;
        if (step < steps) {
            fetch<LEFT_COLUMNS>(left_tile(step), a_stored, LEFT_TURNED ? k : top, LEFT_TURNED ? top : k);
            fetch<RIGHT_COLUMNS>(right_tile(step), b_stored, RIGHT_TURNED ? left : k, RIGHT_TURNED ? k : left);
        }
        // Also of nothing: groups are counted.
        gw::copy_async_commit();
    };
    f32 sums[ROWS][COLUMNS][4];
    GW_UNROLL
    for (u32 i = 0; i < ROWS * COLUMNS * 4; ++i) sums[i / 4 / COLUMNS][i / 4 % COLUMNS][i % 4] = 0.0f;
    for (u32 step = 0; step < STAGES - 1; ++step) fetch_step(step);
    for (u32 step = 0; step < steps; ++step) {
        gw::copy_async_wait<STAGES - 2>();
        // What all have fetched is there, and all are done with the tiles of the step before, which are written over next.
        gw::sync_threads();
        fetch_step(step + STAGES - 1);
        if (!has_work) continue;
        GW_UNROLL
        for (u32 depth = 0; depth < DEPTH; depth += 16) {
            u32 of_left[ROWS][4], of_right[COLUMNS / 2][4];
            GW_UNROLL
            for (u32 i = 0; i < ROWS; ++i) load_left(of_left[i], left_tile(step), own_row + 16 * i, depth);
            GW_UNROLL
            for (u32 i = 0; i < COLUMNS / 2; ++i) load_right(of_right[i], right_tile(step), own_column + 16 * i, depth);
            GW_UNROLL
            for (u32 i = 0; i < ROWS * COLUMNS; ++i) {
                const u32 row = i / COLUMNS, column = i % COLUMNS;
                const u32 right[2] = {of_right[column / 2][column % 2 * 2], of_right[column / 2][column % 2 * 2 + 1]};
                gw::mma(gw::BF16{}, sums[row][column], of_left[row], right, sums[row][column]);
            }
        }
    }
    if (!has_work) return;
    GW_UNROLL
    for (u32 i = 0; i < ROWS * COLUMNS * 4; ++i) {
        const u32 place = i % 4;
        const u32 row = top + own_row + i / 4 / COLUMNS * 16 + gw::lane() / 4 + place / 2 * 8;
        const u32 column = left + own_column + i / 4 % COLUMNS * 8 + gw::lane() % 4 * 2 + place % 2;
        if (row >= shape.m || column >= shape.n) continue;
        f32* to = c + (u64)row * shape.n + column;
        const f32 sum = sums[i / 4 / COLUMNS][i / 4 % COLUMNS][place];
        *to = shape.accumulate ? *to + sum : sum;
    }
}
