// Bulk groups belong to the thread that issued them: the wait of any other thread waits for nothing, and here no barrier
// tells the block that the leader's wait is over before the tile is written again.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* tile = gw::shared<u32>();
    for (u32 i = 0; i < 2; ++i) {
        tile[gw::thread()] = in[128 * i + gw::thread()] + 1;
        gw::fence_async_proxy_shared();
        gw::sync_threads();
        if (gw::thread() == 0) {
            gw::bulk_store(out + 128 * i, tile, 512);
            gw::bulk_commit();
        }
        gw::bulk_wait_read<0>();
#if MENDED
        gw::sync_threads();
#endif
    }
    if (gw::thread() == 0) gw::bulk_wait<0>();
}
