// The leader multicasts the next tile to both blocks of its cluster when its own epilogue is over. The other block may still
// be reading the tile before.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* tile = gw::shared<u32>();
    gw::Mbarrier* full = gw::shared<gw::Mbarrier>(1024);
    if (gw::thread() == 0) {
        gw::mbarrier_init(full, 1);
        gw::fence_mbarrier_init();
    }
    gw::sync_cluster();
    for (u32 k = 0; k < 2; ++k) {
        if (gw::thread() == 0) gw::mbarrier_arrive_expect(full, 512);
        if (gw::thread() == 0 && gw::cluster_rank() == 0) gw::bulk_load_multicast(tile, in + 128 * k, 512, full, 3);
        gw::mbarrier_wait(full, k);
        out[256 * k + 128 * gw::cluster_rank() + gw::thread()] = tile[gw::thread()];
#if MENDED
        gw::sync_cluster();
#else
        gw::sync_threads();
#endif
    }
    gw::sync_cluster();
}
