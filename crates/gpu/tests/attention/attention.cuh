#include "gw/gw.cuh"
#include "gw/wgmma.cuh"

// o <- softmax(scale q k^T) v for e4m3 q, k, v with rows of 64, full attention, f32 out.
//
// One block a head's 64 query rows: thread 0 copies, the second warpgroup computes, a ring of STAGES buffers between
// them. Images: q in tiles of 64 x 64 and k in tiles of 128 x 64 bytes with the 64-byte swizzle; v transposed in tiles
// of 64 x 128 bytes with the 128-byte swizzle, the keys of each 16 in the order in which the product q k^T leaves them in
// registers, so that p needs no shuffle. `log2_scale` is scale * log2(e) with the quantisers' scales in it.
#define STAGES 2
#define Q_BYTES (64 * 64)
#define K_BYTES (128 * 64)
#define V_BYTES (64 * 128)
#define K_AT Q_BYTES
#define V_AT (K_AT + STAGES * K_BYTES)
#define BARRIERS_AT (V_AT + STAGES * V_BYTES)

GW_KERNEL_BOUNDED(attention, 256, 1)
(const u8* q, const u8* k, const u8* v, f32* o, u32 tiles, f32 log2_scale, f32 v_scale) {
    u8* q_tile = gw::shared<u8>();
    gw::Mbarrier* q_full = gw::shared<gw::Mbarrier>(BARRIERS_AT);
    gw::Mbarrier* k_full = q_full + 1;
    gw::Mbarrier* v_full = k_full + STAGES;
    gw::Mbarrier* empty = v_full + STAGES;
    if (gw::thread() == 0) {
        gw::mbarrier_init(q_full, 1);
        for (u32 s = 0; s < STAGES; ++s) {
            gw::mbarrier_init(k_full + s, 1);
            gw::mbarrier_init(v_full + s, 1);
            gw::mbarrier_init(empty + s, 128);
        }
        gw::fence_mbarrier_init();
    }
    gw::sync_threads();
    const u64 rows = (u64)gw::block_y() * gw::blocks_x() + gw::block_x();

    if (gw::warp() < 4) {
        gw::registers_release<40>();
        if (gw::thread() != 0) return;
        gw::mbarrier_arrive_expect(q_full, Q_BYTES);
        gw::bulk_load(q_tile, q + rows * Q_BYTES, Q_BYTES, q_full);
        for (u32 t = 0; t < tiles; ++t) {
            const u32 s = t % STAGES;
            const u64 image = (u64)gw::block_y() * tiles + t;
            if (t >= STAGES) gw::mbarrier_wait(empty + s, (t / STAGES - 1) & 1);
            gw::mbarrier_arrive_expect(k_full + s, K_BYTES);
            gw::bulk_load(gw::shared<u8>(K_AT + s * K_BYTES), k + image * K_BYTES, K_BYTES, k_full + s);
            gw::mbarrier_arrive_expect(v_full + s, V_BYTES);
            gw::bulk_load(gw::shared<u8>(V_AT + s * V_BYTES), v + image * V_BYTES, V_BYTES, v_full + s);
        }
        return;
    }

    gw::registers_acquire<232>();
    f32 out[32], top[2] = {-1e30f, -1e30f}, sum[2] = {0.0f, 0.0f};
    GW_UNROLL
    for (u32 i = 0; i < 32; ++i) out[i] = 0.0f;
    gw::mbarrier_wait(q_full, 0);
    for (u32 t = 0; t < tiles; ++t) {
        const u32 s = t % STAGES, parity = (t / STAGES) & 1;
        f32 score[64];
        const u64 q_operand = gw::wgmma_descriptor(q_tile, gw::SWIZZLE_64, 512);
        const u64 k_operand = gw::wgmma_descriptor(gw::shared<u8>(K_AT + s * K_BYTES), gw::SWIZZLE_64, 512);
        const u64 v_operand = gw::wgmma_descriptor(gw::shared<u8>(V_AT + s * V_BYTES), gw::SWIZZLE_128, 1024);
        gw::mbarrier_wait(k_full + s, parity);
        gw::wgmma_fence();
        GW_UNROLL
        for (u32 step = 0; step < 2; ++step) {
            gw::Wgmma<gw::E4M3, 128>::ss(score, q_operand + 2 * step, k_operand + 2 * step, step > 0);
        }
        gw::wgmma_commit();
        gw::wgmma_wait<0>();

        GW_UNROLL
        for (u32 half = 0; half < 2; ++half) {
            f32 highest = top[half];
            GW_UNROLL
            for (u32 i = 0; i < 64; i += 4) {
                highest = gw::maximum(highest, gw::maximum(score[i + 2 * half], score[i + 2 * half + 1]));
            }
            highest = gw::maximum(highest, gw::shuffle_xor(highest, 1));
            highest = gw::maximum(highest, gw::shuffle_xor(highest, 2));
            const f32 correction = gw::exp2((top[half] - highest) * log2_scale);
            top[half] = highest;
            sum[half] *= correction;
            // e4m3 reaches 448: p is scaled by 256, which cancels against the sum.
            const f32 bias = 8.0f - highest * log2_scale;
            GW_UNROLL
            for (u32 i = 0; i < 64; i += 4) {
                GW_UNROLL
                for (u32 j = i + 2 * half; j < i + 2 * half + 2; ++j) {
                    score[j] = gw::exp2(gw::fma(score[j], log2_scale, bias));
                    sum[half] += score[j];
                }
            }
            GW_UNROLL
            for (u32 i = 0; i < 32; i += 4) {
                out[i + 2 * half] *= correction;
                out[i + 2 * half + 1] *= correction;
            }
        }
        u32 p[4][4];
        GW_UNROLL
        for (u32 step = 0; step < 4; ++step) {
            const f32* x = score + 16 * step;
            p[step][0] = gw::f32_to_e4m3x4(x[0], x[1], x[4], x[5]);
            p[step][1] = gw::f32_to_e4m3x4(x[2], x[3], x[6], x[7]);
            p[step][2] = gw::f32_to_e4m3x4(x[8], x[9], x[12], x[13]);
            p[step][3] = gw::f32_to_e4m3x4(x[10], x[11], x[14], x[15]);
        }
        gw::mbarrier_wait(v_full + s, parity);
        gw::wgmma_fence();
        GW_UNROLL
        for (u32 step = 0; step < 4; ++step) gw::Wgmma<gw::E4M3, 64>::rs(out, p[step], v_operand + 2 * step, true);
        gw::wgmma_commit();
        gw::wgmma_wait<0>();
        gw::mbarrier_arrive(empty + s);
    }

    const u32 row = 16 * (gw::warp() & 3) + gw::lane() / 4, column = 2 * (gw::lane() % 4);
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        sum[half] += gw::shuffle_xor(sum[half], 1);
        sum[half] += gw::shuffle_xor(sum[half], 2);
        const f32 scale = v_scale / sum[half];
        f32* line = o + (rows * 64 + row + 8 * half) * 64 + column;
        GW_UNROLL
        for (u32 j = 0; j < 8; ++j) {
            line[8 * j] = out[4 * j + 2 * half] * scale;
            line[8 * j + 1] = out[4 * j + 2 * half + 1] * scale;
        }
    }
}
