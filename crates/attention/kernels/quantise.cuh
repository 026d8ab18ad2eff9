#include "images.cuh"

// Tile images of e4m3 codes from f32, f16, bf16 or e4m3 matrices, in the form that attention.cuh reads.
//
// A block of 256 threads makes a tile of queries (64 rows) or keys (128), each with a scale of its own: the tile's largest
// number becomes `limit`. Or it makes transposed tiles of values, of which a group shares a scale.
// IN_FORMAT is the `Number` that comes in. e4m3 comes with scales, and its codes are only moved by
// powers of two, which changes none but those that become subnormal.
// GROUP is the number of tiles of values with one scale. Rows of queries and keys have COLUMNS numbers, in images followed by zeros
// up to DIM; those of values have VALUE_COLUMNS, followed by zeros up to VALUE_DIM.
// Where PACKED is 1, rows are those of sequences that follow each other, and tiles and groups end where these do: a list says which
// rows a tile has, and which tiles a group of values; first tiles of queries, then tiles of keys, then groups.

constexpr u32 THREADS = QUANTISE_THREADS;

// The scale that came with numbers of a block of 128 rows; NaN for one that is none.
GW_DEVICE f32 given_scale(const f32* scales, const Matrix& m, u32 block) {
    if (IN_NUMBER != Number::E4m3) return 1.0f;
    const u32 head = gw::block_z() * m.heads + gw::block_y();
    const f32 scale = gw::load_readonly(scales + (u64)head * m.scales_of_head + block * m.scales_of_block);
    return scale >= 0.0f && is_finite(scale) ? scale : gw::bits<f32>(NOT_A_NUMBER);
}

// The number of the head's tile `tile` among all.
GW_DEVICE u64 tile_number(const Matrix& m, u32 tile) {
    return ((u64)gw::block_z() * m.heads + gw::block_y()) * m.tiles + tile;
}

// The row's Hadamard transform, orthogonal, so that products of two rotated rows are as before. A row lies with neighbouring lanes.
// There are transforms of powers of two alone: a row is cut into pieces of the largest that divides DIM, each transformed by itself.
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
    for (u32 lanes = 1; lanes < (DIM & ~(DIM - 1)) / RUN; lanes *= 2) {
        const f32 sign = gw::lane() & lanes ? -1.0f : 1.0f;
        GW_UNROLL
        for (u32 i = 0; i < RUN; ++i) run[i] = gw::fma(sign, run[i], gw::shuffle_xor(run[i], lanes));
    }
    GW_UNROLL
    for (u32 i = 0; i < RUN; ++i) run[i] *= HeadDimension<DIM>::orthogonal;
}

GW_DEVICE const In* row_of(const In* x, const Matrix& m, u32 row) {
    return x + gw::block_z() * m.batch_stride + gw::block_y() * m.head_stride + row * m.row_stride;
}

// RUN numbers of a row of LENGTH from `column` on; WIDTH is its length in the image.
template <u32 LENGTH, u32 WIDTH>
GW_DEVICE void load_columns(const In* row, u32 column, bool is_there, f32 (&run)[RUN]) {
    if constexpr (LENGTH == ROW_LANES<WIDTH> * RUN) {
        load_neighbours<IN_NUMBER>(row + column, is_there, run);
    } else if constexpr (LENGTH % RUN == 0) {
        load_neighbours<IN_NUMBER>(row + column, is_there && column < LENGTH, run);
    } else {
        // Runs do not begin at multiples of 16 bytes.
        GW_UNROLL
        for (u32 i = 0; i < RUN; ++i) run[i] = is_there && column + i < LENGTH ? number_at<IN_NUMBER>(row + column + i) : 0.0f;
    }
}

// Rows of tile `tile`: from the first up to the last that a tile could have.
template <u32 ROWS>
GW_DEVICE Span rows_of_tile(const Span* spans, const Matrix& m, u32 tile) {
    if constexpr (PACKED) return spans[tile];
    return {tile * ROWS, m.rows};
}

// Rows of the block's head of a tile, rotated or not.
template <u32 LENGTH, u32 IMAGE_WIDTH, bool ROTATED>
struct HeadRows {
    static constexpr u32 THREADS = QUANTISE_THREADS, WIDTH = IMAGE_WIDTH;
    const In* x;
    const Matrix& m;
    Span rows;

    GW_DEVICE u32 thread() const { return gw::thread(); }
    GW_DEVICE bool has(u32 row) const { return rows.first + row < rows.end; }
    GW_DEVICE void load(u32 row, u32 column, f32 (&run)[RUN]) const {
        load_columns<LENGTH, WIDTH>(row_of(x, m, rows.first + row), column, has(row), run);
        if (ROTATED) rotate(run);
    }
    GW_DEVICE f32 number(u32 row, u32 column) const {
        if (LENGTH < WIDTH && column >= LENGTH) return 0.0f;
        return number_at<IN_NUMBER>(row_of(x, m, rows.first + row) + column);
    }
    GW_DEVICE f32 largest(f32 value, u32 reduction) const {
        static_assert(2 * THREADS / 32 * sizeof(u32) <= QUANTISE_WORDS_BYTES, "words of both reductions");
        return largest_over<THREADS>(value, gw::warp(), gw::shared<u32>(), reduction, [] { gw::sync_threads(); });
    }
};

template <u32 ROWS>
GW_DEVICE void quantise_tile(const In* x, const f32* given, u8* image, f32* scales, u8* marks, const Matrix& m,
                             const Span* spans, u32 tile) {
    const u64 number = tile_number(m, tile);
    const HeadRows<COLUMNS, DIM, ROTATE != 0> source = {x, m, rows_of_tile<ROWS>(spans, m, tile)};
    const Quantised quantised = quantise_rows<ROWS>(source, m.limit, image + number * (ROWS * DIM), marks + number * ROWS);
    // A tile past the last row has no scale that came with it.
    if (gw::thread() == 0) scales[number] = scale_of(quantised, quantised.factor > 0.0f ? given_scale(given, m, tile * ROWS / KEY_TILE) : 0.0f);
}

// Tiles of a group of values.
GW_DEVICE Span tiles_of_group(const Span* groups, const Matrix& m, u32 group) {
    if constexpr (PACKED) return groups[group];
    return {group * GROUP, gw::lesser(group * GROUP + GROUP, m.tiles)};
}

// A group of tiles of values. `spans` are those of the tiles of keys, then those of groups.
// Shared memory: the words of reductions, and at byte QUANTISE_WORDS_BYTES the tile's codes.
GW_DEVICE void quantise_values(const In* v, const f32* given, u8* image, f32* scales, u32* marks, const Matrix& m, const Span* spans,
                               u32 group) {
    constexpr u32 RUNS = VALUE_RUNS / THREADS;
    const Span tiles = tiles_of_group(spans + m.tiles, m, group);
    const u32 first = tiles.first, end = tiles.end;
    const auto rows_of = [&](u32 tile) {
        return HeadRows<VALUE_COLUMNS, VALUE_DIM, false>{v, m, rows_of_tile<KEY_TILE>(spans, m, tile)};
    };
    f32 runs[RUNS][RUN], largest = 0.0f;
    const auto load = [&](u32 tile) {
        GW_UNROLL
        for (u32 i = 0; i < RUNS; ++i) load_of(rows_of(tile), gw::thread() + i * THREADS, runs[i]);
    };
    // The largest number, and the group's largest scale, so that codes that came with it stay as they are.
    f32 common = 0.0f;
    for (u32 tile = first; tile < end; ++tile) {
        load(tile);
        const f32 scale = given_scale(given, m, tile);
        common = gw::maximum(common, scale);
        GW_UNROLL
        for (u32 i = 0; i < RUNS; ++i) largest = gw::maximum_or_nan(largest, largest_of(runs[i]) * scale);
    }
    if (!(common > 0.0f)) common = 1.0f;
    largest = rows_of(first).largest(largest, 0);
    const bool marked = !is_finite(largest);
    if (marked) {
        largest = 0.0f;
        GW_UNROLL_BY(1)
        for (u32 tile = first; tile < end; ++tile) {
            const f32 found = mark_values(rows_of(tile), marks + tile_number(m, tile) * VALUE_DIM);
            largest = gw::maximum(largest, found * given_scale(given, m, tile));
        }
        largest = rows_of(first).largest(largest, 1);
    }
    const f32 factor = factor_for(largest / common, LARGEST_CODE);
    u8* codes = gw::shared<u8>(QUANTISE_WORDS_BYTES);
    for (u32 tile = first; tile < end; ++tile) {
        const f32 moved = factor * (given_scale(given, m, tile) / common);
        if (marked) {
            encode_marked(rows_of(tile), codes, moved);
        } else {
            // A single tile is still there.
            if (GROUP > 1) load(tile);
            GW_UNROLL
            for (u32 i = 0; i < RUNS; ++i) {
                gw::store_128(codes + (gw::thread() + i * THREADS) * RUN, encode(runs[i], moved));
            }
        }
        gw::sync_threads();
        write_transposed<THREADS>(gw::shared<u32>(QUANTISE_WORDS_BYTES), image + tile_number(m, tile) * ((VALUE_DIM + SUM_ROWS) * KEY_TILE));
        if (GROUP > 1) gw::sync_threads();
    }
    if (gw::thread() == 0) {
        const u64 head = (u64)gw::block_z() * m.heads + gw::block_y();
        scales[head * (PACKED ? m.groups : (m.tiles + GROUP - 1) / GROUP) + group] = scale_of({factor, marked}, common);
    }
}

// A thread has 128 numbers of a tile with 256 columns: there is no room for two such blocks.
constexpr u32 RESIDENT = ROW_LANES<DIM> > 8 || ROW_LANES<VALUE_DIM> > 8 ? 1 : 2;

// Blocks in x: the tiles of queries, of keys, and the groups of tiles of values. Blocks in y: query heads, of which keys and
// values have fewer. The three `given` are scales of e4m3 inputs, and of other formats anything.
GW_KERNEL_BOUNDED(quantise, THREADS, RESIDENT)
(const In* q, const In* k, const In* v, const f32* q_given, const f32* k_given, const f32* v_given, u8* q_image, u8* k_image,
 u8* v_image, f32* q_scales, f32* k_scales, f32* v_scales, u8* q_marks, u8* k_marks, u32* v_marks, const Span* spans, Matrix queries,
 Matrix keys, Matrix values) {
    gw::await_stream();
    gw::admit_next();
    if (gw::block_x() < queries.tiles) {
        quantise_tile<QUERY_TILE>(q, q_given, q_image, q_scales, q_marks, queries, spans, gw::block_x());
    } else if (gw::block_y() < keys.heads) {
        const u32 tile = gw::block_x() - queries.tiles;
        const Span* of_keys = spans + queries.tiles;
        if (tile < keys.tiles) {
            quantise_tile<KEY_TILE>(k, k_given, k_image, k_scales, k_marks, keys, of_keys, tile);
        } else {
            quantise_values(v, v_given, v_image, v_scales, v_marks, values, of_keys, tile - keys.tiles);
        }
    }
}
