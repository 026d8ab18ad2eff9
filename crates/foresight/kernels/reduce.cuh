#pragma once
// Sums, minima and maxima of whole tensors, the same bits whatever the schedule.
//
// Tensors are *segments* of one array, cut into chunks, a block each. A thread adds up in double precision, the lanes of a
// warp in a tree, the warps of a block and the chunks of a segment in order. The block that comes last to a segment does
// the last of these; which one that is changes no sum, since it adds what all of them left in memory.

#include "gw/gw.cuh"
#include "shared.cuh"

namespace reduce {

constexpr u32 WARPS = REDUCE_THREADS / 32;

// Four neighbours in one access; `p` is a multiple of 16 bytes.
GW_DEVICE void load_four(const f32* p, f32 (&x)[4]) {
    const u32x4 four = gw::load_128(p);
    x[0] = gw::bits<f32>(four.x), x[1] = gw::bits<f32>(four.y);
    x[2] = gw::bits<f32>(four.z), x[3] = gw::bits<f32>(four.w);
}
GW_DEVICE void store_four(f32* p, const f32 (&x)[4]) {
    gw::store_128(p, {gw::bits<u32>(x[0]), gw::bits<u32>(x[1]), gw::bits<u32>(x[2]), gw::bits<u32>(x[3])});
}
// Whether a chunk has all four parameters from `at` on.
GW_DEVICE bool is_whole(const Chunk& chunk, u64 at) { return at >= chunk.start && at + 4 <= chunk.end; }

enum class Kind { Sum, Least, Most };

// What a sum, a minimum or a maximum of nothing is.
GW_DEVICE f64 nothing(Kind kind) {
    const f64 infinity = gw::bits<f64>(0x7FF0000000000000ull);
    return kind == Kind::Sum ? 0.0 : kind == Kind::Least ? infinity : -infinity;
}

GW_DEVICE f64 fold(Kind kind, f64 a, f64 b) {
    if (kind == Kind::Sum) return a + b;
    if (kind == Kind::Least) return b < a ? b : a;
    return b > a ? b : a;
}

// Over the warp, in every lane: halves of lanes, then quarters, and so on.
GW_DEVICE f64 over_warp(Kind kind, f64 value) {
    GW_UNROLL
    for (u32 lanes = 16; lanes > 0; lanes /= 2) value = fold(kind, value, gw::shuffle_xor(value, lanes));
    return value;
}

// Leaves the warp's fold of value number `place` in shared memory: [place, warp].
GW_DEVICE void leave(f64* of_warps, u32 place, Kind kind, f64 value) {
    const f64 folded = over_warp(kind, value);
    if (gw::lane() == 0) of_warps[place * WARPS + gw::warp()] = folded;
}

// What the warps of the block left.
GW_DEVICE f64 over_block(const f64* of_warps, u32 place, Kind kind) {
    f64 value = of_warps[place * WARPS];
    for (u32 warp = 1; warp < WARPS; ++warp) value = fold(kind, value, of_warps[place * WARPS + warp]);
    return value;
}

// The part of a segment's chunks that this warp folds: every WARPS-th, as partials [chunk, place] have them.
GW_DEVICE f64 over_chunks(const f64* partials, u32 row, const Segment& segment, u32 place, Kind kind) {
    f64 value = nothing(kind);
    GW_UNROLL_BY(8)
    for (u32 chunk = gw::warp(); chunk < segment.chunks; chunk += WARPS) {
        value = fold(kind, value, partials[(u64)(segment.first_chunk + chunk) * row + place]);
    }
    return value;
}

// Whether this block is the last of its segment to come here. One thread asks, after all have stored what others will read.
GW_DEVICE bool is_last(u32* arrived, u32 number, const Segment& segment) {
    const u32 before = gw::atomic_add<gw::Order::AcquireRelease>(arrived + number, 1u);
    if (before + 1 < segment.chunks) return false;
    // Ready for the next launch.
    arrived[number] = 0;
    return true;
}

}  // namespace reduce
