#include "gw/wgmma.cuh"
#include "marks.cuh"
#include "numbers.cuh"

// o <- softmax(scale q k^T + mask) v for e4m3 q, k, v.
//
// Images (made by the quantiser, one bulk copy a tile, rows swizzled as wgmma reads them):
//   q  tiles of 64 query rows x DIM bytes;
//   k  tiles of 128 keys x DIM bytes;
//   v  tiles of (DIM + 8) rows x 128 keys: v transposed, and below it a row of ones and seven of zeros, so that the
//      product p v also gives the sum of p. The keys of each 16 stand in the order in which q k^T leaves them in
//      registers: p is never shuffled.
//
// A block is CONSUMERS warpgroups of 64 query rows each and one more that copies, through a ring of STAGES pairs: the keys
// of a tile and the values of the one before. Each consumer issues q k^T of the one and p v of the other together, and works
// on the softmax as soon as the scores are there; consumers take turns in issuing. A block that is done with its rows
// goes on with others from the list of items, whose first tiles are copied meanwhile.
//
// Softmax in eighths of log2, which are the steps of e4m3 codes: 2^y has the code t = 8 (y + 7) at powers of two, and less
// between them, where 2^y is curved and codes are not. With a = 8 log2(e) scale / (quantisers' scales), t = a s + bias
// for a score s: one fused multiply-add on two f16 scores at once. The bias holds 128, whose unit in the last place is
// 1/8: the low bits of the sum are t in eighths, three of a fraction below seven of a code. Below 128 t is cut off, code 0.
//
// The curve: with f the six bits of t's place between powers of two, 8 (2^(f/64) - 1) = f/8 - 0.686 (1 - ((f - 32) / 32)^2)
// to 0.02, so the code is t - 0.686 + u^2 with u = 0.02588 (f - 32). The constant is part of the bias, and so is the half
// that rounds when the fraction is cut off: by an addition that moves the unit in the last place to a whole code.
//
// Products of 8-bit numbers are added up with 14 bits of significand: a sum over thousands of keys would lose what each
// tile adds. So the tensor cores add up a GROUP of tiles at a time, and the rest is added in f32. A group of tiles of
// values has one scale.
//
// The normaliser is the sum of the codes' values, so that what all codes have in common cancels.
// Codes leave HEADROOM above the row's maximum; only when a tile outgrows it are the bias and the sums adjusted.
//
// Scores of any size. With a <= ORDINARY no a s leaves f16. Of other tiles t is a (s - c) + b, with c the largest f16 for which
// a c is not above the row's level: s - c is exact where it matters, and what is out of range is far below, code 0. Tiles with
// numbers that are not finite (marks.cuh) take the same way: a NaN, or plus infinity, among a row's scores makes the row's
// sums NaN; minus infinity has no weight.

// DIM, GROUP (tiles that the tensor cores add up before f32 does; they share a scale of values), OUT_FORMAT, CONSUMERS, STAGES,
// TURNS and CURVE are the host's (cuda/schedule.rs), and so is SHARED_BYTES, which it launches with.

constexpr Number OUT_NUMBER = (Number)OUT_FORMAT;
typedef Bits<OUT_NUMBER> Out;
typedef Block<DIM, CONSUMERS> BlockForm;
constexpr gw::Swizzle SWIZZLE = HeadDimension<DIM>::swizzle;
constexpr u32 THREADS = WARPGROUP * (CONSUMERS + 1);
constexpr u32 V_ROWS = DIM + SUM_ROWS;
constexpr u32 Q_BYTES = QUERY_TILE * DIM;
constexpr u32 K_BYTES = KEY_TILE * DIM;
constexpr u32 V_BYTES = V_ROWS * KEY_TILE;
// Shared memory: queries, the rings of keys and of values, the barriers.
constexpr u32 K_AT = CONSUMERS * Q_BYTES;
constexpr u32 V_AT = K_AT + STAGES * K_BYTES;
constexpr u32 BARRIERS_AT = V_AT + STAGES * V_BYTES;
static_assert(BARRIERS_AT + BARRIER_BYTES * (2 + 2 * STAGES) == SHARED_BYTES, "the host's shared memory");

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
constexpr u32 MINUS_INFINITY = 0xFC00;
// Scores are at most 60000: times this, and with START added, they are f16 that outgrow every headroom.
constexpr f32 ORDINARY = 0.5f;
constexpr f32 START = 34000.0f, LOWEST = -3e38f;
// Biases and factors beyond are kept from f16's infinity; a row's level is then in f32 alone.
constexpr f32 LARGEST_BIAS = 60000.0f, LARGEST_HALF = 65504.0f;
// Beyond, products with scores would leave f32.
constexpr f32 LARGEST_FACTOR = 1e30f;
constexpr u32 NO_MARKS = ~0u;

// What a block works on at a time: rows of one head, and some of its keys.
struct Item {
    u32 first_row, first_tile, tiles, split;
    u32 batch, head;
    u64 q_head, k_head;
};

GW_DEVICE Item item_at(u32 number, const Problem& problem) {
    const u32 blocks = problem.query_tiles / CONSUMERS, rows_number = number / problem.splits;
    Item item;
    item.split = number % problem.splits;
    item.q_head = rows_number / blocks;
    item.first_row = (blocks - 1 - rows_number % blocks) * (QUERY_TILE * CONSUMERS);
    item.batch = (u32)item.q_head / problem.heads;
    item.head = (u32)item.q_head % problem.heads;
    item.k_head = item.batch * problem.key_heads + item.head / (problem.heads / problem.key_heads);
    const i32 seen = (i32)(item.first_row + QUERY_TILE * CONSUMERS) + problem.diagonal;
    const u32 tiles = seen <= 0 ? 0 : gw::lesser((u32)(seen + KEY_TILE - 1) / KEY_TILE, problem.key_tiles);
    item.first_tile = item.split * problem.split_tiles;
    item.tiles = tiles <= item.first_tile ? 0 : gw::lesser(tiles - item.first_tile, problem.split_tiles);
    return item;
}

// The block's next item from place i of the list on, or NO_ITEM.
GW_DEVICE u32 item_number(const u32* items, u32 i, const Problem& problem) {
    if (i >= problem.items) return NO_ITEM;
    return problem.items == gw::blocks_x() ? i : gw::load_readonly(items + i);
}

// The thread's two rows.
struct Rows {
    // a s of what has the code TOP_CODE.
    f32 level[2];
    // BASE + TOP_CODE - level as f16x2.
    u32 bias[2];
};

// Scales and marks (marks.cuh) of the images.
struct Beside {
    const f32 *q_scales, *k_scales, *v_scales;
    const u8 *q_marks, *k_marks;
    const u32* v_marks;
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
    // The sign bit is set once there were values with marks.
    u32 v_signs;
    i32 last[2];
    Rows rows;
    f32 correction[2];
    u32 scores[KEY_TILE / 4], p[KEY_TILE / 32][4];
    f32 out[V_ROWS / 2], part[V_ROWS / 2];
};

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

// The larger of both halves, in both.
GW_DEVICE u32 both_maximum(u32 pair) { return gw::half_maximum(pair, gw::permute_bytes(pair, pair, 0x1032)); }

// The level of a row with the maximum `top`: the one whose bias is an f16, where there is one.
GW_DEVICE f32 level_for(f32 top) {
    const f32 bias = BASE + TOP_CODE - top;
    return gw::absolute(bias) <= LARGEST_BIAS ? BASE + TOP_CODE - gw::f16_to_f32(gw::f32_to_f16(bias)) : top;
}

GW_DEVICE u32 bias_for(f32 level) {
    return gw::half_splat(gw::minimum(gw::maximum(BASE + TOP_CODE - level, -LARGEST_BIAS), LARGEST_BIAS));
}

// 2^(x / 8).
GW_DEVICE f32 power_of_eighths(f32 x) { return gw::exp2(0.125f * x); }

// Masks the scores of keys that the thread's rows do not see. `last` is the last visible key of each row, relative to the
// tile.
GW_DEVICE void mask(u32 (&scores)[KEY_TILE / 4], const i32 (&last)[2]) {
    const i32 column = 2 * (gw::lane() % 4);
    const i32 ends[2] = {last[0] - column, last[1] - column};
    GW_UNROLL
    for (u32 i = 0; i < KEY_TILE / 4; ++i) {
        const i32 key = 8 * (i / 2), end = ends[i % 2];
        // The second of the pair goes first: without it the first may still be seen.
        if (key + 1 > end) scores[i] = gw::permute_bytes(scores[i], MINUS_INFINITY, 0x5410);
        if (key > end) scores[i] = MINUS_INFINITY << 16 | MINUS_INFINITY;
    }
}

// Raises the levels to the rows' maxima; `correction` is what sums so far must be multiplied with. `highest` has the
// thread's largest scores.
GW_DEVICE void adjust(const u32 (&highest)[2], f32 a, Rows& rows, f32 (&correction)[2]) {
    // Both rows in one register: two exchanges serve them.
    u32 pair = gw::permute_bytes(both_maximum(highest[0]), both_maximum(highest[1]), 0x5410);
    pair = gw::half_maximum(pair, gw::shuffle_xor(pair, 1));
    pair = gw::half_maximum(pair, gw::shuffle_xor(pair, 2));
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        const f32 before = rows.level[half];
        rows.level[half] = gw::maximum(before, level_for(a * gw::f16_to_f32((u16)(pair >> 16 * half))));
        rows.bias[half] = bias_for(rows.level[half]);
        correction[half] = power_of_eighths(before - rows.level[half]);
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

// Gives scores of rows and keys with an infinity their value: minus infinity, or a row that is not a number.
GW_DEVICE void resolve(u32 (&scores)[KEY_TILE / 4], const bool (&row_unbounded)[2], u32 key_unbounded, bool (&poisoned)[2]) {
    GW_UNROLL
    for (u32 i = 0; i < KEY_TILE / 4; ++i) {
        GW_UNROLL
        for (u32 j = 0; j < 2; ++j) {
            const f32 score = gw::f16_to_f32((u16)(scores[i] >> 16 * j));
            const bool unbounded = row_unbounded[i % 2] || (key_unbounded >> (i / 2 * 2 + j) & 1);
            if (score != score || (unbounded && score >= 0.0f)) poisoned[i % 2] = true;
            else if (unbounded) scores[i] = gw::permute_bytes(scores[i], MINUS_INFINITY, j == 0 ? 0x3254 : 0x5410);
        }
    }
}

// Which of the thread's two rows have a score that is not a number, or plus infinity. Scores that are minus infinity become it.
GW_DEVICE void find_poison(Consumer& x, f32 signed_a, u64 k_tile, const Beside& beside, bool (&poisoned)[2]) {
    bool unbounded[2] = {false, false};
    if (x.q_marks != NO_MARKS) {
        const u8* marks = beside.q_marks + (u64)x.q_marks * QUERY_TILE + 16 * (gw::warp() % 4) + gw::lane() / 4;
        unbounded[0] = marks[0] != 0;
        unbounded[1] = marks[8] != 0;
    }
    const u32 keys = is_marked(signed_a) ? unbounded_keys(beside.k_marks + k_tile * KEY_TILE) : 0;
    resolve(x.scores, unbounded, keys, poisoned);
}

// The softmax of any tile. The factor is negative for keys with marks.
GW_DEVICE bool softmax_of_any(Consumer& x, f32 signed_a, u64 k_tile, const Beside& beside) {
    const f32 a = gw::minimum(gw::absolute(signed_a), LARGEST_FACTOR);
    // A factor that is not a number is that of scales that are none.
    const bool no_factor = signed_a != signed_a;
    bool poisoned[2] = {no_factor, no_factor};
    if (!no_factor && (is_marked(signed_a) || x.q_marks != NO_MARKS)) find_poison(x, signed_a, k_tile, beside, poisoned);
    u32 highest[2], center[2], shift[2];
    highest_of(x.scores, highest);
    adjust(highest, a, x.rows, x.correction);
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        // Some lane of the row's four.
        if (gw::ballot(poisoned[half]) >> (gw::lane() & ~3u) & 15) x.correction[half] = gw::bits<f32>(NOT_A_NUMBER);
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
    return gw::any(!(x.correction[0] == 1.0f && x.correction[1] == 1.0f));
}

// The codes of tile t in place of its scores. Returns whether some row of the warp outgrew its headroom; `correction` is then
// what the rows' sums so far must be multiplied with. `k_scales` are the item's.
template <bool MASKED>
GW_DEVICE bool softmax(Consumer& x, const f32* k_scales, u32 t, const Beside& beside) {
    if (MASKED) {
        const i32 tile_last[2] = {x.last[0] - (i32)(t * KEY_TILE), x.last[1] - (i32)(t * KEY_TILE)};
        mask(x.scores, tile_last);
    }
    const f32 a = x.q_scale * gw::shuffle(x.k_scales, t % 32);
    // Neither too large, nor negative, nor a NaN.
    if (gw::bits<u32>(a) > gw::bits<u32>(ORDINARY) || x.q_marks != NO_MARKS) {
        return softmax_of_any(x, a, (u64)(k_scales - beside.k_scales) + t, beside);
    }
    const u32 factor = gw::half_splat(a), limit = gw::half_splat(LIMIT);
    u32 highest[2];
    highest_of(x.scores, highest);
    const u32 top = gw::half_maximum(gw::half_fma(highest[0], factor, x.rows.bias[0]),
                                     gw::half_fma(highest[1], factor, x.rows.bias[1]));
    const bool outgrown = gw::any(gw::half_maximum(top, limit) != limit);
    if (outgrown) adjust(highest, a, x.rows, x.correction);
    GW_UNROLL
    for (u32 i = 0; i < KEY_TILE / 4; ++i) x.scores[i] = code_of(gw::half_fma(x.scores[i], factor, x.rows.bias[i % 2]));
    return outgrown;
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

// One warp's arrival for all its lanes.
GW_DEVICE void release(gw::Mbarrier* empty) {
    if (gw::lane() == 0) gw::mbarrier_arrive(empty);
}

GW_DEVICE void produce(const u8* q, const u8* k, const u8* v, const u32* items, const Problem& problem) {
    const Barriers b = barriers();
    Place place = {0, 0};
    // A barrier that has not been used passes for the phase before its first.
    u32 q_phase = 1;
    for (u32 i = gw::block_x();; i += gw::blocks_x()) {
        const u32 number = item_number(items, i, problem);
        if (number == NO_ITEM) break;
        const Item item = item_at(number, problem);
        if (item.tiles == 0) continue;
        const u64 first_tile = item.k_head * problem.key_tiles + item.first_tile;
        const u8* from_k = k + first_tile * K_BYTES;
        const u8* from_v = v + first_tile * V_BYTES;
        gw::mbarrier_wait(b.q_empty, q_phase);
        q_phase ^= 1;
        gw::mbarrier_arrive_expect(b.q_full, CONSUMERS * Q_BYTES);
        gw::bulk_load(gw::shared<u8>(), q + (item.q_head * problem.query_tiles + item.first_row / QUERY_TILE) * Q_BYTES,
                      CONSUMERS * Q_BYTES, b.q_full);
        for (u32 t = 0; t <= item.tiles; ++t) {
            const bool has_keys = t < item.tiles, has_values = t > 0;
            const u32 s = place.stage;
            gw::Mbarrier* full = b.full + s;
            gw::mbarrier_wait(b.empty + s, place.phase ^ 1);
            gw::mbarrier_arrive_expect(full, (has_keys ? K_BYTES : 0) + (has_values ? V_BYTES : 0));
            if (has_keys) gw::bulk_load(gw::shared<u8>(K_AT + s * K_BYTES), from_k + (u64)t * K_BYTES, K_BYTES, full);
            if (has_values) {
                gw::bulk_load(gw::shared<u8>(V_AT + s * V_BYTES), from_v + (u64)(t - 1) * V_BYTES, V_BYTES, full);
            }
            advance(place);
        }
    }
}

GW_DEVICE void multiply_scores(Consumer& x) {
    const u64 k_operand = x.k_operand + x.place.stage * (K_BYTES / 16);
    gw::wgmma_settle(x.scores);
    gw::wgmma_fence();
    GW_UNROLL
    for (u32 step = 0; step < DIM / 32; ++step) {
        gw::WgmmaHalf<KEY_TILE>::ss(x.scores, x.q_operand + 2 * step, k_operand + 2 * step, step > 0);
    }
    gw::wgmma_commit();
}

// part <- p v of tile t, added to what is there except in the first tile of a group.
GW_DEVICE void multiply_values(Consumer& x, u32 t) {
    const u64 v_operand = x.v_operand + x.place.stage * (V_BYTES / 16);
    const bool goes_on = t % GROUP != 0;
    gw::wgmma_settle(x.part);
    GW_UNROLL
    for (u32 step = 0; step < KEY_TILE / 32; ++step) gw::wgmma_settle(x.p[step]);
    gw::wgmma_fence();
    GW_UNROLL
    for (u32 step = 0; step < KEY_TILE / 32; ++step) {
        gw::Wgmma<gw::E4M3, V_ROWS>::rs(x.part, x.p[step], v_operand + 2 * step, goes_on || step > 0);
    }
    gw::wgmma_commit();
}

// out <- out + part, values in their scale; the sum of p has none.
GW_DEVICE void promote(Consumer& x, f32 signed_scale) {
    x.v_signs |= gw::bits<u32>(signed_scale);
    const f32 scale = gw::absolute(signed_scale);
    GW_UNROLL
    for (u32 i = 0; i < DIM / 2; ++i) x.out[i] = gw::fma(x.part[i], scale, x.out[i]);
    GW_UNROLL
    for (u32 i = DIM / 2; i < V_ROWS / 2; ++i) x.out[i] += x.part[i];
}

GW_DEVICE void rescale(Consumer& x) {
    GW_UNROLL
    for (u32 i = 0; i < V_ROWS / 2; ++i) {
        x.out[i] *= x.correction[i / 2 % 2];
        x.part[i] *= x.correction[i / 2 % 2];
    }
}

GW_DEVICE void await_pair(const Consumer& x) { gw::mbarrier_wait(barriers().full + x.place.stage, x.place.phase); }

GW_DEVICE void release_pair(Consumer& x) {
    release(barriers().empty + x.place.stage);
    advance(x.place);
}

// Tile t, whose codes are in p, and the scores of the next.
template <bool MASKED>
GW_DEVICE void step(Consumer& x, const f32* k_scales, const f32* v_scales, u32 t, u32 tiles, const Beside& beside) {
    await_pair(x);
    take_turn(x.group);
    multiply_scores(x);
    multiply_values(x, t);
    pass_turn(x.group);
    gw::wgmma_wait<1>();
    gw::wgmma_settle(x.scores);
    if (t + 2 == tiles) release(barriers().q_empty);
    const bool outgrown = softmax<MASKED>(x, k_scales, t + 1, beside);
    gw::wgmma_settle(x.scores);
    const bool whole = t % GROUP == GROUP - 1;
    // A block of its own also keeps the assembler from waiting before the codes are made.
    if (whole || outgrown) {
        const f32 v_scale = gw::load_readonly(v_scales + t / GROUP);
        gw::wgmma_wait<0>();
        gw::wgmma_settle(x.part);
        if (whole) promote(x, v_scale);
        if (outgrown) rescale(x);
    }
    gw::wgmma_wait<0>();
    gw::wgmma_settle(x.part);
    release_pair(x);
    // Only now: the product before reads p until it is done.
    pack(x.scores, x.p);
}

// A warpgroup's sums over `tiles` tiles, and the codes of what stands for the rows' maxima. Keys count from the first of these.
GW_DEVICE void accumulate(Consumer& x, const f32* k_scales, const f32* v_scales, u32 tiles, i32 clear, const Beside& beside) {
    x.k_scales = gw::load_readonly(k_scales + gw::lesser(gw::lane(), tiles - 1));
    await_pair(x);
    take_turn(x.group);
    multiply_scores(x);
    pass_turn(x.group);
    gw::wgmma_wait<0>();
    gw::wgmma_settle(x.scores);
    release_pair(x);
    if (tiles == 1) release(barriers().q_empty);
    if (clear > 0) softmax<false>(x, k_scales, 0, beside);
    else softmax<true>(x, k_scales, 0, beside);
    // Nothing was added up yet, and still a row may be not a number.
    if (!(x.correction[0] + x.correction[1] >= 0.0f)) {
        GW_UNROLL
        for (u32 i = 0; i < V_ROWS / 2; ++i) x.out[i] *= x.correction[i / 2 % 2];
    }
    pack(x.scores, x.p);
    u32 t = 0;
    while (t + 1 < tiles) {
        if ((t + 1) % 32 == 0) x.k_scales = gw::load_readonly(k_scales + gw::lesser(t + 1 + gw::lane(), tiles - 1));
        const u32 stop = gw::lesser(tiles - 1, (t + 1) | 31);
        for (; t < stop && (i32)t + 1 < clear; ++t) step<false>(x, k_scales, v_scales, t, tiles, beside);
        for (; t < stop; ++t) step<true>(x, k_scales, v_scales, t, tiles, beside);
    }
    const f32 v_scale = gw::load_readonly(v_scales + t / GROUP);
    await_pair(x);
    take_turn(x.group);
    multiply_values(x, t);
    pass_turn(x.group);
    gw::wgmma_wait<0>();
    gw::wgmma_settle(x.part);
    release_pair(x);
    promote(x, v_scale);
}

// Adds the values that are not finite, of keys that the thread's rows see, to the sums. `v_marks` are the item's.
GW_DEVICE void add_marked_values(Consumer& x, const f32* v_scales, const u32* v_marks, u32 tiles) {
    for (u32 t = 0; t < tiles; ++t) {
        if (!is_marked(gw::load_readonly(v_scales + t / GROUP))) continue;
        GW_UNROLL
        for (u32 i = 0; i < DIM / 4; ++i) {
            const u32 column = 8 * (i / 2) + 2 * (gw::lane() % 4) + i % 2;
            const ColumnMark mark = from_word(gw::load_readonly(v_marks + t * DIM + column));
            if (mark.kind == ColumnMark::FINITE) continue;
            GW_UNROLL
            for (u32 half = 0; half < 2; ++half) {
                const bool seen = (i32)(t * KEY_TILE + mark.first) <= x.last[half];
                if (seen) x.out[4 * (i / 2) + 2 * half + i % 2] += addend(mark.kind);
            }
        }
    }
}

// A warpgroup's part of an item.
GW_DEVICE void attend(Consumer& x, u32 q_phase, const Beside& beside, const Problem& problem, const Item& item) {
    const u32 value_groups = (problem.key_tiles + GROUP - 1) / GROUP;
    const u64 q_tile = item.q_head * problem.query_tiles + item.first_row / QUERY_TILE + x.group;
    const u64 k_tile = item.k_head * problem.key_tiles + item.first_tile;
    const f32* k_scales = beside.k_scales + k_tile;
    const f32* v_scales = beside.v_scales + item.k_head * value_groups + item.first_tile / GROUP;
    const f32 q_scale = gw::load_readonly(beside.q_scales + q_tile);
    // Keys from here on are relative to the item's first.
    const i32 end = (i32)problem.keys - 1 - (i32)(item.first_tile * KEY_TILE);
    const i32 diagonal = problem.diagonal - (i32)(item.first_tile * KEY_TILE);
    const i32 first_row = (i32)(item.first_row + QUERY_TILE * x.group), row = first_row + 16 * (gw::warp() % 4) + gw::lane() / 4;
    x.last[0] = gw::lesser(row + diagonal, end);
    x.last[1] = gw::lesser(row + 8 + diagonal, end);
    x.q_scale = 8.0f * problem.log2_scale * gw::absolute(q_scale);
    x.q_marks = is_marked(q_scale) ? (u32)q_tile : NO_MARKS;
    x.v_signs = 0;
    // Tiles of which the warpgroup's rows see anything, and those of which all of them see every key.
    const i32 seen = gw::lesser(first_row + (i32)QUERY_TILE - 1 + diagonal, end) + 1;
    const u32 tiles = seen <= 0 ? 0 : gw::lesser((u32)(seen + KEY_TILE - 1) / KEY_TILE, item.tiles);
    const i32 clear = (gw::lesser(first_row + diagonal, end) + 1) / (i32)KEY_TILE;
    gw::mbarrier_wait(barriers().q_full, q_phase);
    if (tiles > 0) accumulate(x, k_scales, v_scales, tiles, clear, beside);
    else release(barriers().q_empty);
    if (x.v_signs >> 31) add_marked_values(x, v_scales, beside.v_marks + k_tile * DIM, tiles);
    // Pairs that only other warpgroups use.
    for (u32 t = tiles > 0 ? tiles + 1 : 0; t <= item.tiles; ++t) {
        await_pair(x);
        take_turn(x.group);
        pass_turn(x.group);
        release_pair(x);
    }
}

// o <- the item's sums, normalised, and the log-sum-exp of its scores.
GW_DEVICE void finish(const Consumer& x, Out* o, f32* lse, const Problem& problem, u32 first_row) {
    const u32 row = first_row + QUERY_TILE * x.group + 16 * (gw::warp() % 4) + gw::lane() / 4;
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        // Column DIM of the product, the sum of p, is with the first lane of each four.
        const f32 sum = gw::shuffle(x.out[DIM / 2 + 2 * half], gw::lane() & ~3u);
        const f32 scale = sum > 0.0f ? 1.0f / sum : 0.0f;
        if (row + 8 * half >= problem.rows) continue;
        Out* line = o + (u64)(row + 8 * half) * problem.row_stride + 2 * (gw::lane() % 4);
        GW_UNROLL
        for (u32 j = 0; j < DIM / 8; ++j) {
            store_pair<OUT_NUMBER>(line + 8 * j, x.out[4 * j + 2 * half] * scale, x.out[4 * j + 2 * half + 1] * scale);
        }
        if (gw::lane() % 4 == 0) {
            // log2 of the sum in units of one, the level undone: codes start at 2^-7.
            const f32 total = gw::log2(sum) + 7.0f + 0.125f * (x.rows.level[half] - TOP_CODE);
            lse[row + 8 * half] = sum == 0.0f ? gw::bits<f32>(0xFF800000u) : 0.69314718f * total;
        }
    }
}

GW_DEVICE void consume(const Beside& beside, const u32* items, Out* o, f32* lse, const Problem& problem) {
    Consumer x;
    // The same in all lanes, and the compiler should know.
    x.group = gw::shuffle(gw::warp() / 4, 0);
    x.q_operand = gw::wgmma_descriptor(gw::shared<u8>(x.group * Q_BYTES), SWIZZLE, 8 * DIM);
    x.k_operand = gw::wgmma_descriptor(gw::shared<u8>(K_AT), SWIZZLE, 8 * DIM);
    x.v_operand = gw::wgmma_descriptor(gw::shared<u8>(V_AT), gw::SWIZZLE_128, 1024);
    x.place = {0, 0};
    u32 q_phase = 0;
    // The last consumer lets the first begin.
    if (x.group == CONSUMERS - 1) pass_turn(x.group);
    for (u32 i = gw::block_x();; i += gw::blocks_x()) {
        const u32 number = item_number(items, i, problem);
        if (number == NO_ITEM) break;
        const Item item = item_at(number, problem);
        GW_UNROLL
        for (u32 j = 0; j < V_ROWS / 2; ++j) x.out[j] = 0.0f;
        // Low enough that the first tile always raises the level, and finite, so that no difference is not a number.
        x.rows = {{LOWEST, LOWEST}, {gw::half_splat(START), gw::half_splat(START)}};
        if (item.tiles > 0) {
            attend(x, q_phase, beside, problem, item);
            q_phase ^= 1;
        }
        finish(x, o + item.split * problem.split_stride + item.batch * problem.batch_stride + item.head * problem.head_stride,
               lse + item.split * problem.split_lse_stride + item.q_head * problem.rows, problem, item.first_row);
    }
    // The turn that the last consumer passed last.
    if (x.group == 0) take_turn(0);
}

GW_KERNEL_BOUNDED(attention, THREADS, BlockForm::resident)
(const u8* q, const u8* k, const u8* v, const f32* q_scales, const f32* k_scales, const f32* v_scales, const u8* q_marks,
 const u8* k_marks, const u32* v_marks, const u32* items, Out* o, f32* lse, Problem problem) {
    if (gw::thread() == 0) {
        const Barriers b = barriers();
        gw::mbarrier_init(b.q_full, 1);
        gw::mbarrier_init(b.q_empty, 4 * CONSUMERS);
        for (u32 s = 0; s < STAGES; ++s) {
            gw::mbarrier_init(b.full + s, 1);
            gw::mbarrier_init(b.empty + s, 4 * CONSUMERS);
        }
        gw::fence_mbarrier_init();
    }
    gw::sync_threads();
    gw::await_stream();
    gw::admit_next();

    if (gw::warp() >= 4 * CONSUMERS) {
        gw::registers_release<BlockForm::producer_registers>();
        if (gw::thread() == WARPGROUP * CONSUMERS) produce(q, k, v, items, problem);
    } else {
        gw::registers_acquire<BlockForm::consumer_registers>();
        consume({q_scales, k_scales, v_scales, q_marks, k_marks, v_marks}, items, o, lse, problem);
    }
}
