#include "functions.cuh"
#include "reduce.cuh"

// Steps of all parameters, many tensors in one launch. They are what the crate's CPU code computes, bit for bit: compiled
// without fused operations, which that does not use here either. A block a chunk, four parameters a thread at a time.
//
// With MEASURE, the sums of a segment come with the pass: g^2, w^2, u^2, u u', u'^2, m^2, v, with w before the step.
// AdamW moves 20 bytes in and 16 out a parameter, and waits for memory alone: 124 M parameters are 4.5 GB.

using reduce::Kind;

// Where a segment's sums go: [segment, place].
struct Found {
    const Segment* segments;
    f64* partials;
    u32* arrived;
    f64* found;
};

// Adds up what the block's threads have, and in the last block of the segment what its blocks had.
template <u32 COUNT>
GW_DEVICE void finish(const f64 (&sums)[COUNT], u32 number, const Found& to) {
    f64* of_warps = gw::shared<f64>();
    u32* last = gw::shared<u32>(COUNT * reduce::WARPS * sizeof(f64));
    GW_UNROLL
    for (u32 place = 0; place < COUNT; ++place) reduce::leave(of_warps, place, Kind::Sum, sums[place]);
    gw::sync_threads();
    const Segment segment = to.segments[number];
    if (gw::thread() < COUNT) {
        to.partials[(u64)gw::block_x() * COUNT + gw::thread()] = reduce::over_block(of_warps, gw::thread(), Kind::Sum);
    }
    gw::sync_threads();
    if (gw::thread() == 0) *last = reduce::is_last(to.arrived, number, segment);
    gw::sync_threads();
    if (!*last) return;
    if (gw::lane() < COUNT) {
        of_warps[gw::lane() * reduce::WARPS + gw::warp()] =
            reduce::over_chunks(to.partials, COUNT, segment, gw::lane(), Kind::Sum);
    }
    gw::sync_threads();
    if (gw::thread() < COUNT) {
        to.found[(u64)number * COUNT + gw::thread()] = reduce::over_block(of_warps, gw::thread(), Kind::Sum);
    }
}

struct Sums {
    f64 of[UPDATE_SUMS];
    GW_DEVICE Sums() {
        GW_UNROLL
        for (u32 place = 0; place < UPDATE_SUMS; ++place) of[place] = 0.0;
    }
    // Of one parameter: its gradient, its weight before the step, the step and the step before, its moments.
    GW_DEVICE void take(f32 g, f32 w, f32 step, f32 before, f32 first, f32 second) {
        const f32 x[UPDATE_SUMS] = {g, w, step, step, before, first, second};
        const f32 y[UPDATE_SUMS] = {g, w, step, before, before, first, 1.0f};
        GW_UNROLL
        for (u32 place = 0; place < UPDATE_SUMS; ++place) of[place] = gw::fma((f64)x[place], (f64)y[place], of[place]);
    }
};

// What gradients are multiplied with so that all together are no longer than `clip`; a `clip` of 0 leaves them as they are.
GW_DEVICE f32 clipping(const f64* squared_length, f64 clip) {
    if (!(clip > 0.0)) return 1.0f;
    const f64 length = functions::root(*squared_length);
    return length > clip ? (f32)(clip / length) : 1.0f;
}

// Does `step(x)` for every parameter of a chunk, with the numbers of `arrays` there. The first WRITTEN of them are stored
// again; the first UNREAD are not loaded before.
template <u32 WRITTEN, u32 UNREAD = 0, u32 ARRAYS, class Step>
GW_DEVICE void each(const Chunk& chunk, f32* const (&arrays)[ARRAYS], Step step) {
    for (u64 at = chunk.start / 4 * 4 + 4 * gw::thread(); at < chunk.end; at += 4 * REDUCE_THREADS) {
        f32 x[ARRAYS];
        if (reduce::is_whole(chunk, at)) {
            f32 four[ARRAYS][4];
            GW_UNROLL
            for (u32 array = UNREAD; array < ARRAYS; ++array) reduce::load_four(arrays[array] + at, four[array]);
            GW_UNROLL
            for (u32 i = 0; i < 4; ++i) {
                GW_UNROLL
                for (u32 array = UNREAD; array < ARRAYS; ++array) x[array] = four[array][i];
                step(x);
                GW_UNROLL
                for (u32 array = 0; array < WRITTEN; ++array) four[array][i] = x[array];
            }
            GW_UNROLL
            for (u32 array = 0; array < WRITTEN; ++array) reduce::store_four(arrays[array] + at, four[array]);
        } else {
            for (u64 i = at; i < at + 4; ++i) {
                if (i < chunk.start || i >= chunk.end) continue;
                GW_UNROLL
                for (u32 array = UNREAD; array < ARRAYS; ++array) x[array] = arrays[array][i];
                step(x);
                GW_UNROLL
                for (u32 array = 0; array < WRITTEN; ++array) arrays[array][i] = x[array];
            }
        }
    }
}

// found[segment] <- sum of g^2: with one segment of everything, what `clipping` asks for.
GW_KERNEL_BOUNDED(squared_lengths, REDUCE_THREADS, 4)(const f32* gradient, const Chunk* chunks, const Segment* segments,
                                                      f64* partials, u32* arrived, f64* found) {
    const Chunk chunk = chunks[gw::block_x()];
    f64 sums[1] = {0.0};
    f32* const arrays[1] = {const_cast<f32*>(gradient)};
    each<0>(chunk, arrays, [&](f32 (&x)[1]) { sums[0] = gw::fma((f64)x[0], (f64)x[0], sums[0]); });
    finish(sums, chunk.segment, {segments, partials, arrived, found});
}

// m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, u <- -rate (m' / (sqrt v' + e) + decay w), w <- w + u, with
// m' = m / (1 - b1^t), v' = v / (1 - b2^t), and decay that of the segment. Guarded, a segment whose gradient is no number stays.
GW_KERNEL_BOUNDED(adamw, REDUCE_THREADS, 2)(f32* weights, const f32* gradient, f32* first, f32* second, f32* last,
                                            AdamConstants c, const f64* squared_length, const Chunk* chunks,
                                            const Segment* segments, f64* partials, u32* arrived, f64* found) {
    const Chunk chunk = chunks[gw::block_x()];
    const Segment segment = segments[chunk.segment];
    const f64* length = squared_length + segment.length;
    const f32 decay = segment.decay, clip = clipping(length, c.clip);
    // A comparison that is false for what is no number.
    const bool moves = !c.guarded || *length < gw::bits<f64>(0x7FF0000000000000ull);
    Sums sums;
    f32* const arrays[5] = {weights, first, second, last, const_cast<f32*>(gradient)};
    if (moves) each<4>(chunk, arrays, [&](f32 (&x)[5]) {
        f32 &w = x[0], &m = x[1], &v = x[2], &before = x[3];
        const f32 g = x[4] * clip;
        m = c.beta1 * m + c.rest1 * g;
        v = c.beta2 * v + c.rest2 * g * g;
        const f32 step = -c.rate * (m * c.first_scale / (gw::sqrt(v * c.second_scale) + ADAM_EPSILON) + decay * w);
        if (MEASURE) sums.take(g, w, step, before, m, v);
        before = step;
        w += step;
    });
    if (MEASURE) finish(sums.of, chunk.segment, {segments, partials, arrived, found});
}

// m <- mu m + g, direction <- g + mu m, found[segment] <- sum of direction^2: what comes before the orthogonalisation.
GW_KERNEL_BOUNDED(muon_direction, REDUCE_THREADS, 4)(const f32* gradient, f32* first, f32* direction, f32 momentum, f64 clip,
                                                     const f64* squared_length, const Chunk* chunks,
                                                     const Segment* segments, f64* partials, u32* arrived, f64* found) {
    const Chunk chunk = chunks[gw::block_x()];
    const f32 scale = clipping(squared_length, clip);
    f64 sums[1] = {0.0};
    f32* const arrays[3] = {direction, first, const_cast<f32*>(gradient)};
    each<2, 1>(chunk, arrays, [&](f32 (&x)[3]) {
        const f32 g = x[2] * scale;
        x[1] = momentum * x[1] + g;
        x[0] = g + momentum * x[1];
        sums[0] = gw::fma((f64)x[0], (f64)x[0], sums[0]);
    });
    finish(sums, chunk.segment, {segments, partials, arrived, found});
}

// u <- -rate (scale direction + decay w), w <- w + u, with scale and decay those of the segment: what comes after it.
GW_KERNEL_BOUNDED(muon_step, REDUCE_THREADS, 2)(f32* weights, const f32* gradient, const f32* first, const f32* direction,
                                                f32* last, f32 rate, f64 clip, const f64* squared_length,
                                                const Chunk* chunks, const Segment* segments, f64* partials,
                                                u32* arrived, f64* found) {
    const Chunk chunk = chunks[gw::block_x()];
    const Segment segment = segments[chunk.segment];
    const f32 shorter = MEASURE ? clipping(squared_length, clip) : 1.0f;
    Sums sums;
    auto move = [&](f32& w, f32& before, f32 x, f32 g, f32 m) {
        const f32 step = -rate * (segment.scale * x + segment.decay * w);
        if (MEASURE) sums.take(g * shorter, w, step, before, m, 0.0f);
        before = step;
        w += step;
    };
    if (MEASURE) {
        f32* const arrays[5] = {weights, last, const_cast<f32*>(direction), const_cast<f32*>(gradient),
                                const_cast<f32*>(first)};
        each<2>(chunk, arrays, [&](f32 (&x)[5]) { move(x[0], x[1], x[2], x[3], x[4]); });
        finish(sums.of, chunk.segment, {segments, partials, arrived, found});
    } else {
        f32* const arrays[3] = {weights, last, const_cast<f32*>(direction)};
        each<2>(chunk, arrays, [&](f32 (&x)[3]) { move(x[0], x[1], x[2], 0.0f, 0.0f); });
    }
}
