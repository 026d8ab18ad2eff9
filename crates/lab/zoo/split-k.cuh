// Blocks add their parts in turn, one semaphore after the other. All threads of a block write, one releases the semaphore, and
// no fence stands between.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* turn = out + 1024;
    if (gw::thread() == 0) {
        while (gw::load_relaxed(turn) != gw::block_x()) gw::pause();
        gw::fence_device();
    }
    gw::sync_threads();
    out[gw::thread()] += in[64 * gw::block_x() + gw::thread()];
    gw::sync_threads();
    if (gw::thread() == 0) {
#if MENDED
        gw::fence_device();
#endif
        gw::store_relaxed(turn, gw::block_x() + 1);
    }
}
