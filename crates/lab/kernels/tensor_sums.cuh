#include "gw/gw.cuh"
#include "gw/wgmma.cuh"

// d <- c + A B for A of R x K and B of K x N, 32 bytes of K a step, one instruction a step, so that the bits of d say how the
// tensor cores add. One product a block; operands come step by step.
//
// FORMAT says which instruction. `mma_sums`: 16 x 8 by one warp; rows of 32 bytes. `wgmma_sums`: 64 x 8 by 128 threads, and
// `wgmma_sums_half` (e4m3 alone): 64 x 16 with f16 accumulators; operands are images of shared memory without swizzle, in tiles
// of 8 rows of 16 bytes, the two of a row side by side. c and d hold what threads hold, one thread after the other.
#define THREADS 128
#define STEP_BYTES 32
#define A_BYTES (64 * STEP_BYTES)

GW_KERNEL(mma_sums)(const u32* a, const u32* b, const f32* c, f32* d, u32 steps) {
    const u32 row = gw::lane() / 4 * (STEP_BYTES / 4) + gw::lane() % 4;
    const u32 place = (gw::block_x() * 32 + gw::lane()) * 4;
    f32 sum[4] = {c[place], c[place + 1], c[place + 2], c[place + 3]};
    for (u32 step = 0; step < steps; ++step) {
        const u64 number = (u64)gw::block_x() * steps + step;
        const u32* left = a + number * (16 * STEP_BYTES / 4) + row;
        const u32* right = b + number * (8 * STEP_BYTES / 4) + row;
        const u32 fragment[4] = {left[0], left[8 * STEP_BYTES / 4], left[4], left[8 * STEP_BYTES / 4 + 4]};
        const u32 column[2] = {right[0], right[4]};
        gw::mma(gw::FORMAT{}, sum, fragment, column, sum);
    }
    for (u32 i = 0; i < 4; ++i) d[place + i] = sum[i];
}

// One step: what `multiply` does with the descriptors of A and B.
template <u32 B_BYTES, class Registers, class Multiply>
GW_DEVICE void step(const u8* a, const u8* b, Registers& sum, Multiply multiply) {
    u8* a_tile = gw::shared<u8>();
    u8* b_tile = gw::shared<u8>(A_BYTES);
    gw::store_128(a_tile + 16 * gw::thread(), gw::load_128(a + 16 * gw::thread()));
    if (16 * gw::thread() < B_BYTES) gw::store_128(b_tile + 16 * gw::thread(), gw::load_128(b + 16 * gw::thread()));
    gw::fence_async_proxy_shared();
    gw::sync_threads();
    gw::wgmma_settle(sum);
    gw::wgmma_fence();
    multiply(gw::wgmma_descriptor(a_tile, gw::SWIZZLE_NONE, 256, 128), gw::wgmma_descriptor(b_tile, gw::SWIZZLE_NONE, 256, 128));
    gw::wgmma_commit();
    gw::wgmma_wait<0>();
    gw::wgmma_settle(sum);
    gw::sync_threads();
}

GW_KERNEL_BOUNDED(wgmma_sums, THREADS, 1)(const u8* a, const u8* b, const f32* c, f32* d, u32 steps) {
    const u32 place = (gw::block_x() * THREADS + gw::thread()) * 4;
    f32 sum[4] = {c[place], c[place + 1], c[place + 2], c[place + 3]};
    for (u32 at = 0; at < steps; ++at) {
        const u64 number = (u64)gw::block_x() * steps + at;
        step<8 * STEP_BYTES>(a + number * A_BYTES, b + number * 8 * STEP_BYTES, sum, [&](u64 left, u64 right) {
            gw::Wgmma<gw::FORMAT, 8>::ss(sum, left, right, true);
        });
    }
    for (u32 i = 0; i < 4; ++i) d[place + i] = sum[i];
}

GW_KERNEL_BOUNDED(wgmma_sums_half, THREADS, 1)(const u8* a, const u8* b, const u32* c, u32* d, u32 steps) {
    const u32 place = (gw::block_x() * THREADS + gw::thread()) * 4;
    u32 sum[4] = {c[place], c[place + 1], c[place + 2], c[place + 3]};
    for (u32 at = 0; at < steps; ++at) {
        const u64 number = (u64)gw::block_x() * steps + at;
        step<16 * STEP_BYTES>(a + number * A_BYTES, b + number * 16 * STEP_BYTES, sum, [&](u64 left, u64 right) {
            gw::WgmmaHalf<16>::ss(sum, left, right, true);
        });
    }
    for (u32 i = 0; i < 4; ++i) d[place + i] = sum[i];
}
