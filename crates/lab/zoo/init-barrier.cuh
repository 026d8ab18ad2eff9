// One thread initialises an mbarrier, and all arrive, with nothing between the two.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    gw::Mbarrier* barrier = gw::shared<gw::Mbarrier>();
    if (gw::thread() == 0) gw::mbarrier_init(barrier, gw::threads());
#if MENDED
    gw::sync_threads();
#endif
    gw::mbarrier_arrive(barrier);
    gw::mbarrier_wait(barrier, 0);
    out[gw::thread()] = in[gw::thread()];
}
