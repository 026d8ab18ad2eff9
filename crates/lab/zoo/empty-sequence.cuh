// The fence that covers the zeroed state stands in the loop over tiles. A sequence without tiles never comes by it.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* state = gw::shared<u32>();
    state[gw::thread()] = 0;
#if MENDED
    gw::fence_async_proxy_shared();
#endif
    gw::sync_threads();
    const u32 tiles = in[0] & 0;  // an empty sequence of a batch of mixed lengths
    for (u32 i = 0; i < tiles; ++i) {
        state[gw::thread()] += in[128 * i + gw::thread()];
        gw::fence_async_proxy_shared();
        gw::sync_threads();
    }
    if (gw::thread() == 0) {
        gw::bulk_store(out, state, 512);
        gw::bulk_commit();
        gw::bulk_wait<0>();
    }
}
