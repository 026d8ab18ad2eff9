#include "gw/gw.cuh"
#include "gw/wgmma.cuh"

// out <- 2 a b^T in f16, twice: with a from shared memory and with a from registers, for e4m3 matrices a and b of 64 x 32.
//
// One warpgroup. `a` and `b` are images with the 32-byte swizzle, `rows` is a as it is. A thread writes its 16 registers
// of accumulators, two f16 each, one after the other; the second product follows 128 x 16 words on.
#define WIDTH 64
#define WORDS (WIDTH / 4)

GW_DEVICE void store(u32* out, const u32 (&d)[WORDS]) {
    GW_UNROLL
    for (u32 i = 0; i < WORDS; ++i) out[gw::thread() * WORDS + i] = d[i];
}

GW_KERNEL_BOUNDED(half_product, 128, 1)(const u8* a, const u8* b, const u8* rows, u32* out) {
    u8* a_tile = gw::shared<u8>();
    u8* b_tile = gw::shared<u8>(2048);
    gw::store_128(a_tile + 16 * gw::thread(), gw::load_128(a + 16 * gw::thread()));
    gw::store_128(b_tile + 16 * gw::thread(), gw::load_128(b + 16 * gw::thread()));
    gw::fence_async_proxy_shared();
    gw::sync_threads();
    const u64 a_operand = gw::wgmma_descriptor(a_tile, gw::SWIZZLE_32, 256);
    const u64 b_operand = gw::wgmma_descriptor(b_tile, gw::SWIZZLE_32, 256);
    u32 d[WORDS];
    gw::wgmma_fence();
    gw::WgmmaHalf<WIDTH>::ss(d, a_operand, b_operand, false);
    gw::WgmmaHalf<WIDTH>::ss(d, a_operand, b_operand, true);
    gw::wgmma_commit();
    gw::wgmma_wait<0>();
    gw::wgmma_settle(d);
    store(out, d);

    const u32 row = 16 * gw::warp() + gw::lane() / 4, column = 4 * (gw::lane() % 4);
    u32 fragment[4];
    GW_UNROLL
    for (u32 i = 0; i < 4; ++i) {
        fragment[i] = *reinterpret_cast<const u32*>(rows + (row + 8 * (i % 2)) * 32 + column + 16 * (i / 2));
    }
    gw::wgmma_settle(d);
    gw::wgmma_settle(fragment);
    gw::wgmma_fence();
    gw::WgmmaHalf<WIDTH>::rs(d, fragment, b_operand, false);
    gw::WgmmaHalf<WIDTH>::rs(d, fragment, b_operand, true);
    gw::wgmma_commit();
    gw::wgmma_wait<0>();
    gw::wgmma_settle(d);
    store(out + 128 * WORDS, d);
}
