// The copy engine counts bytes on an mbarrier whose initialisation was never fenced for it.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* tile = gw::shared<u32>();
    gw::Mbarrier* full = gw::shared<gw::Mbarrier>(1024);
    if (gw::thread() == 0) {
        gw::mbarrier_init(full, 1);
#if MENDED
        gw::fence_mbarrier_init();
#endif
        gw::mbarrier_arrive_expect(full, 512);
        gw::bulk_load(tile, in, 512, full);
    }
    gw::sync_threads();
    gw::mbarrier_wait(full, 0);
    out[gw::thread()] = tile[gw::thread()];
}
