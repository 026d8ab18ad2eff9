// Two warpgroups multiply by one shared operand that all threads stage. Nothing at the end of the loop keeps the quicker
// warpgroup from staging the next tile while the other's product still reads this one.
#include "gw/gw.cuh"
#include "gw/wgmma.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* tile = gw::shared<u32>();
    f32 d[4];
    for (u32 k = 0; k < 2; ++k) {
        for (u32 i = gw::thread(); i < 1024; i += 256) tile[i] = in[1024 * k + i] & 0x38383838u;
        gw::fence_async_proxy_shared();
        gw::sync_threads();
        const u64 operand = gw::wgmma_descriptor(tile, gw::SWIZZLE_32, 256);
        gw::wgmma_fence();
        gw::Wgmma<gw::E4M3, 8>::ss(d, operand, operand, k > 0);
        gw::wgmma_commit();
        gw::wgmma_wait<0>();
#if MENDED
        gw::sync_threads();
#endif
    }
    out[gw::thread()] = gw::bits<u32>(d[0]);
}
