#include "gw/gw.cuh"

// out[c][r] <- in[r][c]. Blocks of TILE x BLOCK_ROWS threads move one TILE x TILE tile through shared memory, so that
// both sides are read and written along rows. The tile's rows are one element longer, so that a column of it lies in
// different banks.
#ifndef TILE
#define TILE 32
#endif
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 8
#endif

GW_KERNEL(transpose)(const f32* in, f32* out, u32 rows, u32 columns) {
    f32* tile = gw::shared<f32>();
    const u32 x = gw::thread_x();
    const u32 column = gw::block_x() * TILE + x;
    for (u32 y = gw::thread_y(); y < TILE; y += BLOCK_ROWS) {
        const u32 row = gw::block_y() * TILE + y;
        if (row < rows && column < columns) tile[y * (TILE + 1) + x] = in[(u64)row * columns + column];
    }
    gw::sync_threads();
    const u32 out_column = gw::block_y() * TILE + x;
    for (u32 y = gw::thread_y(); y < TILE; y += BLOCK_ROWS) {
        const u32 out_row = gw::block_x() * TILE + y;
        if (out_row < columns && out_column < rows) out[(u64)out_row * rows + out_column] = tile[x * (TILE + 1) + y];
    }
}
