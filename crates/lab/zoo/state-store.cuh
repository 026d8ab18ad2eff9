// All threads write a tile, and after __syncthreads one thread stores it by the copy engine. The barrier orders threads; the
// copy engine reads through another proxy, which only a fence by the writers reaches.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* tile = gw::shared<u32>();
    tile[gw::thread()] = in[gw::thread()] + 1;
#if MENDED
    gw::fence_async_proxy_shared();
#endif
    gw::sync_threads();
    if (gw::thread() == 0) {
        gw::bulk_store(out, tile, 512);
        gw::bulk_commit();
        gw::bulk_wait<0>();
    }
}
