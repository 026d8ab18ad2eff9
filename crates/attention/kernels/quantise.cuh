#include "gw/gw.cuh"

// Tile images of e4m3 codes from f32, f16 or bf16 matrices, in the form that attention.cuh reads.
//
// One block a tile, 256 threads, each with runs of 16 neighbours of a row: what becomes one 16-byte chunk of an image.
// `quantise` makes the tiles of queries (64 rows) and keys (128), each with a scale of its own: the tile's largest number
// becomes `limit`; and it finds the largest number of every tile of values. `quantise_values` then makes the transposed
// tiles of values, with one scale a head.
// IN is the element (f32, else u16), IN_FORMAT 0, 1, 2 for f32, f16, bf16.

#define THREADS 256
#define QUERIES 64
#define KEYS 128
#define RUN 16
#define SUM_ROWS 8
// e4m3: 1, and the largest value.
#define ONE 0x38u
#define LARGEST 448.0f
#ifndef ROTATE
#define ROTATE 0
#endif

// A matrix of heads; strides are in elements.
struct Matrix {
    u64 batch_stride, head_stride, row_stride;
    u32 rows, heads, tiles;
    f32 limit;
};

// The number whose bits are the low ones of `word`.
GW_DEVICE f32 widen(u32 word) {
#if IN_FORMAT == 0
    return gw::bits<f32>(word);
#elif IN_FORMAT == 1
    return gw::f16_to_f32((u16)word);
#else
    return gw::bf16_to_f32((u16)word);
#endif
}

GW_DEVICE const IN* row_of(const IN* x, const Matrix& m, u32 row) {
    return x + gw::block_z() * m.batch_stride + gw::block_y() * m.head_stride + row * m.row_stride;
}

// The number of the head's tile `tile` among all.
GW_DEVICE u64 tile_number(const Matrix& m, u32 tile) {
    return ((u64)gw::block_z() * m.heads + gw::block_y()) * m.tiles + tile;
}

// 16 elements, zeros past the last row. Rows start at multiples of 16 bytes.
GW_DEVICE void load_run(const IN* x, const Matrix& m, u32 row, u32 column, f32 (&run)[RUN]) {
    constexpr u32 PER_LOAD = 16 / sizeof(IN);
    const IN* from = row_of(x, m, row) + column;
    GW_UNROLL
    for (u32 i = 0; i < RUN; i += PER_LOAD) {
        const u32x4 load = row < m.rows ? gw::load_128(from + i) : u32x4{0, 0, 0, 0};
        const u32 words[4] = {load.x, load.y, load.z, load.w};
        GW_UNROLL
        for (u32 j = 0; j < PER_LOAD; ++j) run[i + j] = widen(words[4 * j / PER_LOAD] >> 16 * (j % (PER_LOAD / 4)));
    }
}

// The row's Hadamard transform, orthogonal, so that products of two rotated rows are as before. A row lies with DIM / 16
// neighbouring lanes.
GW_DEVICE void rotate(f32 (&run)[RUN]) {
    GW_UNROLL
    for (u32 step = 1; step < RUN; step *= 2) {
        GW_UNROLL
        for (u32 i = 0; i < RUN; ++i) {
            if ((i & step) == 0) {
                const f32 a = run[i], b = run[i + step];
                run[i] = a + b;
                run[i + step] = a - b;
            }
        }
    }
    GW_UNROLL
    for (u32 lanes = 1; lanes < DIM / RUN; lanes *= 2) {
        const f32 sign = gw::lane() & lanes ? -1.0f : 1.0f;
        GW_UNROLL
        for (u32 i = 0; i < RUN; ++i) run[i] = gw::fma(sign, run[i], gw::shuffle_xor(run[i], lanes));
    }
    GW_UNROLL
    for (u32 i = 0; i < RUN; ++i) run[i] *= DIM == 64 ? 0.125f : 0.08838834765f;
}

GW_DEVICE f32 largest_of(const f32 (&run)[RUN]) {
    f32 largest = 0.0f;
    GW_UNROLL
    for (u32 i = 0; i < RUN; ++i) largest = gw::maximum(largest, gw::absolute(run[i]));
    return largest;
}

// The largest over the block, for all its threads.
GW_DEVICE f32 block_largest(f32 value) {
    u32* warps = gw::shared<u32>();
    // Numbers that are not negative are ordered as their bits are.
    const u32 largest = gw::reduce_max(gw::bits<u32>(value));
    if (gw::lane() == 0) warps[gw::warp()] = largest;
    gw::sync_threads();
    return gw::bits<f32>(gw::reduce_max(warps[gw::lane() % (THREADS / 32)]));
}

GW_DEVICE u32x4 encode(const f32 (&run)[RUN], f32 factor) {
    u32 words[4];
    GW_UNROLL
    for (u32 i = 0; i < 4; ++i) {
        words[i] = gw::f32_to_e4m3x4(run[4 * i] * factor, run[4 * i + 1] * factor, run[4 * i + 2] * factor,
                                     run[4 * i + 3] * factor);
    }
    return {words[0], words[1], words[2], words[3]};
}

GW_DEVICE u32 swizzled(u32 offset, u32 bits) { return offset ^ (offset >> 7 & bits) << 4; }

template <u32 ROWS>
GW_DEVICE void quantise_tile(const IN* x, u8* image, f32* scales, const Matrix& m, u32 tile) {
    constexpr u32 RUNS = ROWS * DIM / RUN / THREADS;
    const u64 number = tile_number(m, tile);
    f32 runs[RUNS][RUN], largest = 0.0f;
    GW_UNROLL
    for (u32 i = 0; i < RUNS; ++i) {
        const u32 run = gw::thread() + i * THREADS;
        load_run(x, m, tile * ROWS + run / (DIM / RUN), run % (DIM / RUN) * RUN, runs[i]);
        if (ROTATE) rotate(runs[i]);
        largest = gw::maximum(largest, largest_of(runs[i]));
    }
    largest = block_largest(largest);
    const f32 factor = largest > 0.0f ? m.limit / largest : 0.0f;
    GW_UNROLL
    for (u32 i = 0; i < RUNS; ++i) {
        const u32 run = gw::thread() + i * THREADS;
        gw::store_128(image + number * (ROWS * DIM) + swizzled(run * RUN, DIM == 64 ? 3 : 7), encode(runs[i], factor));
    }
    if (gw::thread() == 0) scales[number] = largest / m.limit;
}

GW_DEVICE void largest_of_tile(const IN* x, f32* largest, const Matrix& m, u32 tile) {
    f32 found = 0.0f;
    GW_UNROLL
    for (u32 i = 0; i < KEYS * DIM / RUN / THREADS; ++i) {
        const u32 run = gw::thread() + i * THREADS;
        f32 values[RUN];
        load_run(x, m, tile * KEYS + run / (DIM / RUN), run % (DIM / RUN) * RUN, values);
        found = gw::maximum(found, largest_of(values));
    }
    found = block_largest(found);
    if (gw::thread() == 0) largest[tile_number(m, tile)] = found;
}

// Blocks in x: the tiles of queries, of keys, of values. Blocks in y: query heads, of which keys and values have fewer.
GW_KERNEL_BOUNDED(quantise, THREADS, 2)
(const IN* q, const IN* k, const IN* v, u8* q_image, u8* k_image, f32* q_scales, f32* k_scales, f32* v_largest, Matrix queries,
 Matrix keys) {
    if (gw::block_x() < queries.tiles) {
        quantise_tile<QUERIES>(q, q_image, q_scales, queries, gw::block_x());
    } else if (gw::block_y() < keys.heads) {
        const u32 tile = gw::block_x() - queries.tiles;
        if (tile < keys.tiles) quantise_tile<KEYS>(k, k_image, k_scales, keys, tile);
        else largest_of_tile(v, v_largest, keys, tile - keys.tiles);
    }
}

// The key whose byte stands at `place` of a tile's row: the inverse of the order of the keys in each 16.
GW_DEVICE u32 key_at(u32 place) {
    const u32 n = place % 16;
    return place - n + 2 * (n / 4) + 8 * (n / 2 % 2) + n % 2;
}

// Shared memory: a word a warp, and at byte 64 the tile's codes.
GW_KERNEL_BOUNDED(quantise_values, THREADS, 2)(const IN* v, const f32* largest, u8* image, f32* scales, Matrix m) {
    f32 top = 0.0f;
    for (u32 tile = gw::thread(); tile < m.tiles; tile += THREADS) {
        top = gw::maximum(top, largest[tile_number(m, tile)]);
    }
    top = block_largest(top);
    const f32 factor = top > 0.0f ? LARGEST / top : 0.0f;
    u8* codes = gw::shared<u8>(64);
    GW_UNROLL
    for (u32 i = 0; i < KEYS * DIM / RUN / THREADS; ++i) {
        const u32 run = gw::thread() + i * THREADS;
        f32 values[RUN];
        load_run(v, m, gw::block_x() * KEYS + run / (DIM / RUN), run % (DIM / RUN) * RUN, values);
        gw::store_128(codes + run * RUN, encode(values, factor));
    }
    gw::sync_threads();
    u8* tile = image + tile_number(m, gw::block_x()) * ((DIM + SUM_ROWS) * KEYS);
    for (u32 chunk = gw::thread(); chunk < (DIM + SUM_ROWS) * KEYS / 16; chunk += THREADS) {
        const u32 row = chunk / (KEYS / 16), place = chunk % (KEYS / 16) * 16;
        u32 words[4];
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) {
            words[i] = row == DIM ? ONE * 0x01010101u : 0;
            if (row < DIM) {
                GW_UNROLL
                for (u32 byte = 0; byte < 4; ++byte) {
                    words[i] |= (u32)codes[key_at(place + 4 * i + byte) * DIM + row] << (8 * byte);
                }
            }
        }
        gw::store_128(tile + swizzled(chunk * 16, 7), {words[0], words[1], words[2], words[3]});
    }
    if (gw::block_x() == 0 && gw::thread() == 0) scales[gw::block_z() * m.heads + gw::block_y()] = top / LARGEST;
}
