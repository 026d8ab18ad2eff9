// Products of matrices modulo 2^64, word by word.
//
// 2 rows inner columns operations a product, of which one multiplication of 64 bits is three of 32; the factors are read
// once for every tile of the other's side. Bound by integer multiplication: about 3.7 T products a second on an H200.

#include "gw/gw.cuh"
#include "shared.cuh"

// sums[b][r][c] <- ((sums[b][r][c], or 0) + Σ_k left[b][r][k] right[b][k][c]) & mask; `transposed` if the right factor lies as
// columns x inner. Tiles of GEMM_TILE x GEMM_TILE a block of threads, which has 16 x 16, 4 x 4 sums each; rows in y, batch in z.
GW_KERNEL_BOUNDED(multiply_words, 256, 1)(
    const u64* left, const u64* right, u32 rows, u32 inner, u32 columns, u32 transposed, u64 mask, u32 accumulate, u64* sums) {
    // Both tiles lie inner index by inner index.
    u64* const left_tile = gw::shared<u64>();
    u64* const right_tile = left_tile + GEMM_DEPTH * (GEMM_TILE + 1);
    const u32 x = gw::thread_x() % 16, y = gw::thread_x() / 16;
    const u32 first_row = gw::block_y() * GEMM_TILE, first_column = gw::block_x() * GEMM_TILE;
    left += (u64)gw::block_z() * rows * inner;
    right += (u64)gw::block_z() * inner * columns;
    sums += (u64)gw::block_z() * rows * columns;
    u64 sum[4][4] = {};
    for (u32 start = 0; start < inner; start += GEMM_DEPTH) {
        for (u32 i = gw::thread_x(); i < GEMM_DEPTH * GEMM_TILE; i += 256) {
            const u32 k = i % GEMM_DEPTH, r = i / GEMM_DEPTH;
            const bool inside = first_row + r < rows && start + k < inner;
            left_tile[k * (GEMM_TILE + 1) + r] = inside ? left[(u64)(first_row + r) * inner + start + k] : 0;
        }
        for (u32 i = gw::thread_x(); i < GEMM_DEPTH * GEMM_TILE; i += 256) {
            const u32 k = transposed ? i % GEMM_DEPTH : i / GEMM_TILE, c = transposed ? i / GEMM_DEPTH : i % GEMM_TILE;
            const bool inside = first_column + c < columns && start + k < inner;
            const u64 place = transposed ? (u64)(first_column + c) * inner + start + k
                                         : (u64)(start + k) * columns + first_column + c;
            right_tile[k * (GEMM_TILE + 1) + c] = inside ? right[place] : 0;
        }
        gw::sync_threads();
        const u32 depth = gw::lesser(GEMM_DEPTH, inner - start);
        for (u32 k = 0; k < depth; ++k) {
            u64 a[4], b[4];
            GW_UNROLL
            for (u32 i = 0; i < 4; ++i) {
                a[i] = left_tile[k * (GEMM_TILE + 1) + y + 16 * i];
                b[i] = right_tile[k * (GEMM_TILE + 1) + x + 16 * i];
            }
            GW_UNROLL
            for (u32 i = 0; i < 4; ++i) {
                GW_UNROLL
                for (u32 j = 0; j < 4; ++j) sum[i][j] += a[i] * b[j];
            }
        }
        gw::sync_threads();
    }
    GW_UNROLL
    for (u32 i = 0; i < 4; ++i) {
        GW_UNROLL
        for (u32 j = 0; j < 4; ++j) {
            const u32 row = first_row + y + 16 * i, column = first_column + x + 16 * j;
            if (row >= rows || column >= columns) continue;
            u64* const to = sums + (u64)row * columns + column;
            *to = ((accumulate ? *to : 0) + sum[i][j]) & mask;
        }
    }
}
