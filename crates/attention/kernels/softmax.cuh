#pragma once
// Softmax in eighths of log2, which are the steps of e4m3 codes: 2^y has the code t = 8 (y + 7) at powers of two, and less
// between them, where 2^y is curved and codes are not. With a = 8 log2(e) scale / (quantisers' scales), t = a s + bias
// for a score s: one fused multiply-add on two f16 scores at once. The bias holds 128, whose unit in the last place is
// 1/8: the low bits of the sum are t in eighths, three of a fraction below seven of a code. Below 128 t is cut off, code 0.
//
// The curve: with f the six bits of t's place between powers of two, 8 (2^(f/64) - 1) = f/8 - 0.686 (1 - ((f - 32) / 32)^2)
// to 0.02, so the code is t - 0.686 + u^2 with u = 0.02588 (f - 32). The constant is part of the bias, and so is the half
// that rounds when the fraction is cut off: by an addition that moves the unit in the last place to a whole code.
//
// The normaliser is the sum of the codes' values, so that what all codes have in common cancels.
// Codes leave HEADROOM above the row's maximum; only when a tile outgrows it are the bias and the sums adjusted.
//
// Scores of any size. With a <= ORDINARY no a s leaves f16. Of other tiles t is a (s - c) + b, with c the largest f16 for which
// a c is not above the row's level: s - c is exact where it matters, and what is out of range is far below, code 0. Tiles with
// numbers that are not finite (marks.cuh) are looked through first: a NaN, or plus infinity, among a row's scores makes the row's
// sums NaN; minus infinity has no weight. A warpgroup looks for such tiles before its first (`all_ordinary`), and where there is
// none, its loop has no code for them: Kind::Ordinary. What a tile gives is the same in both.

#include "gw/gw.cuh"
#include "gw/half.cuh"
#include "dimensions.cuh"
#include "marks.cuh"
#include "shared.cuh"

constexpr bool TURNS = FEATURES & WITH_TURNS, CURVE = FEATURES & WITH_CURVE;
constexpr bool WINDOW = FEATURES & WITH_WINDOW, SINKS = FEATURES & WITH_SINKS, SOFT_CAP = FEATURES & WITH_SOFT_CAP;
constexpr bool PACKED = FEATURES & WITH_SEQUENCES;
constexpr u32 V_ROWS = VALUE_DIM + SUM_ROWS;
// Sums of values this long leave no registers for as many sums of a group of tiles: see slices.cuh.
constexpr bool SLICED = VALUE_DIM > 128;
constexpr u32 SLICE = 64, SLICES = VALUE_DIM / SLICE;
static_assert(VALUE_DIM % SLICE == 0, "whole slices");
constexpr u32 PART_ROWS = SLICED ? SLICE + SUM_ROWS : V_ROWS;

// The code of the row's maximum: 2^4; 448, the largest e4m3, is 38 steps above.
constexpr f32 TOP_CODE = 88.0f;
constexpr f32 HEADROOM = 36.0f;
// What the bias adds to a code: 128, and 1/2 - 0.686 (or, of a straight line, half of that) in eighths.
constexpr f32 BASE = CURVE ? 127.875f : 128.125f;
constexpr f32 LIMIT = BASE + TOP_CODE + HEADROOM;
// u = SLOPE (1024 + f) - OFFSET; both are exact in f16.
constexpr f32 SLOPE = 0.02587890625f;
constexpr f32 OFFSET = 27.296875f;
// From [128, 256) to [1024, 1152), where the unit in the last place is a whole code, less 1/2: rounding cuts off.
constexpr f32 WHOLE = 895.5f;
constexpr u32 MINUS_INFINITY = 0xFC00, PLUS_INFINITY = 0x7C00;
// Scores are at most 60000: times this, and with START added, they are f16 that outgrow every headroom.
constexpr f32 ORDINARY = 0.5f;
constexpr f32 START = 34000.0f, LOWEST = -3e38f;
// Biases and factors beyond are kept from f16's infinity; a row's level is then in f32 alone.
constexpr f32 LARGEST_BIAS = 60000.0f, LARGEST_HALF = 65504.0f;
// Beyond, products with scores would leave f32.
constexpr f32 LARGEST_FACTOR = 1e30f;
constexpr u32 NO_MARKS = ~0u;

// What a warpgroup's tiles may be.
enum class Kind : u32 { Ordinary, Any };

// The thread's two rows.
struct Rows {
    // a s of what has the code TOP_CODE.
    f32 level[2];
    // BASE + TOP_CODE - level as f16x2.
    u32 bias[2];
};

// What scores become with a soft cap: the largest, and what they are multiplied with before (`Problem`).
struct SoftCap {
    f32 cap, factor;
};

// A place in the ring.
struct Place {
    u32 stage, phase;
};

GW_DEVICE void advance(Place& place) {
    if (++place.stage == STAGES) {
        place.stage = 0;
        place.phase ^= 1;
    }
}

// What a consumer's thread holds.
struct Consumer {
    u32 group;
    u64 q_operand, k_operand, v_operand;
    Place place;
    f32 q_scale;
    // The tile of queries, if it has marks.
    u32 q_marks;
    // Of 32 tiles, one a lane.
    f32 k_scales;
    // The last key that each row sees, and the first; relative to the item's first.
    i32 last[2], first[2];
    // The warpgroup's first tile.
    u32 start;
    Rows rows;
    f32 correction[2];
    u32 scores[KEY_TILE / 4], p[KEY_TILE / 32][4];
    f32 out[V_ROWS / 2], part[PART_ROWS / 2];
};

// Where scales and marks (marks.cuh) of an item's tiles lie: the including kernel's. `scale_of_values` is that of a group of tiles.
struct Where;
GW_DEVICE f32 scale_of_keys(const Where& where, u32 t);
GW_DEVICE f32 scale_of_values(const Where& where, u32 group);
GW_DEVICE const u8* marks_of_queries(const Where& where, const Consumer& x);
GW_DEVICE const u8* marks_of_keys(const Where& where, u32 t);
GW_DEVICE const u32* marks_of_values(const Where& where, u32 t);
// Before the first tile, and before tile t, a multiple of 32: gets ready what `value_scale` gives of the tiles from the one before on.
GW_DEVICE void prepare_value_scales(const Where& where, u32 t, u32 end);
GW_DEVICE f32 value_scale(const Where& where, u32 t);

// The larger of both halves, in both.
GW_DEVICE u32 both_maximum(u32 pair) { return gw::half_maximum(pair, gw::permute_bytes(pair, pair, 0x1032)); }

// The level of a row with the maximum `top`: the one whose bias is an f16, where there is one.
template <Kind KIND>
GW_DEVICE f32 level_for(f32 top) {
    const f32 bias = BASE + TOP_CODE - top, level = BASE + TOP_CODE - gw::f16_to_f32(gw::f32_to_f16(bias));
    return KIND == Kind::Ordinary || gw::absolute(bias) <= LARGEST_BIAS ? level : top;
}

template <Kind KIND>
GW_DEVICE u32 bias_for(f32 level) {
    const f32 bias = BASE + TOP_CODE - level;
    return gw::half_splat(KIND == Kind::Ordinary ? bias : gw::minimum(gw::maximum(bias, -LARGEST_BIAS), LARGEST_BIAS));
}

// 2^(x / 8).
GW_DEVICE f32 power_of_eighths(f32 x) { return gw::exp2(0.125f * x); }

// Masks the scores of keys of tile t that the thread's rows do not see.
GW_DEVICE void mask(Consumer& x, u32 t) {
    const i32 column = (i32)(t * KEY_TILE + 2 * (gw::lane() % 4));
    const i32 ends[2] = {x.last[0] - column, x.last[1] - column};
    const i32 starts[2] = {WINDOW ? x.first[0] - column : 0, WINDOW ? x.first[1] - column : 0};
    GW_UNROLL
    for (u32 i = 0; i < KEY_TILE / 4; ++i) {
        const i32 key = 8 * (i / 2), end = ends[i % 2], start = starts[i % 2];
        // The second of the pair goes first: without it the first may still be seen.
        if (key + 1 > end) x.scores[i] = gw::permute_bytes(x.scores[i], MINUS_INFINITY, 0x5410);
        if (key > end) x.scores[i] = MINUS_INFINITY << 16 | MINUS_INFINITY;
        if (WINDOW && key < start) x.scores[i] = gw::permute_bytes(x.scores[i], MINUS_INFINITY, 0x3254);
        if (WINDOW && key + 1 < start) x.scores[i] = MINUS_INFINITY << 16 | MINUS_INFINITY;
    }
}

// tanh(x log(2) / 2).
GW_DEVICE f32 tanh_of_halved_log2(f32 x) { return gw::fma(-2.0f, gw::reciprocal(1.0f + gw::exp2(x)), 1.0f); }

// Scores become tanh(a s / cap), with a cap that is in eighths of log2 as a s is. The factor is 2 log2(e) a / cap.
GW_DEVICE void cap_scores(Consumer& x, f32 factor) {
    GW_UNROLL
    for (u32 i = 0; i < KEY_TILE / 4; ++i) {
        const f32 low = gw::f16_to_f32((u16)x.scores[i]), high = gw::f16_to_f32((u16)(x.scores[i] >> 16));
        x.scores[i] = gw::f32_to_f16x2(tanh_of_halved_log2(factor * low), tanh_of_halved_log2(factor * high));
    }
}

// Raises the levels to the rows' maxima; `correction` is what sums so far must be multiplied with. `highest` has the
// thread's largest scores.
template <Kind KIND>
GW_DEVICE void adjust(const u32 (&highest)[2], f32 a, Rows& rows, f32 (&correction)[2]) {
    // Both rows in one register: two exchanges serve them.
    u32 pair = gw::permute_bytes(both_maximum(highest[0]), both_maximum(highest[1]), 0x5410);
    pair = gw::half_maximum(pair, gw::shuffle_xor(pair, 1));
    pair = gw::half_maximum(pair, gw::shuffle_xor(pair, 2));
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        const f32 before = rows.level[half];
        rows.level[half] = gw::maximum(before, level_for<KIND>(a * gw::f16_to_f32((u16)(pair >> 16 * half))));
        rows.bias[half] = bias_for<KIND>(rows.level[half]);
        const f32 factor = power_of_eighths(before - rows.level[half]);
        // A row that is not a number was found already.
        correction[half] = KIND == Kind::Any ? correction[half] * factor : factor;
    }
}

GW_DEVICE void highest_of(const u32 (&scores)[KEY_TILE / 4], u32 (&highest)[2]) {
    highest[0] = scores[0];
    highest[1] = scores[1];
    GW_UNROLL
    for (u32 i = 2; i < KEY_TILE / 4; ++i) highest[i % 2] = gw::half_maximum(highest[i % 2], scores[i]);
}

// The code of p, in the low byte of each half, from 128 + 8 (y + 7) and what BASE adds.
GW_DEVICE u32 code_of(u32 t) {
    t = gw::half_maximum(t, gw::half_splat(128.0f));
    if (CURVE) {
        // The six bits below a power of two, as the f16 1024 + f.
        const u32 place = gw::logic3<0xEA>(0x003F003Fu, t, 0x64006400u);
        const u32 u = gw::half_fma(place, gw::half_splat(SLOPE), gw::half_splat(-OFFSET));
        t = gw::half_fma(u, u, t);
    }
    return gw::half_add(t, gw::half_splat(WHOLE));
}

// Which of the thread's keys have an infinity: bit 2 j + i for key i of its pair in the j-th eight.
GW_DEVICE u32 unbounded_keys(const u8* marks) {
    u32 found = 0;
    for (u32 j = 0; j < KEY_TILE / 8; ++j) {
        const u8* pair = marks + 8 * j + 2 * (gw::lane() % 4);
        found |= ((u32)pair[0] | (u32)pair[1] << 1) << 2 * j;
    }
    return found;
}

// Gives scores of rows and keys with an infinity their value: minus infinity, or a row that is not a number. What is to be
// capped may be plus infinity too.
GW_DEVICE void resolve(u32 (&scores)[KEY_TILE / 4], const bool (&row_unbounded)[2], u32 key_unbounded, bool (&poisoned)[2]) {
    GW_UNROLL
    for (u32 i = 0; i < KEY_TILE / 4; ++i) {
        GW_UNROLL
        for (u32 j = 0; j < 2; ++j) {
            const f32 score = gw::f16_to_f32((u16)(scores[i] >> 16 * j));
            const bool unbounded = row_unbounded[i % 2] || (key_unbounded >> (i / 2 * 2 + j) & 1);
            const u32 value = score < 0.0f ? MINUS_INFINITY : PLUS_INFINITY;
            if (score != score || (unbounded && (SOFT_CAP ? score == 0.0f : score >= 0.0f))) poisoned[i % 2] = true;
            else if (unbounded) scores[i] = gw::permute_bytes(scores[i], value, j == 0 ? 0x3254 : 0x5410);
        }
    }
}

// Which rows have a score that is not a number, or plus infinity. Scores that are minus infinity become it.
GW_DEVICE void find_poison(Consumer& x, f32 signed_a, const Where& where, u32 t, bool (&poisoned)[2]) {
    // A factor that is not a number is that of scales that are none.
    poisoned[0] = poisoned[1] = signed_a != signed_a;
    const bool has_keys = signed_a == signed_a && is_marked(signed_a);
    if (!has_keys && x.q_marks == NO_MARKS) return;
    bool unbounded[2] = {false, false};
    if (x.q_marks != NO_MARKS) {
        const u8* marks = marks_of_queries(where, x) + 16 * (gw::warp() % 4) + gw::lane() / 4;
        unbounded[0] = marks[0] != 0;
        unbounded[1] = marks[8] != 0;
    }
    resolve(x.scores, unbounded, has_keys ? unbounded_keys(marks_of_keys(where, t)) : 0, poisoned);
}

// Makes the sums of rows NaN that one of their four lanes found poison in.
GW_DEVICE void poison(Consumer& x, const bool (&poisoned)[2]) {
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        if (gw::ballot(poisoned[half]) >> (gw::lane() & ~3u) & 15) x.correction[half] = gw::bits<f32>(NOT_A_NUMBER);
    }
}

// The softmax of a tile with a large factor, whose scores are masked.
GW_DEVICE void softmax_of_large(Consumer& x, f32 a) {
    u32 highest[2], center[2], shift[2];
    highest_of(x.scores, highest);
    adjust<Kind::Any>(highest, a, x.rows, x.correction);
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        const f32 level = x.rows.level[half];
        const f32 ratio = a > 0.0f ? gw::minimum(gw::maximum(level / a, -LARGEST_HALF), LARGEST_HALF) : 0.0f;
        u16 c = gw::f32_to_f16(ratio);
        // The f16 below has the bits before those of a positive one, after those of a negative one.
        if (a > 0.0f && gw::multiply(a, gw::f16_to_f32(c)) > level) c = (u16)(ratio > 0.0f ? c - 1 : c + 1);
        center[half] = gw::half_splat(-gw::f16_to_f32(c));
        shift[half] = gw::half_splat(BASE + TOP_CODE - (level - gw::multiply(a, gw::f16_to_f32(c))));
    }
    const u32 factor = gw::half_splat(gw::minimum(a, LARGEST_HALF));
    GW_UNROLL
    for (u32 i = 0; i < KEY_TILE / 4; ++i) {
        x.scores[i] = code_of(gw::half_fma(gw::half_add(x.scores[i], center[i % 2]), factor, shift[i % 2]));
    }
}

// Whether a tile's scores are times a factor that is neither too large, nor negative, nor a NaN. Capped scores are never too
// large.
GW_DEVICE bool is_ordinary(const Consumer& x, f32 signed_a) {
    const f32 largest = SOFT_CAP ? LARGEST_FACTOR : ORDINARY;
    return gw::bits<u32>(signed_a) <= gw::bits<u32>(largest) && x.q_marks == NO_MARKS;
}

// The scales from place `first` on, one a lane; past the end, the last.
GW_DEVICE f32 scales_from(const Where& where, u32 first, u32 end) {
    return scale_of_keys(where, gw::lesser(first + gw::lane(), end - 1));
}

// The scales of SCANNED tiles of keys and of their values, one a lane.
struct Scales {
    f32 keys[GROUP], values;
};
constexpr u32 SCANNED = 32 * GROUP;

GW_DEVICE Scales scan(const Where& where, u32 first, u32 end) {
    Scales scales;
    GW_UNROLL
    for (u32 i = 0; i < GROUP; ++i) scales.keys[i] = scales_from(where, first + 32 * i, end);
    scales.values = scale_of_values(where, gw::lesser(first / GROUP + gw::lane(), (end + GROUP - 1) / GROUP - 1));
    return scales;
}

// Whether all tiles up to `end` are ordinary, and none of their values is marked. `scales` are those of the first.
GW_DEVICE bool all_ordinary(const Consumer& x, Scales scales, const Where& where, u32 end) {
    // Marked scales have a sign, and larger bits than all others.
    u32 largest = 0, signs = 0;
    GW_UNROLL_BY(1)
    for (u32 first = 0;;) {
        GW_UNROLL
        for (u32 i = 0; i < GROUP; ++i) largest = gw::greater(largest, gw::bits<u32>(scales.keys[i]));
        signs |= gw::bits<u32>(scales.values);
        first += SCANNED;
        if (first >= end) break;
        scales = scan(where, first, end);
    }
    return !gw::any(!is_ordinary(x, x.q_scale * gw::bits<f32>(largest)) || signs >> 31);
}

// The codes of tile t in place of its scores. Returns whether some row of the warp outgrew its headroom; `correction` is then
// what the rows' sums so far must be multiplied with.
template <Kind KIND, bool MASKED>
GW_DEVICE bool softmax(Consumer& x, const Where& where, u32 t, const SoftCap& cap) {
    f32 a = x.q_scale * gw::shuffle(x.k_scales, t % 32);
    const bool ordinary = KIND == Kind::Ordinary || is_ordinary(x, a);
    if (MASKED) mask(x, t);
    if (KIND == Kind::Any) {
        x.correction[0] = x.correction[1] = 1.0f;
        if (!ordinary) {
            bool poisoned[2];
            find_poison(x, a, where, t, poisoned);
            poison(x, poisoned);
        }
        a = gw::minimum(gw::absolute(a), LARGEST_FACTOR);
        if (!SOFT_CAP && a > ORDINARY) {
            softmax_of_large(x, a);
            return true;
        }
    }
    if (SOFT_CAP) {
        cap_scores(x, a * cap.factor);
        a = cap.cap;
        if (MASKED) mask(x, t);
    }
    const u32 factor = gw::half_splat(a), limit = gw::half_splat(LIMIT);
    u32 highest[2];
    highest_of(x.scores, highest);
    const u32 top = gw::half_maximum(gw::half_fma(highest[0], factor, x.rows.bias[0]),
                                     gw::half_fma(highest[1], factor, x.rows.bias[1]));
    const bool outgrown = gw::any(gw::half_maximum(top, limit) != limit);
    if (outgrown) adjust<KIND>(highest, a, x.rows, x.correction);
    GW_UNROLL
    for (u32 i = 0; i < KEY_TILE / 4; ++i) x.scores[i] = code_of(gw::half_fma(x.scores[i], factor, x.rows.bias[i % 2]));
    return outgrown || !ordinary;
}

// Codes, four to a register, in the order of wgmma's A operand.
GW_DEVICE void pack(const u32 (&codes)[KEY_TILE / 4], u32 (&p)[KEY_TILE / 32][4]) {
    GW_UNROLL
    for (u32 i = 0; i < KEY_TILE / 8; ++i) {
        const u32 step = i / 4, half = i % 2, quad = i / 2 % 2;
        const u32 word = 8 * step + 4 * quad + half;
        p[step][2 * quad + half] = gw::permute_bytes(codes[word], codes[word + 2], 0x6420);
    }
}
