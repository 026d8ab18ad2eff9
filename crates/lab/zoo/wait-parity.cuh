// A barrier with a single slot flips every iteration, but is waited for with the parity of a ring of two. The wait asks for
// a phase that is long over, and returns at once.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* tile = gw::shared<u32>();
    gw::Mbarrier* full = gw::shared<gw::Mbarrier>(1024);
    if (gw::thread() == 0) {
        gw::mbarrier_init(full, 1);
        gw::fence_mbarrier_init();
    }
    gw::sync_threads();
    for (u32 k = 0; k < 3; ++k) {
        if (gw::thread() == 0) {
            gw::mbarrier_arrive_expect(full, 512);
            gw::bulk_load(tile, in + 128 * k, 512, full);
        }
#if MENDED
        gw::mbarrier_wait(full, k % 2);
#else
        gw::mbarrier_wait(full, k / 2 % 2);
#endif
        out[128 * k + gw::thread()] = tile[gw::thread()];
        gw::sync_threads();
    }
}
