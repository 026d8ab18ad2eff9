// The warps of an epilogue meet at a named barrier before one of them stores the tile by the copy engine. As with
// __syncthreads, the barrier orders the threads and not the proxies.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* tile = gw::shared<u32>();
    if (gw::warp() < 2) {
        tile[gw::thread()] = in[gw::thread()];
#if MENDED
        gw::fence_async_proxy_shared();
#endif
        gw::barrier_sync(3, 64);
        if (gw::thread() == 0) {
            gw::bulk_store(out, tile, 256);
            gw::bulk_commit();
            gw::bulk_wait<0>();
        }
    }
}
