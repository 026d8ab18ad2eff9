#include "gw/gw.cuh"
#include "gw/wgmma.cuh"

// c <- a b^T for e4m3 matrices a (64 m x 128 k) and b (128 n x 128 k), c in f32, row-major.
//
// Both operands come as images of their tiles: for each run of 128 columns the rows of a tile, 128 bytes each, with the
// 128-byte swizzle applied, so that one bulk copy loads what wgmma reads. Image (i, j) of a matrix is its tile of rows i
// and columns j, at (i * k_tiles + j) * tile bytes.
//
// One block a 64 x 128 tile of c: warp 0 copies, a ring of STAGES buffers ahead; the second warpgroup multiplies.
// full[s] ends when stage s has landed, empty[s] when all consumers are done with it.
#define STAGES 3
#define A_BYTES (64 * 128)
#define B_BYTES (128 * 128)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define CONSUMERS 128

GW_KERNEL_BOUNDED(fp8_tile, 256, 1)(const u8* a, const u8* b, f32* c, u32 k_tiles) {
    u8* stages = gw::shared<u8>();
    gw::Mbarrier* full = gw::shared<gw::Mbarrier>(STAGES * STAGE_BYTES);
    gw::Mbarrier* empty = full + STAGES;
    if (gw::thread() == 0) {
        for (u32 s = 0; s < STAGES; ++s) {
            gw::mbarrier_init(full + s, 1);
            gw::mbarrier_init(empty + s, CONSUMERS);
        }
        gw::fence_mbarrier_init();
    }
    gw::sync_threads();

    if (gw::warp() < 4) {
        if (gw::thread() != 0) return;
        const u8* a_image = a + (u64)gw::block_y() * k_tiles * A_BYTES;
        const u8* b_image = b + (u64)gw::block_x() * k_tiles * B_BYTES;
        for (u32 k = 0; k < k_tiles; ++k) {
            const u32 s = k % STAGES;
            const u32 round = k / STAGES;
            u8* stage = stages + s * STAGE_BYTES;
            if (round > 0) gw::mbarrier_wait(empty + s, (round - 1) & 1);
            gw::mbarrier_arrive_expect(full + s, STAGE_BYTES);
            gw::bulk_load(stage, a_image + (u64)k * A_BYTES, A_BYTES, full + s);
            gw::bulk_load(stage + A_BYTES, b_image + (u64)k * B_BYTES, B_BYTES, full + s);
        }
        return;
    }

    f32 d[64];
    GW_UNROLL
    for (u32 i = 0; i < 64; ++i) d[i] = 0.0f;
    for (u32 k = 0; k < k_tiles; ++k) {
        const u32 s = k % STAGES;
        const u8* stage = stages + s * STAGE_BYTES;
        const u64 a_tile = gw::wgmma_descriptor(stage, gw::SWIZZLE_128, 8 * 128);
        const u64 b_tile = gw::wgmma_descriptor(stage + A_BYTES, gw::SWIZZLE_128, 8 * 128);
        gw::mbarrier_wait(full + s, (k / STAGES) & 1);
        gw::wgmma_fence();
        // Four products of 32 columns each; a step of 32 bytes adds 2 to a descriptor.
        GW_UNROLL
        for (u32 step = 0; step < 4; ++step) {
            gw::Wgmma<gw::E4M3, 128>::ss(d, a_tile + 2 * step, b_tile + 2 * step, true);
        }
        gw::wgmma_commit();
        gw::wgmma_wait<0>();
        gw::mbarrier_arrive(empty + s);
    }

    const u32 warp = gw::warp() & 3, row = gw::lane() / 4, column = 2 * (gw::lane() % 4);
    const u64 width = 128ull * gw::blocks_x();
    f32* corner = c + (64ull * gw::block_y() + 16 * warp + row) * width + 128ull * gw::block_x() + column;
    GW_UNROLL
    for (u32 j = 0; j < 16; ++j) {
        corner[8 * j] = d[4 * j];
        corner[8 * j + 1] = d[4 * j + 1];
        corner[8 * width + 8 * j] = d[4 * j + 2];
        corner[8 * width + 8 * j + 1] = d[4 * j + 3];
    }
}
