// Threads write an operand of wgmma by ordinary stores. The dense product has a fence for the asynchronous proxy in front of
// it, the sparse one had none.
#include "gw/gw.cuh"
#include "gw/wgmma.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* tile = gw::shared<u32>();
    for (u32 i = gw::thread(); i < 2048; i += 128) tile[i] = in[i] & 0x38383838u;
#if MENDED
    gw::fence_async_proxy_shared();
#endif
    gw::sync_threads();
    const u64 operand = gw::wgmma_descriptor(tile, gw::SWIZZLE_32, 256);
    f32 d[4];
    gw::wgmma_fence();
    gw::Wgmma<gw::E4M3, 8>::ss(d, operand, operand, false);
    gw::wgmma_commit();
    gw::wgmma_wait<0>();
    out[gw::thread()] = gw::bits<u32>(d[0]);
}
