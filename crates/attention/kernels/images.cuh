#pragma once
// Tile images of e4m3 codes, in the form that consumer.cuh reads: what all kernels do that make them.
//
// Threads read runs of 16 neighbours of a row: what becomes one 16-byte chunk of an image. Where rows come from, and which threads
// make a tile together, is a `Source`'s:
//   THREADS, thread()         how many there are, and which one this is;
//   WIDTH                     numbers of a row in the image: DIM of queries and keys, VALUE_DIM of values;
//   load(row, column, run)    16 numbers of the tile's row, zeros past the last;
//   number(row, column)       one of them, of a row that it has(row);
//   largest(value, reduction) the largest over all threads, for two reductions of a tile.
// IN_FORMAT is the `Number` that comes in. What is not finite is marked, as marks.cuh says.

#include "dimensions.cuh"
#include "marks.cuh"
#include "numbers.cuh"

constexpr Number IN_NUMBER = (Number)IN_FORMAT;
typedef Bits<IN_NUMBER> In;
constexpr u32 RUN = 16;
// Runs of a tile of values.
constexpr u32 VALUE_RUNS = KEY_TILE * VALUE_DIM / RUN;
// e4m3: 1.
constexpr u32 ONE = 0x38;
// What is multiplied with must be finite, however small numbers are.
constexpr f32 FINITE_FACTOR = 1e37f;

// What numbers are multiplied with so that `largest` becomes `limit`, or nearly.
GW_DEVICE f32 factor_for(f32 largest, f32 limit) {
    if (!(largest > 0.0f)) return 0.0f;
    const f32 factor = gw::minimum(limit / largest, FINITE_FACTOR);
    return IN_NUMBER == Number::E4m3 ? gw::bits<f32>(gw::bits<u32>(factor) & 0x7F800000u) : factor;
}

// 16 neighbours from a multiple of 16 bytes on, or zeros.
template <Number NUMBER>
GW_DEVICE void load_neighbours(const Bits<NUMBER>* from, bool is_there, f32 (&run)[RUN]) {
    constexpr u32 SIZE = sizeof(Bits<NUMBER>), PER_LOAD = 16 / SIZE;
    GW_UNROLL
    for (u32 i = 0; i < RUN; i += PER_LOAD) {
        const u32x4 load = is_there ? gw::load_128(from + i) : u32x4{0, 0, 0, 0};
        const u32 words[4] = {load.x, load.y, load.z, load.w};
        GW_UNROLL
        for (u32 j = 0; j < PER_LOAD; ++j) run[i + j] = widen<NUMBER>(words[4 * j / PER_LOAD] >> 8 * SIZE * (j % (PER_LOAD / 4)));
    }
}

template <Number NUMBER>
GW_DEVICE f32 number_at(const Bits<NUMBER>* from) {
    if constexpr (NUMBER == Number::F32) return *from;
    else return widen<NUMBER>(*from);
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

// The largest over THREADS threads that meet in `sync`, through a word a warp. Each of two reductions has words of its own, so that
// the second need not wait for who still reads the first.
template <u32 THREADS, class Sync>
GW_DEVICE f32 largest_over(f32 value, u32 warp, u32* words, u32 reduction, Sync sync) {
    u32* warps = words + reduction * (THREADS / 32);
    // Numbers that are not negative are ordered as their bits are.
    const u32 largest = gw::reduce_max(gw::bits<u32>(value));
    if (gw::lane() == 0) warps[warp] = largest;
    sync();
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

// Lanes that have a row's runs: a power of two, so that a row lies in one warp. Where that is more than the row has runs, the last
// lanes' are zeros, and stored nowhere.
template <u32 WIDTH, u32 LANES = 1>
constexpr u32 ROW_LANES = LANES * RUN < WIDTH ? ROW_LANES<WIDTH, (LANES * RUN < WIDTH ? 2 * LANES : LANES)> : LANES;

// Where a run of a tile of ROWS rows of queries or keys lies: panels of PANEL columns, one after the other, since no more fit into a
// row of a swizzle.
template <u32 ROWS>
GW_DEVICE u32 place_of_run(u32 run) {
    if constexpr (PANEL == DIM) return gw::swizzled(run * RUN, SWIZZLE);
    const u32 row = run / ROW_LANES<DIM>, column = run % ROW_LANES<DIM> * RUN;
    return column / PANEL * (ROWS * PANEL) + gw::swizzled(row * PANEL + column % PANEL, SWIZZLE);
}

// Whether a run of a row of queries or keys is one of the row's, and not a lane's that has none.
GW_DEVICE bool is_of_row(u32 run) { return ROW_LANES<DIM> * RUN == DIM || run % ROW_LANES<DIM> * RUN < DIM; }

// Infinities of a row, of which this lane has a run; 2 or more if it has a NaN.
GW_DEVICE u32 unbounded_of(const f32 (&run)[RUN]) {
    u32 count = 0;
    GW_UNROLL
    for (u32 i = 0; i < RUN; ++i) count += run[i] != run[i] ? 2 : is_finite(run[i]) ? 0 : 1;
    GW_UNROLL
    for (u32 lanes = 1; lanes < ROW_LANES<DIM>; lanes *= 2) count += gw::shuffle_xor(count, lanes);
    return count;
}

// Run `run` of a tile.
template <class Source>
GW_DEVICE void load_of(const Source& source, u32 run, f32 (&numbers)[RUN]) {
    constexpr u32 LANES = ROW_LANES<Source::WIDTH>;
    source.load(run / LANES, run % LANES * RUN, numbers);
}

// A tile of queries or keys that is to be marked. It is read anew, a run at a time: a tile that is not should find no
// register taken. Returns the factor of its finite numbers.
template <u32 ROWS, class Source>
GW_DEVICE f32 mark_tile(const Source& source, f32 limit, u8* image, u8* marks) {
    constexpr u32 RUNS = ROWS * ROW_LANES<DIM>;
    f32 numbers[RUN], largest = 0.0f;
    GW_UNROLL_BY(1)
    for (u32 run = source.thread(); run < RUNS; run += Source::THREADS) {
        load_of(source, run, numbers);
        largest = gw::maximum(largest, largest_finite_of(numbers));
    }
    const f32 factor = factor_for(source.largest(largest, 1), limit);
    GW_UNROLL_BY(1)
    for (u32 run = source.thread(); run < RUNS; run += Source::THREADS) {
        load_of(source, run, numbers);
        const u32 unbounded = unbounded_of(numbers);
        mark_run(numbers, factor, unbounded);
        if (is_of_row(run)) gw::store_128(image + place_of_run<ROWS>(run), encode(numbers, 1.0f));
        if (run % ROW_LANES<DIM> == 0) marks[run / ROW_LANES<DIM>] = unbounded == 1;
    }
    return factor;
}

// What a tile was multiplied with, and whether it is marked.
struct Quantised {
    f32 factor;
    bool marked;
};

// The scale of a tile whose numbers came with `given`.
GW_DEVICE f32 scale_of(const Quantised& tile, f32 given) {
    const f32 scale = tile.factor > 0.0f ? given / tile.factor : 0.0f;
    return tile.marked ? marked_scale(scale) : scale;
}

// A tile of queries or keys, whose largest number becomes `limit`.
template <u32 ROWS, class Source>
GW_DEVICE Quantised quantise_rows(const Source& source, f32 limit, u8* image, u8* marks) {
    constexpr u32 RUNS = ROWS * ROW_LANES<DIM> / Source::THREADS;
    f32 runs[RUNS][RUN], largest = 0.0f;
    GW_UNROLL
    for (u32 i = 0; i < RUNS; ++i) {
        load_of(source, source.thread() + i * Source::THREADS, runs[i]);
        largest = gw::maximum_or_nan(largest, largest_of(runs[i]));
    }
    largest = source.largest(largest, 0);
    if (!is_finite(largest)) return {mark_tile<ROWS>(source, limit, image, marks), true};
    const f32 factor = factor_for(largest, limit);
    GW_UNROLL
    for (u32 i = 0; i < RUNS; ++i) {
        const u32 run = source.thread() + i * Source::THREADS;
        if (is_of_row(run)) gw::store_128(image + place_of_run<ROWS>(run), encode(runs[i], factor));
    }
    return {factor, false};
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
template <u32 THREADS>
GW_DEVICE void write_transposed(const u32* codes, u8* tile) {
    constexpr u32 WORDS = VALUE_DIM / 4;
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
        gw::store_128(tile + gw::swizzled(VALUE_DIM * KEY_TILE + 16 * chunk, gw::SWIZZLE_128), {word, word, word, word});
    }
}

template <class Source>
GW_DEVICE ColumnMark column_mark(const Source& source, u32 column) {
    ColumnMark mark = {ColumnMark::FINITE, 0, 0};
    for (u32 key = 0; key < KEY_TILE && source.has(key); ++key) {
        const f32 x = source.number(key, column);
        if (is_finite(x)) continue;
        const ColumnMark::Kind found = x != x     ? ColumnMark::NAN_OR_SEVERAL
                                       : x > 0.0f ? ColumnMark::INFINITY_ABOVE
                                                  : ColumnMark::INFINITY_BELOW;
        if (mark.kind == ColumnMark::FINITE) mark = {found, key, key};
        else mark = {mark.kind == found ? found : ColumnMark::NAN_OR_SEVERAL, mark.first, key};
    }
    return mark;
}

// Marks a tile of values, a word a column, and returns the thread's largest finite number.
template <class Source>
GW_DEVICE f32 mark_values(const Source& source, u32* marks) {
    f32 numbers[RUN], largest = 0.0f;
    GW_UNROLL_BY(1)
    for (u32 run = source.thread(); run < VALUE_RUNS; run += Source::THREADS) {
        load_of(source, run, numbers);
        largest = gw::maximum(largest, largest_finite_of(numbers));
    }
    static_assert(VALUE_DIM <= Source::THREADS, "a thread a column");
    if (source.thread() < VALUE_DIM) marks[source.thread()] = to_word(column_mark(source, source.thread()));
    return largest;
}

// Codes of a tile of values, as rows of keys, of which those that are not finite become zeros.
template <class Source>
GW_DEVICE void encode_marked(const Source& source, u8* codes, f32 factor) {
    f32 numbers[RUN];
    GW_UNROLL_BY(1)
    for (u32 run = source.thread(); run < VALUE_RUNS; run += Source::THREADS) {
        load_of(source, run, numbers);
        GW_UNROLL
        for (u32 i = 0; i < RUN; ++i) numbers[i] = is_finite(numbers[i]) ? numbers[i] : 0.0f;
        gw::store_128(codes + run * RUN, encode(numbers, factor));
    }
}
