#include "gw/gw.cuh"
#include "gw/wgmma.cuh"

// o <- softmax(scale q k^T + mask) v for e4m3 q, k, v.
//
// Images (made by the quantiser, one bulk copy a tile, rows swizzled as wgmma reads them):
//   q  tiles of 64 query rows x DIM bytes;
//   k  tiles of 128 keys x DIM bytes;
//   v  tiles of (DIM + 8) rows x 128 keys: v transposed, and below it a row of ones and seven of zeros, so that the
//      product p v also gives the sum of p. The keys of each 16 stand in the order in which q k^T leaves them in
//      registers: p is never shuffled.
//
// A block is CONSUMERS warpgroups of 64 query rows each and one more that copies: a ring of STAGES key tiles and
// one of STAGES value tiles. Each consumer issues q k^T of the next tile and p v of this one together, and works on the
// softmax of the next as soon as its scores are there.
//
// Softmax in eighths of log2, which are the steps of e4m3 codes: 2^y has the code t = 8 (y + 7) at powers of two, and less
// between them, where 2^y is curved and codes are not. With a = 8 log2(e) scale / (quantisers' scales), t = a s + bias
// for a score s: one fused multiply-add on two f16 scores at once. The bias holds 128, whose unit in the last place is
// 1/8: the low bits of the sum are t in eighths, three of a fraction below seven of a code. Below 128 t is cut off, code 0.
//
// The curve: with f the six bits of t's place between powers of two, 8 (2^(f/64) - 1) = f/8 - 0.686 (1 - ((f - 32) / 32)^2)
// to 0.02, so the code is t - 0.686 + u^2 with u = 0.02588 (f - 32). The constant, and the half that rounds when the
// fraction is cut off, are part of the bias.
//
// Products of 8-bit numbers are added up with 14 bits of significand: a sum over thousands of keys would lose what each
// tile adds. So the tensor cores add up PROMOTE tiles at a time, and the rest is added in f32.
//
// The normaliser is the sum of the codes' values, so that what all codes have in common cancels.
// Codes leave HEADROOM above the row's maximum; only when a tile outgrows it are the bias and the sums adjusted.

#ifndef STAGES
#define STAGES 4
#endif
#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#ifndef PROMOTE
#define PROMOTE 4
#endif
#define KEYS 128
#define SWIZZLE (DIM == 64 ? gw::SWIZZLE_64 : gw::SWIZZLE_128)
#define Q_BYTES (64 * DIM)
#define K_BYTES (KEYS * DIM)
#define V_ROWS (DIM + 8)
#define V_BYTES (V_ROWS * KEYS)
#define K_AT (CONSUMERS * Q_BYTES)
#define V_AT (K_AT + STAGES * K_BYTES)
#define BARRIERS_AT (V_AT + STAGES * V_BYTES)
#define THREADS (128 * (CONSUMERS + 1))

// The code of the row's maximum: 2^4; 448, the largest e4m3, is 38 steps above.
#define TOP_CODE 88.0f
#define HEADROOM 36.0f
// What the bias adds to a code: 128, and 1/2 - 0.686 in eighths.
#define BASE 127.875f
// u = SLOPE (1024 + f) - OFFSET; both are exact in f16.
#define SLOPE 0.02587890625f
#define OFFSET 27.296875f
#define MINUS_INFINITY 0xFC00u

// One launch. Rows and keys are those of one head; strides are in elements of o.
struct Problem {
    u32 rows, keys, key_tiles, query_tiles;
    u32 heads, key_heads;
    // Query row i sees keys up to i + diagonal; without a mask this is past every key.
    i32 diagonal;
    f32 log2_scale;
    u64 batch_stride, head_stride, row_stride;
};

struct Rows {
    // Codes of the maxima, and the f16x2 biases, of the thread's two rows.
    f32 top[2];
    u32 bias[2];
};

// The larger of both halves, in both.
GW_DEVICE u32 both_maximum(u32 pair) { return gw::half_maximum(pair, gw::permute_bytes(pair, pair, 0x1032)); }

GW_DEVICE f32 bias_for(f32 top) { return gw::f16_to_f32(gw::f32_to_f16(BASE + TOP_CODE - top)); }

// Masks the scores of keys that the thread's rows do not see. `last` is the last visible key of each row, relative to the
// tile.
GW_DEVICE void mask(u32 (&scores)[KEYS / 4], const i32 (&last)[2]) {
    const i32 column = 2 * (gw::lane() % 4);
    GW_UNROLL
    for (u32 i = 0; i < KEYS / 4; ++i) {
        const i32 key = 8 * (i / 2) + column;
        if (key > last[i % 2]) scores[i] = (scores[i] & 0xFFFF0000u) | MINUS_INFINITY;
        if (key + 1 > last[i % 2]) scores[i] = (scores[i] & 0xFFFFu) | MINUS_INFINITY << 16;
    }
}

// The codes of the two rows' maxima in this tile.
GW_DEVICE void tile_tops(const u32 (&scores)[KEYS / 4], f32 a, f32 (&tops)[2]) {
    u32 highest[2] = {scores[0], scores[1]};
    GW_UNROLL
    for (u32 i = 2; i < KEYS / 4; ++i) highest[i % 2] = gw::half_maximum(highest[i % 2], scores[i]);
    // Both rows in one register: two exchanges serve them.
    u32 pair = gw::permute_bytes(both_maximum(highest[0]), both_maximum(highest[1]), 0x5410);
    pair = gw::half_maximum(pair, gw::shuffle_xor(pair, 1));
    pair = gw::half_maximum(pair, gw::shuffle_xor(pair, 2));
    tops[0] = a * gw::f16_to_f32((u16)pair);
    tops[1] = a * gw::f16_to_f32((u16)(pair >> 16));
}

// Scores become the codes of p, each in bits 3 to 9 of its half.
GW_DEVICE void encode(u32 (&scores)[KEYS / 4], const Rows& rows, u32 a) {
    const u32 floor = gw::half_splat(128.0f), slope = gw::half_splat(SLOPE), offset = gw::half_splat(-OFFSET);
    GW_UNROLL
    for (u32 i = 0; i < KEYS / 4; ++i) {
        const u32 t = gw::half_maximum(gw::half_fma(scores[i], a, rows.bias[i % 2]), floor);
        // The six bits below a power of two, as the f16 1024 + f.
        const u32 place = gw::logic3<0xEA>(0x003F003Fu, t, 0x64006400u);
        const u32 u = gw::half_fma(place, slope, offset);
        scores[i] = gw::half_fma(u, u, t);
    }
}

// Codes, four to a register, in the order of wgmma's A operand.
GW_DEVICE void pack(const u32 (&codes)[KEYS / 4], u32 (&p)[KEYS / 32][4]) {
    GW_UNROLL
    for (u32 i = 0; i < KEYS / 8; ++i) {
        const u32 step = i / 4, half = i % 2, quad = i / 2 % 2;
        const u32 word = 8 * step + 4 * quad + half;
        p[step][2 * quad + half] = gw::permute_bytes(codes[word] >> 3, codes[word + 2] >> 3, 0x6420);
    }
}

// 2^(x / 8).
GW_DEVICE f32 power_of_eighths(f32 x) { return gw::exp2(0.125f * x); }

GW_DEVICE void store_pair(OUT* to, f32 left, f32 right) {
#if OUT_FORMAT == 0
    to[0] = left;
    to[1] = right;
#elif OUT_FORMAT == 1
    *reinterpret_cast<u32*>(to) = gw::f32_to_f16x2(left, right);
#else
    *reinterpret_cast<u32*>(to) = gw::f32_to_bf16x2(left, right);
#endif
}

struct Ring {
    gw::Mbarrier *k_full, *k_empty, *v_full, *v_empty;
};

GW_DEVICE Ring ring() {
    gw::Mbarrier* barriers = gw::shared<gw::Mbarrier>(BARRIERS_AT) + 1;
    return {barriers, barriers + STAGES, barriers + 2 * STAGES, barriers + 3 * STAGES};
}

// One warp's arrival for all its lanes.
GW_DEVICE void release(gw::Mbarrier* empty) {
    if (gw::lane() == 0) gw::mbarrier_arrive(empty);
}

GW_DEVICE void produce(const u8* q, const u8* k, const u8* v, u32 tiles) {
    gw::Mbarrier* q_full = gw::shared<gw::Mbarrier>(BARRIERS_AT);
    const Ring r = ring();
    gw::mbarrier_arrive_expect(q_full, CONSUMERS * Q_BYTES);
    gw::bulk_load(gw::shared<u8>(), q, CONSUMERS * Q_BYTES, q_full);
    for (u32 t = 0; t < tiles; ++t) {
        const u32 s = t % STAGES, round = t / STAGES;
        if (round > 0) gw::mbarrier_wait(r.k_empty + s, (round - 1) & 1);
        gw::mbarrier_arrive_expect(r.k_full + s, K_BYTES);
        gw::bulk_load(gw::shared<u8>(K_AT + s * K_BYTES), k + (u64)t * K_BYTES, K_BYTES, r.k_full + s);
        if (round > 0) gw::mbarrier_wait(r.v_empty + s, (round - 1) & 1);
        gw::mbarrier_arrive_expect(r.v_full + s, V_BYTES);
        gw::bulk_load(gw::shared<u8>(V_AT + s * V_BYTES), v + (u64)t * V_BYTES, V_BYTES, r.v_full + s);
    }
}

GW_DEVICE void multiply_scores(u32 (&scores)[KEYS / 4], u64 q_operand, u32 t) {
    const Ring r = ring();
    const u32 s = t % STAGES;
    const u64 k_operand = gw::wgmma_descriptor(gw::shared<u8>(K_AT + s * K_BYTES), SWIZZLE, 8 * DIM);
    gw::mbarrier_wait(r.k_full + s, (t / STAGES) & 1);
    gw::wgmma_settle(scores);
    gw::wgmma_fence();
    GW_UNROLL
    for (u32 step = 0; step < DIM / 32; ++step) {
        gw::WgmmaHalf<KEYS>::ss(scores, q_operand + 2 * step, k_operand + 2 * step, step > 0);
    }
    gw::wgmma_commit();
}

// part <- p v of tile t, added to what is there except in the first of PROMOTE tiles.
GW_DEVICE void multiply_values(f32 (&part)[V_ROWS / 2], u32 (&p)[KEYS / 32][4], u32 t) {
    const Ring r = ring();
    const u32 s = t % STAGES;
    const u64 v_operand = gw::wgmma_descriptor(gw::shared<u8>(V_AT + s * V_BYTES), gw::SWIZZLE_128, 1024);
    gw::mbarrier_wait(r.v_full + s, (t / STAGES) & 1);
    const bool goes_on = t % PROMOTE != 0;
    gw::wgmma_settle(part);
    GW_UNROLL
    for (u32 step = 0; step < KEYS / 32; ++step) gw::wgmma_settle(p[step]);
    gw::wgmma_fence();
    GW_UNROLL
    for (u32 step = 0; step < KEYS / 32; ++step) {
        gw::Wgmma<gw::E4M3, V_ROWS>::rs(part, p[step], v_operand + 2 * step, goes_on || step > 0);
    }
    gw::wgmma_commit();
}

// The codes of tile t in place of its scores. Returns whether some row of the warp outgrew its headroom; `correction` is then
// what the rows' sums so far must be multiplied with.
GW_DEVICE bool softmax(u32 (&scores)[KEYS / 4], Rows& rows, f32 (&correction)[2], const i32 (&last)[2], f32 a, u32 t) {
    const i32 tile_last[2] = {last[0] - (i32)(t * KEYS), last[1] - (i32)(t * KEYS)};
    if (gw::any(tile_last[0] < KEYS - 1 || tile_last[1] < KEYS - 1)) mask(scores, tile_last);
    f32 tops[2];
    tile_tops(scores, a, tops);
    const bool outgrown = gw::any(tops[0] > rows.top[0] + HEADROOM || tops[1] > rows.top[1] + HEADROOM);
    if (outgrown) {
        GW_UNROLL
        for (u32 half = 0; half < 2; ++half) {
            const f32 before = gw::f16_to_f32((u16)rows.bias[half]);
            rows.top[half] = gw::maximum(rows.top[half], tops[half]);
            const f32 bias = bias_for(rows.top[half]);
            rows.bias[half] = gw::half_splat(bias);
            correction[half] = power_of_eighths(bias - before);
        }
    }
    encode(scores, rows, gw::half_splat(a));
    return outgrown;
}

GW_DEVICE void consume(const f32* q_scales, const f32* k_scales, f32 v_scale, OUT* o, f32* lse, const Problem& problem,
                       u32 tiles, u32 first_row) {
    const Ring r = ring();
    const u32 group = gw::warp() / 4;
    const u64 q_operand = gw::wgmma_descriptor(gw::shared<u8>(group * Q_BYTES), SWIZZLE, 8 * DIM);
    const u32 row = first_row + 64 * group + 16 * (gw::warp() % 4) + gw::lane() / 4;
    const i32 end = (i32)problem.keys - 1;
    const i32 last[2] = {gw::lesser((i32)row + problem.diagonal, end), gw::lesser((i32)row + 8 + problem.diagonal, end)};
    const f32 q_scale = 8.0f * problem.log2_scale * gw::load_readonly(q_scales + group);
    u32 scores[KEYS / 4], p[KEYS / 32][4];
    f32 out[V_ROWS / 2], part[V_ROWS / 2], correction[2];
    GW_UNROLL
    for (u32 i = 0; i < V_ROWS / 2; ++i) out[i] = 0.0f;
    // Low enough that the first tile always sets the bias, and finite, so that no difference is not a number.
    Rows rows = {{-60000.0f, -60000.0f}, {gw::half_splat(60000.0f), gw::half_splat(60000.0f)}};
    if (tiles > 0) {
        gw::mbarrier_wait(gw::shared<gw::Mbarrier>(BARRIERS_AT), 0);
        multiply_scores(scores, q_operand, 0);
        gw::wgmma_wait<0>();
        gw::wgmma_settle(scores);
        release(r.k_empty);
        softmax(scores, rows, correction, last, q_scale * gw::load_readonly(k_scales), 0);
        pack(scores, p);
        for (u32 t = 0; t + 1 < tiles; ++t) {
            const f32 a = q_scale * gw::load_readonly(k_scales + t + 1);
            multiply_scores(scores, q_operand, t + 1);
            multiply_values(part, p, t);
            gw::wgmma_wait<1>();
            gw::wgmma_settle(scores);
            release(r.k_empty + (t + 1) % STAGES);
            const bool outgrown = softmax(scores, rows, correction, last, a, t + 1);
            gw::wgmma_wait<0>();
            gw::wgmma_settle(part);
            gw::wgmma_settle(scores);
            release(r.v_empty + t % STAGES);
            const bool promoted = t % PROMOTE == PROMOTE - 1;
            if (promoted) {
                GW_UNROLL
                for (u32 i = 0; i < V_ROWS / 2; ++i) out[i] += part[i];
            }
            if (outgrown) {
                GW_UNROLL
                for (u32 i = 0; i < V_ROWS / 2; ++i) {
                    out[i] *= correction[i / 2 % 2];
                    part[i] *= correction[i / 2 % 2];
                }
            }
            // Only now: the product before reads p until it is done.
            pack(scores, p);
        }
        multiply_values(part, p, tiles - 1);
        gw::wgmma_wait<0>();
        gw::wgmma_settle(part);
        GW_UNROLL
        for (u32 i = 0; i < V_ROWS / 2; ++i) out[i] += part[i];
    }

    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        // Column DIM of the product, the sum of p, is with the first lane of each four.
        const f32 sum = gw::shuffle(out[DIM / 2 + 2 * half], gw::lane() & ~3u);
        const f32 scale = sum > 0.0f ? v_scale / sum : 0.0f;
        if (row + 8 * half >= problem.rows) continue;
        OUT* line = o + (u64)(row + 8 * half) * problem.row_stride + 2 * (gw::lane() % 4);
        GW_UNROLL
        for (u32 j = 0; j < DIM / 8; ++j) {
            store_pair(line + 8 * j, out[4 * j + 2 * half] * scale, out[4 * j + 2 * half + 1] * scale);
        }
        if (gw::lane() % 4 == 0) {
            // log2 of the sum in units of one, the bias undone: codes start at 2^-7.
            const f32 bias = gw::f16_to_f32((u16)rows.bias[half]) - BASE;
            const f32 total = gw::log2(sum) + 7.0f - 0.125f * bias;
            lse[row + 8 * half] = sum > 0.0f ? 0.69314718f * total : gw::bits<f32>(0xFF800000u);
        }
    }
}

GW_KERNEL_BOUNDED(attention, THREADS, 1)
(const u8* q, const u8* k, const u8* v, const f32* q_scales, const f32* k_scales, const f32* v_scales, OUT* o, f32* lse,
 Problem problem) {
    if (gw::thread() == 0) {
        const Ring r = ring();
        gw::mbarrier_init(gw::shared<gw::Mbarrier>(BARRIERS_AT), 1);
        for (u32 s = 0; s < STAGES; ++s) {
            gw::mbarrier_init(r.k_full + s, 1);
            gw::mbarrier_init(r.v_full + s, 1);
            gw::mbarrier_init(r.k_empty + s, 4 * CONSUMERS);
            gw::mbarrier_init(r.v_empty + s, 4 * CONSUMERS);
        }
        gw::fence_mbarrier_init();
    }
    gw::sync_threads();

    // The last rows see the most keys under a causal mask: they start first.
    const u32 block = gw::blocks_x() - 1 - gw::block_x();
    const u32 head = gw::block_y(), batch = gw::block_z();
    const u64 q_head = (u64)batch * problem.heads + head;
    const u64 k_head = (u64)batch * problem.key_heads + head / (problem.heads / problem.key_heads);
    const u32 first_row = block * 64 * CONSUMERS;
    const i32 seen = (i32)(first_row + 64 * CONSUMERS) + problem.diagonal;
    const u32 tiles = seen <= 0 ? 0 : gw::lesser((u32)(seen + KEYS - 1) / KEYS, problem.key_tiles);
    const u64 q_tile = q_head * problem.query_tiles + block * CONSUMERS;
    const u64 k_tile = k_head * problem.key_tiles;
    if (gw::warp() >= 4 * CONSUMERS) {
        gw::registers_release<CONSUMERS == 3 ? 32 : 40>();
        if (gw::thread() == 128 * CONSUMERS && tiles > 0) {
            produce(q + q_tile * Q_BYTES, k + k_tile * K_BYTES, v + k_tile * V_BYTES, tiles);
        }
    } else {
        gw::registers_acquire<CONSUMERS == 3 ? 160 : 232>();
        consume(q_scales + q_tile, k_scales + k_tile, v_scales[k_head],
                o + batch * problem.batch_stride + head * problem.head_stride,
                lse + q_head * problem.rows, problem, tiles, first_row);
    }
}
