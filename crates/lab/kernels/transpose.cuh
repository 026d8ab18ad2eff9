#include "gw/gw.cuh"

// out[c][r] <- in[r][c]. Blocks of TILE / 4 x BLOCK_ROWS threads move one TILE x TILE tile through shared memory, so that
// both sides are read and written along rows, four neighbours a thread. The tile's rows are one element longer, so that a
// column of it lies in different banks.
#ifndef TILE
#define TILE 64
#endif
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 16
#endif
#define PITCH (TILE + 1)

// Four neighbours of a row of `columns` elements, from `column` on; those past its end are zeros.
GW_DEVICE void load_run(const f32* line, u32 column, u32 columns, bool aligned, u32 (&run)[4]) {
    if (aligned && column < columns) {
        const u32x4 four = gw::load_128(line + column);
        run[0] = four.x;
        run[1] = four.y;
        run[2] = four.z;
        run[3] = four.w;
    } else {
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) run[i] = column + i < columns ? gw::bits<u32>(line[column + i]) : 0;
    }
}

GW_DEVICE void store_run(f32* line, u32 column, u32 columns, bool aligned, const u32 (&run)[4]) {
    if (aligned && column < columns) {
        gw::store_128(line + column, {run[0], run[1], run[2], run[3]});
    } else {
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) {
            if (column + i < columns) line[column + i] = gw::bits<f32>(run[i]);
        }
    }
}

GW_KERNEL_BOUNDED(transpose, TILE / 4 * BLOCK_ROWS, 1)(const f32* in, f32* out, u32 rows, u32 columns) {
    u32* tile = gw::shared<u32>();
    const u32 x = 4 * gw::thread_x();
    const u32 first_row = gw::block_y() * TILE, first_column = gw::block_x() * TILE;
    // Rows of both matrices then start at multiples of 16 bytes, and a run is inside or outside as a whole.
    const bool aligned = rows % 4 == 0 && columns % 4 == 0;
    GW_UNROLL
    for (u32 pass = 0; pass < TILE / BLOCK_ROWS; ++pass) {
        const u32 y = gw::thread_y() + pass * BLOCK_ROWS;
        u32 run[4] = {};
        if (first_row + y < rows) {
            load_run(in + (u64)(first_row + y) * columns, first_column + x, columns, aligned, run);
        }
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) tile[y * PITCH + x + i] = run[i];
    }
    gw::sync_threads();
    GW_UNROLL
    for (u32 pass = 0; pass < TILE / BLOCK_ROWS; ++pass) {
        const u32 y = gw::thread_y() + pass * BLOCK_ROWS;
        u32 run[4];
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) run[i] = tile[(x + i) * PITCH + y];
        if (first_column + y < columns) {
            store_run(out + (u64)(first_column + y) * rows, first_row + x, rows, aligned, run);
        }
    }
}
