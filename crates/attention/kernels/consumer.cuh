#pragma once
// What a warpgroup does with tiles that a ring brings it: 64 query rows, the keys of one tile and the values of the one before, as
// attention.cuh says. Where tiles lie, and in which order, is the including kernel's.

#include "gw/wgmma.cuh"
#include "softmax.cuh"

typedef Block<DIM, CONSUMERS> BlockForm;
constexpr u32 THREADS = WARPGROUP * (CONSUMERS + 1);
constexpr u32 Q_BYTES = QUERY_TILE * DIM;
constexpr u32 K_BYTES = KEY_TILE * DIM;
constexpr u32 V_BYTES = V_ROWS * KEY_TILE;
// Shared memory: queries, the rings of keys and of values, the barriers.
constexpr u32 K_AT = CONSUMERS * Q_BYTES;
constexpr u32 V_AT = K_AT + STAGES * K_BYTES;
constexpr u32 BARRIERS_AT = V_AT + STAGES * V_BYTES;

struct Barriers {
    gw::Mbarrier *q_full, *q_empty, *full, *empty;
};

GW_DEVICE Barriers barriers() {
    gw::Mbarrier* first = gw::shared<gw::Mbarrier>(BARRIERS_AT);
    return {first, first + 1, first + 2, first + 2 + STAGES};
}

// Consumers issue their products in turn: while one's are computed, the others have time for their softmax.
GW_DEVICE void take_turn(u32 group) {
    if (TURNS && CONSUMERS > 1) gw::barrier_sync(1 + group, 256);
}
GW_DEVICE void pass_turn(u32 group) {
    if (TURNS && CONSUMERS > 1) gw::barrier_arrive(group + 1 == CONSUMERS ? 1 : 2 + group, 256);
}

// One warp's arrival for all its lanes.
GW_DEVICE void release(gw::Mbarrier* empty) {
    if (gw::lane() == 0) gw::mbarrier_arrive(empty);
}

GW_DEVICE void multiply_scores(Consumer& x) {
    const u64 k_operand = x.k_operand + x.place.stage * (K_BYTES / 16);
    gw::wgmma_settle(x.scores);
    gw::wgmma_fence();
    GW_UNROLL
    for (u32 step = 0; step < DIM / 32; ++step) {
        const u32 panel = 32 * step / PANEL, inside = 2 * (step % (PANEL / 32));
        gw::WgmmaHalf<KEY_TILE>::ss(x.scores, x.q_operand + panel * (QUERY_TILE * PANEL / 16) + inside,
                                    k_operand + panel * (KEY_TILE * PANEL / 16) + inside, step > 0);
    }
    gw::wgmma_commit();
}

// part <- p v of tile t, added to what is there except in the first tile of a group.
GW_DEVICE void multiply_values(Consumer& x, u32 t) {
    const u64 v_operand = x.v_operand + x.place.stage * (V_BYTES / 16);
    const bool goes_on = t % GROUP != 0 && !(WINDOW && t == x.start);
    gw::wgmma_settle(x.part);
    GW_UNROLL
    for (u32 step = 0; step < KEY_TILE / 32; ++step) gw::wgmma_settle(x.p[step]);
    gw::wgmma_fence();
    GW_UNROLL
    for (u32 step = 0; step < KEY_TILE / 32; ++step) {
        gw::Wgmma<gw::E4M3, PART_ROWS>::rs(x.part, x.p[step], v_operand + 2 * step, goes_on || step > 0);
    }
    gw::wgmma_commit();
}

// out <- out + part, values in their scale, which has a sign if they are marked; the sum of p has none.
template <Kind KIND>
GW_DEVICE void promote(Consumer& x, f32 signed_scale) {
    const f32 scale = KIND == Kind::Ordinary ? signed_scale : gw::absolute(signed_scale);
    GW_UNROLL
    for (u32 i = 0; i < VALUE_DIM / 2; ++i) x.out[i] = gw::fma(x.part[i], scale, x.out[i]);
    GW_UNROLL
    for (u32 i = VALUE_DIM / 2; i < V_ROWS / 2; ++i) x.out[i] += x.part[i];
}

GW_DEVICE void rescale(Consumer& x) {
    GW_UNROLL
    for (u32 i = 0; i < V_ROWS / 2; ++i) {
        x.out[i] *= x.correction[i / 2 % 2];
        // What slices gave is in `out` already.
        if (!SLICED) x.part[i] *= x.correction[i / 2 % 2];
    }
}

GW_DEVICE void await_pair(const Consumer& x) { gw::mbarrier_wait(barriers().full + x.place.stage, x.place.phase); }

GW_DEVICE void release_pair(Consumer& x) {
    release(barriers().empty + x.place.stage);
    advance(x.place);
}

// Uses what is above.
#include "slices.cuh"

// Tile t, whose codes are in p, and the scores of the next.
template <Kind KIND, bool MASKED>
GW_DEVICE void step(Consumer& x, const Where& where, u32 t, u32 tiles, const SoftCap& cap) {
    if constexpr (SLICED) {
        step_in_slices<KIND, MASKED>(x, where, t, tiles, cap);
    } else {
        await_pair(x);
        take_turn(x.group);
        multiply_scores(x);
        multiply_values(x, t);
        pass_turn(x.group);
        gw::wgmma_wait<1>();
        gw::wgmma_settle(x.scores);
        if (t + 2 == tiles) release(barriers().q_empty);
        const bool outgrown = softmax<KIND, MASKED>(x, where, t + 1, cap);
        gw::wgmma_settle(x.scores);
        const bool whole = t % GROUP == GROUP - 1;
        // A block of its own also keeps the assembler from waiting before the codes are made.
        if (whole || outgrown) {
            const f32 v_scale = value_scale(where, t);
            gw::wgmma_wait<0>();
            gw::wgmma_settle(x.part);
            if (whole) promote<KIND>(x, v_scale);
            if (outgrown) rescale(x);
        }
        gw::wgmma_wait<0>();
        gw::wgmma_settle(x.part);
        release_pair(x);
    }
    // Only now: the product before reads p until it is done.
    pack(x.scores, x.p);
}

// A warpgroup's tiles, counted from the item's first.
struct Tiles {
    // Those that some row sees are from x.start up to `end`; those of which all rows see every key, from `clear` up to `clear_end`.
    u32 end;
    i32 clear, clear_end;
};

GW_DEVICE bool is_clear(const Tiles& tiles, u32 t) { return (i32)t < tiles.clear_end && !(WINDOW && (i32)t < tiles.clear); }

// What is left once the scores of the first tile are there.
template <Kind KIND>
GW_DEVICE void accumulate_rest(Consumer& x, const Where& where, const Tiles& tiles, const SoftCap& cap) {
    // Code for tiles of any kind is long, and they are rare: all are masked, which changes nothing in those that are clear.
    constexpr bool ANY = KIND == Kind::Any;
    const u32 end = tiles.end, start = WINDOW ? x.start : 0;
    if (!ANY && is_clear(tiles, start)) softmax<KIND, ANY>(x, where, start, cap);
    else softmax<KIND, true>(x, where, start, cap);
    // Nothing was added up yet, and still a row may be not a number.
    if (ANY && !(x.correction[0] + x.correction[1] >= 0.0f)) {
        GW_UNROLL
        for (u32 i = 0; i < V_ROWS / 2; ++i) x.out[i] *= x.correction[i / 2 % 2];
    }
    pack(x.scores, x.p);
    u32 t = start;
    while (t + 1 < end) {
        if ((t + 1) % 32 == 0) {
            x.k_scales = scales_from(where, t + 1, end);
            prepare_value_scales(where, t + 1, end);
        }
        const u32 stop = gw::lesser(end - 1, (t + 1) | 31);
        if (!ANY) {
            if (WINDOW) {
                for (; t < stop && !is_clear(tiles, t + 1) && (i32)t + 1 < tiles.clear_end; ++t) {
                    step<KIND, true>(x, where, t, end, cap);
                }
            }
            for (; t < stop && (i32)t + 1 < tiles.clear_end; ++t) {
                step<KIND, ANY>(x, where, t, end, cap);
            }
        }
        for (; t < stop; ++t) step<KIND, true>(x, where, t, end, cap);
    }
    const f32 v_scale = scale_of_values(where, t / GROUP);
    await_pair(x);
    if constexpr (SLICED) {
        add_slices<KIND, false>(x, v_scale);
        release_pair(x);
    } else {
        take_turn(x.group);
        multiply_values(x, t);
        pass_turn(x.group);
        gw::wgmma_wait<0>();
        gw::wgmma_settle(x.part);
        release_pair(x);
        promote<KIND>(x, v_scale);
    }
}

// Whether one of the thread's rows sees values of tile t with this mark.
GW_DEVICE bool sees(const Consumer& x, const ColumnMark& mark, u32 t, u32 half) {
    const bool seen = (i32)(t * KEY_TILE + mark.first) <= x.last[half];
    // Between the first and the last there may be none that a short window sees: then this is too much.
    const bool passed = WINDOW && (i32)(t * KEY_TILE + mark.last) < x.first[half];
    return seen && !passed;
}

// Adds the values of tile t that are not finite, a pair of columns at a time: with windows, and as many sums as SLICED has, loads of
// all marks ahead would take registers that are in use.
GW_DEVICE void add_marked_pairs(Consumer& x, const u32* marks, u32 t) {
    GW_UNROLL_BY(1)
    for (u32 pair = 0; pair < VALUE_DIM / 8; ++pair) {
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) {
            const ColumnMark mark = from_word(gw::load_readonly(marks + 8 * pair + 2 * (gw::lane() % 4) + i % 2));
            if (mark.kind == ColumnMark::FINITE || !sees(x, mark, t, i / 2)) continue;
            GW_UNROLL
            for (u32 j = 0; j < VALUE_DIM / 8; ++j) {
                if (j == pair) x.out[4 * j + i] += addend(mark.kind);
            }
        }
    }
}

// Adds the values that are not finite, of keys that the thread's rows see, to the sums.
GW_DEVICE void add_marked_values(Consumer& x, const Where& where, u32 tiles) {
    for (u32 t = WINDOW ? x.start : 0; t < tiles; ++t) {
        if (!is_marked(scale_of_values(where, t / GROUP))) continue;
        if constexpr (SLICED && WINDOW) {
            add_marked_pairs(x, marks_of_values(where, t), t);
        } else {
            GW_UNROLL
            for (u32 i = 0; i < VALUE_DIM / 4; ++i) {
                const u32 column = 8 * (i / 2) + 2 * (gw::lane() % 4) + i % 2;
                const ColumnMark mark = from_word(gw::load_readonly(marks_of_values(where, t) + column));
                if (mark.kind == ColumnMark::FINITE) continue;
                GW_UNROLL
                for (u32 half = 0; half < 2; ++half) {
                    if (sees(x, mark, t, half)) x.out[4 * (i / 2) + 2 * half + i % 2] += addend(mark.kind);
                }
            }
        }
    }
}

// A warpgroup's sums over its tiles, and the levels of its rows.
GW_DEVICE void accumulate(Consumer& x, const Where& where, const Tiles& tiles, const SoftCap& cap) {
    // Whoever looks at them waits for the first product anyway.
    const Scales scales = scan(where, 0, tiles.end);
    x.k_scales = scales.keys[0];
    prepare_value_scales(where, 0, tiles.end);
    await_pair(x);
    take_turn(x.group);
    multiply_scores(x);
    pass_turn(x.group);
    gw::wgmma_wait<0>();
    gw::wgmma_settle(x.scores);
    release_pair(x);
    if (tiles.end == (WINDOW ? x.start : 0) + 1) release(barriers().q_empty);
    if (GW_LIKELY(all_ordinary(x, scales, where, tiles.end))) {
        accumulate_rest<Kind::Ordinary>(x, where, tiles, cap);
    } else {
        accumulate_rest<Kind::Any>(x, where, tiles, cap);
        add_marked_values(x, where, tiles.end);
    }
}

// Pairs that only other warpgroups use.
GW_DEVICE void skip_pairs(Consumer& x, u32 from, u32 to) {
    for (u32 t = from; t < to; ++t) {
        await_pair(x);
        take_turn(x.group);
        pass_turn(x.group);
        // Who has not seen the pair's phase yet would miss it.
        gw::sync_warp();
        release_pair(x);
    }
}

// Sums of nothing.
GW_DEVICE void clear(Consumer& x) {
    GW_UNROLL
    for (u32 i = 0; i < V_ROWS / 2; ++i) x.out[i] = 0.0f;
    // Low enough that the first tile always raises the level, and finite, so that no difference is not a number.
    x.rows = {{LOWEST, LOWEST}, {gw::half_splat(START), gw::half_splat(START)}};
    x.correction[0] = x.correction[1] = 1.0f;
}

// A row's sum of weights in units of 2^((level - TOP_CODE) / 8 + 7), and what sums so far must be multiplied with for that.
struct Weight {
    f32 sum, level, correction;
};

// The weight of a row and a sink. TOP_CODE stands for 2^4.
GW_DEVICE Weight with_sink(f32 sum, f32 level, f32 sink) {
    const f32 top = 8.0f * 1.4426950408f * sink, common = gw::maximum(level, top);
    const f32 correction = power_of_eighths(level - common);
    return {gw::fma(sum, correction, 16.0f * power_of_eighths(top - common)), common, correction};
}

// The log-sum-exp of a row's scores: log2 of the sum in units of one, the level undone, since codes start at 2^-7.
GW_DEVICE f32 log_of(const Weight& weight) {
    const f32 total = gw::log2(weight.sum) + 7.0f + 0.125f * (weight.level - TOP_CODE);
    return weight.sum == 0.0f ? gw::bits<f32>(0xFF800000u) : 0.69314718f * total;
}
