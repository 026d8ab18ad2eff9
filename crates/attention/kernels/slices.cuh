#pragma once
// Part of consumer.cuh: tiles whose values have more than 128 columns.
//
// `out` and the products of a group of tiles would take 264 registers of a thread. So the product
// of a tile is made of SLICE columns at a time and added to `out` before the next slice takes its registers: 132 for `out`, 36 for a
// slice, 16 for p, and 32 for scores once p is used up. Nothing is left to the tensor cores for longer than a tile, and the tensor
// cores work for the block's other warpgroup while this one adds. The last slice has the sum of p, too.
template <u32 NUMBER>
struct Slice {
    static constexpr u32 ROWS = SLICE + (NUMBER + 1 == SLICES ? SUM_ROWS : 0), SUMS = ROWS / 2, FIRST_SUM = NUMBER * (SLICE / 2);
};

template <u32 NUMBER>
GW_DEVICE f32 (&slice_of(Consumer& x))[Slice<NUMBER>::SUMS] {
    return reinterpret_cast<f32(&)[Slice<NUMBER>::SUMS]>(x.part);
}

template <u32 NUMBER>
GW_DEVICE void multiply_slice(Consumer& x) {
    const u64 v_operand = x.v_operand + x.place.stage * (V_BYTES / 16) + NUMBER * (SLICE * KEY_TILE / 16);
    gw::wgmma_settle(slice_of<NUMBER>(x));
    gw::wgmma_fence();
    GW_UNROLL
    for (u32 step = 0; step < KEY_TILE / 32; ++step) {
        gw::Wgmma<gw::E4M3, Slice<NUMBER>::ROWS>::rs(slice_of<NUMBER>(x), x.p[step], v_operand + 2 * step, step > 0);
    }
    gw::wgmma_commit();
}

template <Kind KIND, u32 NUMBER>
GW_DEVICE void promote_slice(Consumer& x, f32 signed_scale) {
    const f32 scale = KIND == Kind::Ordinary ? signed_scale : gw::absolute(signed_scale);
    constexpr u32 FIRST = Slice<NUMBER>::FIRST_SUM;
    GW_UNROLL
    for (u32 i = 0; i < SLICE / 2; ++i) x.out[FIRST + i] = gw::fma(slice_of<NUMBER>(x)[i], scale, x.out[FIRST + i]);
    GW_UNROLL
    for (u32 i = SLICE / 2; i < Slice<NUMBER>::SUMS; ++i) x.out[FIRST + i] += slice_of<NUMBER>(x)[i];
}

// out <- out + p v of a tile, from slice NUMBER on; then the scores of the next tile, if there is one, are under way.
template <Kind KIND, bool HAS_NEXT, u32 NUMBER = 0>
GW_DEVICE void add_slices(Consumer& x, f32 signed_scale) {
    if (NUMBER == 0) {
        GW_UNROLL
        for (u32 step = 0; step < KEY_TILE / 32; ++step) gw::wgmma_settle(x.p[step]);
        take_turn(x.group);
    }
    multiply_slice<NUMBER>(x);
    if (NUMBER == 0) pass_turn(x.group);
    gw::wgmma_wait<0>();
    gw::wgmma_settle(slice_of<NUMBER>(x));
    if (HAS_NEXT && NUMBER + 1 == SLICES) multiply_scores(x);
    promote_slice<KIND, NUMBER>(x, signed_scale);
    if constexpr (NUMBER + 1 < SLICES) add_slices<KIND, HAS_NEXT, NUMBER + 1>(x, signed_scale);
}

// `step` of consumer.cuh: tile t, whose codes are in p, and the scores of the next.
template <Kind KIND, bool MASKED>
GW_DEVICE void step_in_slices(Consumer& x, const Where& where, u32 t, u32 tiles, const SoftCap& cap) {
    const f32 v_scale = value_scale(where, t);
    await_pair(x);
    add_slices<KIND, true>(x, v_scale);
    gw::wgmma_wait<0>();
    gw::wgmma_settle(x.scores);
    if (t + 2 == tiles) release(barriers().q_empty);
    release_pair(x);
    if (softmax<KIND, MASKED>(x, where, t + 1, cap)) rescale(x);
}
