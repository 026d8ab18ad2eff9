#include "marks.cuh"
#include "numbers.cuh"

// Tile images of e4m3 codes from f32, f16, bf16 or e4m3 matrices, in the form that attention.cuh reads.
//
// A block of 256 threads makes a tile of queries (64 rows) or keys (128), each with a scale of its own: the tile's largest
// number becomes `limit`. Or it makes transposed tiles of values, of which a group shares a scale. Threads read runs of 16
// neighbours of a row: what becomes one 16-byte chunk of an image.
// IN_FORMAT is the `Number` that comes in. e4m3 comes with scales, and its codes are only moved by
// powers of two, which changes none but those that become subnormal.
// GROUP is the number of tiles of values with one scale.
// What is not finite is marked, as marks.cuh says.

constexpr Number IN_NUMBER = (Number)IN_FORMAT;
typedef Bits<IN_NUMBER> In;
constexpr u32 THREADS = QUANTISE_THREADS;
constexpr u32 RUN = 16;
// Runs of a tile of values.
constexpr u32 VALUE_RUNS = KEY_TILE * DIM / RUN;
// e4m3: 1.
constexpr u32 ONE = 0x38;
// What is multiplied with must be finite, however small numbers are.
constexpr f32 LARGEST_FACTOR = 1e37f;

// What numbers are multiplied with so that `largest` becomes `limit`, or nearly.
GW_DEVICE f32 factor_for(f32 largest, f32 limit) {
    if (!(largest > 0.0f)) return 0.0f;
    const f32 factor = gw::minimum(limit / largest, LARGEST_FACTOR);
    return IN_NUMBER == Number::E4m3 ? gw::bits<f32>(gw::bits<u32>(factor) & 0x7F800000u) : factor;
}

// The scale that came with numbers of a block of 128 rows; NaN for one that is none.
GW_DEVICE f32 given_scale(const f32* scales, const Matrix& m, u32 block) {
    if (IN_NUMBER != Number::E4m3) return 1.0f;
    const u32 head = gw::block_z() * m.heads + gw::block_y();
    const f32 scale = gw::load_readonly(scales + (u64)head * m.scales_of_head + block * m.scales_of_block);
    return scale >= 0.0f && is_finite(scale) ? scale : gw::bits<f32>(NOT_A_NUMBER);
}

GW_DEVICE const In* row_of(const In* x, const Matrix& m, u32 row) {
    return x + gw::block_z() * m.batch_stride + gw::block_y() * m.head_stride + row * m.row_stride;
}

// The number of the head's tile `tile` among all.
GW_DEVICE u64 tile_number(const Matrix& m, u32 tile) {
    return ((u64)gw::block_z() * m.heads + gw::block_y()) * m.tiles + tile;
}

// 16 elements, zeros past the last row. Rows start at multiples of 16 bytes.
GW_DEVICE void load_run(const In* x, const Matrix& m, u32 row, u32 column, f32 (&run)[RUN]) {
    constexpr u32 PER_LOAD = 16 / sizeof(In);
    const In* from = row_of(x, m, row) + column;
    GW_UNROLL
    for (u32 i = 0; i < RUN; i += PER_LOAD) {
        const u32x4 load = row < m.rows ? gw::load_128(from + i) : u32x4{0, 0, 0, 0};
        const u32 words[4] = {load.x, load.y, load.z, load.w};
        GW_UNROLL
        for (u32 j = 0; j < PER_LOAD; ++j) run[i + j] = widen<IN_NUMBER>(words[4 * j / PER_LOAD] >> 8 * sizeof(In) * (j % (PER_LOAD / 4)));
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
    for (u32 i = 0; i < RUN; ++i) run[i] *= HeadDimension<DIM>::orthogonal;
}

// The largest magnitude; infinity or NaN if one of them is not finite.
GW_DEVICE f32 largest_of(const f32 (&run)[RUN]) {
    f32 largest = 0.0f;
    GW_UNROLL
    for (u32 i = 0; i < RUN; ++i) largest = gw::maximum_or_nan(largest, gw::absolute(run[i]));
    return largest;
}

GW_DEVICE f32 largest_finite_of(const f32 (&run)[RUN]) {
    f32 largest = 0.0f;
    GW_UNROLL
    for (u32 i = 0; i < RUN; ++i) largest = gw::maximum(largest, is_finite(run[i]) ? gw::absolute(run[i]) : 0.0f);
    return largest;
}

// The largest over the block, for all its threads. Each of two reductions has a word a warp of its own, so that the second need
// not wait for who still reads the first.
GW_DEVICE f32 block_largest(f32 value, u32 reduction) {
    static_assert(2 * THREADS / 32 * sizeof(u32) <= QUANTISE_WORDS_BYTES, "words of both reductions");
    u32* warps = gw::shared<u32>() + reduction * (THREADS / 32);
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

// What stands for a row's numbers in a marked tile. `unbounded` is 0 for a finite row, 1 for a row with one infinity.
GW_DEVICE void mark_run(f32 (&run)[RUN], f32 factor, u32 unbounded) {
    GW_UNROLL
    for (u32 i = 0; i < RUN; ++i) {
        const f32 sign = run[i] > 0.0f ? LARGEST_CODE : -LARGEST_CODE;
        if (unbounded == 0) run[i] *= factor;
        else if (unbounded == 1) run[i] = is_finite(run[i]) ? 0.0f : sign;
        else run[i] = gw::bits<f32>(NOT_A_NUMBER);
    }
}

// Infinities of a row, of which this lane has a run; 2 or more if it has a NaN.
GW_DEVICE u32 unbounded_of(const f32 (&run)[RUN]) {
    u32 count = 0;
    GW_UNROLL
    for (u32 i = 0; i < RUN; ++i) count += run[i] != run[i] ? 2 : is_finite(run[i]) ? 0 : 1;
    GW_UNROLL
    for (u32 lanes = 1; lanes < DIM / RUN; lanes *= 2) count += gw::shuffle_xor(count, lanes);
    return count;
}

// Run `run` of a tile of queries or keys.
template <u32 ROWS>
GW_DEVICE void load_rotated(const In* x, const Matrix& m, u32 tile, u32 run, f32 (&numbers)[RUN]) {
    load_run(x, m, tile * ROWS + run / (DIM / RUN), run % (DIM / RUN) * RUN, numbers);
    if (ROTATE) rotate(numbers);
}

// A tile of queries or keys that is to be marked. It is read anew, a run at a time: a tile that is not should find no
// register taken. Returns the factor of its finite numbers.
template <u32 ROWS>
GW_DEVICE f32 mark_tile(const In* x, u8* image, u8* marks, const Matrix& m, u32 tile) {
    constexpr u32 RUNS = ROWS * DIM / RUN;
    f32 numbers[RUN], largest = 0.0f;
    GW_UNROLL_BY(1)
    for (u32 run = gw::thread(); run < RUNS; run += THREADS) {
        load_rotated<ROWS>(x, m, tile, run, numbers);
        largest = gw::maximum(largest, largest_finite_of(numbers));
    }
    const f32 factor = factor_for(block_largest(largest, 1), m.limit);
    GW_UNROLL_BY(1)
    for (u32 run = gw::thread(); run < RUNS; run += THREADS) {
        load_rotated<ROWS>(x, m, tile, run, numbers);
        const u32 unbounded = unbounded_of(numbers);
        mark_run(numbers, factor, unbounded);
        gw::store_128(image + gw::swizzled(run * RUN, HeadDimension<DIM>::swizzle), encode(numbers, 1.0f));
        if (run % (DIM / RUN) == 0) marks[run / (DIM / RUN)] = unbounded == 1;
    }
    return factor;
}

template <u32 ROWS>
GW_DEVICE void quantise_tile(const In* x, const f32* given, u8* image, f32* scales, u8* marks, const Matrix& m, u32 tile) {
    constexpr u32 RUNS = ROWS * DIM / RUN / THREADS;
    const u64 number = tile_number(m, tile);
    image += number * (ROWS * DIM);
    f32 runs[RUNS][RUN], largest = 0.0f;
    GW_UNROLL
    for (u32 i = 0; i < RUNS; ++i) {
        load_rotated<ROWS>(x, m, tile, gw::thread() + i * THREADS, runs[i]);
        largest = gw::maximum_or_nan(largest, largest_of(runs[i]));
    }
    largest = block_largest(largest, 0);
    f32 factor = factor_for(largest, m.limit);
    if (is_finite(largest)) {
        GW_UNROLL
        for (u32 i = 0; i < RUNS; ++i) {
            const u32 run = gw::thread() + i * THREADS;
            gw::store_128(image + gw::swizzled(run * RUN, HeadDimension<DIM>::swizzle), encode(runs[i], factor));
        }
    } else {
        factor = mark_tile<ROWS>(x, image, marks + number * ROWS, m, tile);
    }
    if (gw::thread() == 0) {
        const f32 scale = factor > 0.0f ? given_scale(given, m, tile * ROWS / KEY_TILE) / factor : 0.0f;
        scales[number] = is_finite(largest) ? scale : marked_scale(scale);
    }
}

// The key whose byte stands at `place` of a tile's row: the inverse of the order of the keys in each 16.
GW_DEVICE u32 key_at(u32 place) {
    const u32 n = place % 16;
    return place - n + 2 * (n / 4) + 8 * (n / 2 % 2) + n % 2;
}

// Four rows of four bytes become four columns.
GW_DEVICE void transpose(u32 (&words)[4]) {
    const u32 low = gw::permute_bytes(words[0], words[1], 0x5140), high = gw::permute_bytes(words[2], words[3], 0x5140);
    const u32 low2 = gw::permute_bytes(words[0], words[1], 0x7362), high2 = gw::permute_bytes(words[2], words[3], 0x7362);
    words[0] = gw::permute_bytes(low, high, 0x5410);
    words[1] = gw::permute_bytes(low, high, 0x7632);
    words[2] = gw::permute_bytes(low2, high2, 0x5410);
    words[3] = gw::permute_bytes(low2, high2, 0x7632);
}

// The image of a tile of values from its codes, which lie in shared memory as rows of keys.
GW_DEVICE void write_transposed(const u32* codes, u8* tile) {
    constexpr u32 WORDS = DIM / 4;
    // 16 keys x 4 numbers a thread. Neighbouring threads have neighbouring chunks of a row of the image.
    for (u32 patch = gw::thread(); patch < WORDS * (KEY_TILE / 16); patch += THREADS) {
        const u32 word = patch / 2 % WORDS, chunk = patch % 2 + 2 * (patch / 2 / WORDS);
        u32 patches[4][4];
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) {
            GW_UNROLL
            for (u32 j = 0; j < 4; ++j) patches[i][j] = codes[key_at(16 * chunk + 4 * i + j) * WORDS + word];
            transpose(patches[i]);
        }
        GW_UNROLL
        for (u32 j = 0; j < 4; ++j) {
            const u32 at = (4 * word + j) * KEY_TILE + 16 * chunk;
            gw::store_128(tile + gw::swizzled(at, gw::SWIZZLE_128), {patches[0][j], patches[1][j], patches[2][j], patches[3][j]});
        }
    }
    for (u32 chunk = gw::thread(); chunk < SUM_ROWS * KEY_TILE / 16; chunk += THREADS) {
        const u32 word = chunk < KEY_TILE / 16 ? ONE * 0x01010101u : 0;
        gw::store_128(tile + gw::swizzled(DIM * KEY_TILE + 16 * chunk, gw::SWIZZLE_128), {word, word, word, word});
    }
}

GW_DEVICE f32 number_at(const In* from) {
    if constexpr (IN_NUMBER == Number::F32) return *from;
    else return widen<IN_NUMBER>(*from);
}

GW_DEVICE ColumnMark column_mark(const In* v, const Matrix& m, u32 tile, u32 column) {
    ColumnMark mark = {ColumnMark::FINITE, 0, 0};
    for (u32 key = 0; key < KEY_TILE && tile * KEY_TILE + key < m.rows; ++key) {
        const f32 x = number_at(row_of(v, m, tile * KEY_TILE + key) + column);
        if (is_finite(x)) continue;
        const ColumnMark::Kind found = x != x     ? ColumnMark::NAN_OR_SEVERAL
                                       : x > 0.0f ? ColumnMark::INFINITY_ABOVE
                                                  : ColumnMark::INFINITY_BELOW;
        if (mark.kind == ColumnMark::FINITE) mark = {found, key, key};
        else mark = {mark.kind == found ? found : ColumnMark::NAN_OR_SEVERAL, mark.first, key};
    }
    return mark;
}

// Run `run` of a tile of values.
GW_DEVICE void load_values(const In* v, const Matrix& m, u32 tile, u32 run, f32 (&numbers)[RUN]) {
    load_run(v, m, tile * KEY_TILE + run / (DIM / RUN), run % (DIM / RUN) * RUN, numbers);
}

// Marks a group of tiles of values, and returns its largest finite number.
GW_DEVICE f32 mark_values(const In* v, const f32* given, u32* marks, const Matrix& m, u32 first, u32 end) {
    f32 numbers[RUN], largest = 0.0f;
    GW_UNROLL_BY(1)
    for (u32 tile = first; tile < end; ++tile) {
        GW_UNROLL_BY(1)
        for (u32 run = gw::thread(); run < VALUE_RUNS; run += THREADS) {
            load_values(v, m, tile, run, numbers);
            largest = gw::maximum(largest, largest_finite_of(numbers) * given_scale(given, m, tile));
        }
        if (gw::thread() >= DIM) continue;
        marks[tile_number(m, tile) * DIM + gw::thread()] = to_word(column_mark(v, m, tile, gw::thread()));
    }
    return block_largest(largest, 1);
}

// Codes of a tile of values, as rows of keys, of which those that are not finite become zeros.
GW_DEVICE void encode_marked(const In* v, const Matrix& m, u32 tile, u8* codes, f32 factor) {
    f32 numbers[RUN];
    GW_UNROLL_BY(1)
    for (u32 run = gw::thread(); run < VALUE_RUNS; run += THREADS) {
        load_values(v, m, tile, run, numbers);
        GW_UNROLL
        for (u32 i = 0; i < RUN; ++i) numbers[i] = is_finite(numbers[i]) ? numbers[i] : 0.0f;
        gw::store_128(codes + run * RUN, encode(numbers, factor));
    }
}

// A group of tiles of values.
// Shared memory: the words of reductions, and at byte QUANTISE_WORDS_BYTES the tile's codes.
GW_DEVICE void quantise_values(const In* v, const f32* given, u8* image, f32* scales, u32* marks, const Matrix& m, u32 group) {
    constexpr u32 RUNS = VALUE_RUNS / THREADS;
    const u32 first = group * GROUP, end = gw::lesser(first + GROUP, m.tiles);
    f32 runs[RUNS][RUN], largest = 0.0f;
    const auto load = [&](u32 tile) {
        GW_UNROLL
        for (u32 i = 0; i < RUNS; ++i) load_values(v, m, tile, gw::thread() + i * THREADS, runs[i]);
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
    largest = block_largest(largest, 0);
    const bool marked = !is_finite(largest);
    if (marked) largest = mark_values(v, given, marks, m, first, end);
    const f32 factor = factor_for(largest / common, LARGEST_CODE);
    u8* codes = gw::shared<u8>(QUANTISE_WORDS_BYTES);
    for (u32 tile = first; tile < end; ++tile) {
        const f32 moved = factor * (given_scale(given, m, tile) / common);
        if (marked) {
            encode_marked(v, m, tile, codes, moved);
        } else {
            // A single tile is still there.
            if (GROUP > 1) load(tile);
            GW_UNROLL
            for (u32 i = 0; i < RUNS; ++i) {
                gw::store_128(codes + (gw::thread() + i * THREADS) * RUN, encode(runs[i], moved));
            }
        }
        gw::sync_threads();
        write_transposed(gw::shared<u32>(QUANTISE_WORDS_BYTES), image + tile_number(m, tile) * ((DIM + SUM_ROWS) * KEY_TILE));
        if (GROUP > 1) gw::sync_threads();
    }
    if (gw::thread() == 0) {
        const u64 head = (u64)gw::block_z() * m.heads + gw::block_y();
        const f32 scale = factor > 0.0f ? common / factor : 0.0f;
        scales[head * ((m.tiles + GROUP - 1) / GROUP) + group] = marked ? marked_scale(scale) : scale;
    }
}

// Blocks in x: the tiles of queries, of keys, and the groups of tiles of values. Blocks in y: query heads, of which keys and
// values have fewer. The three `given` are scales of e4m3 inputs, and of other formats anything.
GW_KERNEL_BOUNDED(quantise, THREADS, 2)
(const In* q, const In* k, const In* v, const f32* q_given, const f32* k_given, const f32* v_given, u8* q_image, u8* k_image,
 u8* v_image, f32* q_scales, f32* k_scales, f32* v_scales, u8* q_marks, u8* k_marks, u32* v_marks, Matrix queries, Matrix keys,
 Matrix values) {
    gw::await_stream();
    gw::admit_next();
    if (gw::block_x() < queries.tiles) {
        quantise_tile<QUERY_TILE>(q, q_given, q_image, q_scales, q_marks, queries, gw::block_x());
    } else if (gw::block_y() < keys.heads) {
        const u32 tile = gw::block_x() - queries.tiles;
        if (tile < keys.tiles) {
            quantise_tile<KEY_TILE>(k, k_given, k_image, k_scales, k_marks, keys, tile);
        } else {
            quantise_values(v, v_given, v_image, v_scales, v_marks, values, tile - keys.tiles);
        }
    }
}
