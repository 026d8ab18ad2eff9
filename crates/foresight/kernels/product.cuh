#include "gw/gw.cuh"
#include "shared.cuh"

// C <- A B, or C <- C + A B, for A (m x k) and B (k x n) of bf16 and C of f32, many of them in one launch. Sums are of f32 and
// run over k in order: nothing is split, so that the bits are the same under every schedule.
//
// LEFT_TURNED: A lies as its transpose, k rows of m numbers. RIGHT_TURNED: B does, n rows of k. Rows are a stride apart, and
// matrix number z has the places of outer z / inner and inner z % inner. WIDE: all of these are multiples of eight numbers.
//
// PART leaves out what causal attention has no use for: tiles of C above the diagonal (Below), which are not written; sums over
// columns of A beyond the diagonal (Rows) or over rows of its transpose before it (Columns), where A is zero.
//
// A block of four warps has a tile of 64 x 64, a warp a quarter of it, in steps of 32 over k. What the next step multiplies is
// on its way in registers meanwhile.

constexpr u32 TILE = PRODUCT_TILE, DEPTH = 32, GROUP = 8, HELD = 2;
// Tiles as they lie in memory.
constexpr u32 LEFT_COLUMNS = LEFT_TURNED ? TILE : DEPTH, RIGHT_COLUMNS = RIGHT_TURNED ? DEPTH : TILE;
// From one row to the next in shared memory: 16 bytes more than a row has, so that eight rows fall on different banks.
constexpr u32 LEFT_STRIDE = LEFT_COLUMNS + GROUP, RIGHT_STRIDE = RIGHT_COLUMNS + GROUP;
constexpr u32 LEFT_NUMBERS = TILE * DEPTH / LEFT_COLUMNS * LEFT_STRIDE;

// A matrix as it lies in memory.
struct Stored {
    const u16* numbers;
    u32 row, rows, columns;
};

// This thread's groups of a tile; zeros beyond the matrix.
template <u32 COLUMNS>
GW_DEVICE void fetch(const Stored& matrix, u32 top, u32 left, u32x4 (&held)[HELD]) {
    GW_UNROLL
    for (u32 i = 0; i < HELD; ++i) {
        const u32 group = gw::thread() + i * PRODUCT_THREADS;
        const u32 row = top + group / (COLUMNS / GROUP), column = left + group % (COLUMNS / GROUP) * GROUP;
        held[i] = {0, 0, 0, 0};
        if (row >= matrix.rows || column >= matrix.columns) continue;
        const u16* at = matrix.numbers + (u64)row * matrix.row + column;
        if (WIDE) {
            held[i] = gw::load_128(at);
        } else {
            u32 pairs[GROUP / 2];
            GW_UNROLL
            for (u32 pair = 0; pair < GROUP / 2; ++pair) {
                const u32 low = column + 2 * pair < matrix.columns ? at[2 * pair] : 0u;
                const u32 high = column + 2 * pair + 1 < matrix.columns ? at[2 * pair + 1] : 0u;
                pairs[pair] = low | high << 16;
            }
            held[i] = {pairs[0], pairs[1], pairs[2], pairs[3]};
        }
    }
}

template <u32 COLUMNS>
GW_DEVICE void keep(u16* tile, const u32x4 (&held)[HELD]) {
    GW_UNROLL
    for (u32 i = 0; i < HELD; ++i) {
        const u32 group = gw::thread() + i * PRODUCT_THREADS;
        const u32 row = group / (COLUMNS / GROUP), column = group % (COLUMNS / GROUP) * GROUP;
        gw::store_128(tile + row * (COLUMNS + GROUP) + column, held[i]);
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

GW_KERNEL_BOUNDED(product, PRODUCT_THREADS, 4)(const u16* a, const u16* b, f32* c, ProductShape shape) {
    u16* left_tile = gw::shared<u16>();
    u16* right_tile = left_tile + LEFT_NUMBERS;
    const u32 top = gw::block_y() * TILE, left = gw::block_x() * TILE;
    if (shape.part == (u32)ProductPart::Below && left > top) return;
    const u32 outer = gw::block_z() / shape.inner, inner = gw::block_z() % shape.inner;
    a += outer * shape.a_outer + inner * shape.a_inner;
    b += outer * shape.b_outer + inner * shape.b_inner;
    c += outer * shape.c_outer + inner * shape.c_inner;
    const Stored a_stored = {a, shape.a_row, LEFT_TURNED ? shape.k : shape.m, LEFT_TURNED ? shape.m : shape.k};
    const Stored b_stored = {b, shape.b_row, RIGHT_TURNED ? shape.n : shape.k, RIGHT_TURNED ? shape.k : shape.n};
    const u32 begin = shape.part == (u32)ProductPart::Columns ? top : 0;
    const u32 end = shape.part == (u32)ProductPart::Rows && top + TILE < shape.k ? top + TILE : shape.k;

    const u32 own_row = gw::warp() / 2 * (TILE / 2), own_column = gw::warp() % 2 * (TILE / 2);
    // Of no use to matrices that end before it: the whole warp agrees.
    const bool has_work = top + own_row < shape.m && left + own_column < shape.n;
    f32 sums[2][4][4];
    GW_UNROLL
    for (u32 i = 0; i < 32; ++i) sums[i / 16][i / 4 % 4][i % 4] = 0.0f;
    u32x4 next_left[HELD], next_right[HELD];
    auto fetch_both = [&](u32 k) {
        fetch<LEFT_COLUMNS>(a_stored, LEFT_TURNED ? k : top, LEFT_TURNED ? top : k, next_left);
        fetch<RIGHT_COLUMNS>(b_stored, RIGHT_TURNED ? left : k, RIGHT_TURNED ? k : left, next_right);
    };
    fetch_both(begin);
    for (u32 k = begin; k < end; k += DEPTH) {
        keep<LEFT_COLUMNS>(left_tile, next_left);
        keep<RIGHT_COLUMNS>(right_tile, next_right);
        gw::sync_threads();
        if (k + DEPTH < end) fetch_both(k + DEPTH);
        if (has_work) {
            GW_UNROLL
            for (u32 depth = 0; depth < DEPTH; depth += 16) {
                u32 of_left[2][4], of_right[2][4];
                GW_UNROLL
                for (u32 i = 0; i < 2; ++i) {
                    load_left(of_left[i], left_tile, own_row + 16 * i, depth);
                    load_right(of_right[i], right_tile, own_column + 16 * i, depth);
                }
                GW_UNROLL
                for (u32 i = 0; i < 8; ++i) {
                    const u32 row = i / 4, column = i % 4;
                    const u32 right[2] = {of_right[column / 2][column % 2 * 2], of_right[column / 2][column % 2 * 2 + 1]};
                    gw::mma(gw::BF16{}, sums[row][column], of_left[row], right, sums[row][column]);
                }
            }
        }
        // Before the tiles are written over.
        gw::sync_threads();
    }
    GW_UNROLL
    for (u32 i = 0; i < 32; ++i) {
        const u32 place = i % 4;
        const u32 row = top + own_row + i / 16 * 16 + gw::lane() / 4 + place / 2 * 8;
        const u32 column = left + own_column + i / 4 % 4 * 8 + gw::lane() % 4 * 2 + place % 2;
        if (row >= shape.m || column >= shape.n) continue;
        f32* to = c + (u64)row * shape.c_row + column;
        const f32 sum = sums[i / 16][i / 4 % 4][place];
        *to = shape.accumulate ? *to + sum : sum;
    }
}
