#include "reduce.cuh"

// Of every segment, in one pass over six arrays and the gradients of shards:
//   found[segment] = sums and sums of squares of each array, the sum of displacement * before,
//                    the least and the largest number of each array, the squared length of each shard's gradient.
// Arrays: [parameter]; shards: [shard, parameter]. A block a chunk.
//
// 24 bytes, 6 conversions and 13 additions in double precision a parameter: memory is what it waits for.

using reduce::Kind;

constexpr u32 SUMS = 2 * STATISTIC_ARRAYS + 1;
constexpr u32 EXTREMA = 2 * STATISTIC_ARRAYS;

GW_DEVICE Kind kind_of(u32 place) {
    if (place < SUMS || place >= SUMS + EXTREMA) return Kind::Sum;
    return place < SUMS + STATISTIC_ARRAYS ? Kind::Least : Kind::Most;
}

struct Tally {
    f64 sum, squares;
    f32 least, most;
    GW_DEVICE void take(f32 x) {
        sum += (f64)x;
        squares = gw::fma((f64)x, (f64)x, squares);
        least = gw::minimum(least, x);
        most = gw::maximum(most, x);
    }
};

struct Tallies {
    Tally of[STATISTIC_ARRAYS];
    f64 along;
    GW_DEVICE void take(const f32 (&x)[STATISTIC_ARRAYS]) {
        GW_UNROLL
        for (u32 array = 0; array < STATISTIC_ARRAYS; ++array) of[array].take(x[array]);
        along = gw::fma((f64)x[STATISTIC_DISPLACEMENT], (f64)x[STATISTIC_BEFORE], along);
    }
};

GW_KERNEL_BOUNDED(statistics, REDUCE_THREADS, 2)(const f32* weights, const f32* gradient, const f32* displacement,
                                                 const f32* before, const f32* first, const f32* second, const f32* shards,
                                                 u64 shard_stride, u32 shard_count, const Chunk* chunks,
                                                 const Segment* segments, f64* partials, u32* arrived, f64* found) {
    f64* of_warps = gw::shared<f64>();
    const u32 row = SUMS + EXTREMA + shard_count;
    u32* last = gw::shared<u32>(row * reduce::WARPS * sizeof(f64));
    const Chunk chunk = chunks[gw::block_x()];
    const f32* const arrays[STATISTIC_ARRAYS] = {weights, gradient, displacement, before, first, second};
    const f32 infinity = gw::bits<f32>(0x7F800000u);

    Tallies tallies;
    tallies.along = 0.0;
    GW_UNROLL
    for (u32 array = 0; array < STATISTIC_ARRAYS; ++array) tallies.of[array] = {0.0, 0.0, infinity, -infinity};
    for (u64 at = chunk.start / 4 * 4 + 4 * gw::thread(); at < chunk.end; at += 4 * REDUCE_THREADS) {
        f32 x[STATISTIC_ARRAYS];
        if (reduce::is_whole(chunk, at)) {
            f32 four[STATISTIC_ARRAYS][4];
            GW_UNROLL
            for (u32 array = 0; array < STATISTIC_ARRAYS; ++array) reduce::load_four(arrays[array] + at, four[array]);
            GW_UNROLL
            for (u32 i = 0; i < 4; ++i) {
                GW_UNROLL
                for (u32 array = 0; array < STATISTIC_ARRAYS; ++array) x[array] = four[array][i];
                tallies.take(x);
            }
        } else {
            // A vector that the chunk has only a part of.
            for (u64 i = at; i < at + 4; ++i) {
                if (i < chunk.start || i >= chunk.end) continue;
                GW_UNROLL
                for (u32 array = 0; array < STATISTIC_ARRAYS; ++array) x[array] = arrays[array][i];
                tallies.take(x);
            }
        }
    }
    GW_UNROLL
    for (u32 array = 0; array < STATISTIC_ARRAYS; ++array) {
        const Tally& tally = tallies.of[array];
        reduce::leave(of_warps, 2 * array, Kind::Sum, tally.sum);
        reduce::leave(of_warps, 2 * array + 1, Kind::Sum, tally.squares);
        reduce::leave(of_warps, SUMS + array, Kind::Least, tally.least);
        reduce::leave(of_warps, SUMS + STATISTIC_ARRAYS + array, Kind::Most, tally.most);
    }
    reduce::leave(of_warps, SUMS - 1, Kind::Sum, tallies.along);
    for (u32 shard = 0; shard < shard_count; ++shard) {
        f64 squares = 0.0;
        const f32* of_shard = shards + shard * shard_stride;
        for (u64 i = chunk.start + gw::thread(); i < chunk.end; i += REDUCE_THREADS) {
            const f32 x = gw::load_readonly(of_shard + i);
            squares = gw::fma((f64)x, (f64)x, squares);
        }
        reduce::leave(of_warps, SUMS + EXTREMA + shard, Kind::Sum, squares);
    }
    gw::sync_threads();
    const Segment segment = segments[chunk.segment];
    for (u32 place = gw::thread(); place < row; place += REDUCE_THREADS) {
        partials[(u64)gw::block_x() * row + place] = reduce::over_block(of_warps, place, kind_of(place));
    }
    gw::sync_threads();
    if (gw::thread() == 0) *last = reduce::is_last(arrived, chunk.segment, segment);
    gw::sync_threads();
    if (!*last) return;
    for (u32 place = gw::lane(); place < row; place += 32) {
        of_warps[place * reduce::WARPS + gw::warp()] = reduce::over_chunks(partials, row, segment, place, kind_of(place));
    }
    gw::sync_threads();
    for (u32 place = gw::thread(); place < row; place += REDUCE_THREADS) {
        found[(u64)chunk.segment * row + place] = reduce::over_block(of_warps, place, kind_of(place));
    }
}
