// A named barrier counts the threads of the whole block, in a branch that half of them take.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* scores = gw::shared<u32>();
    if (gw::thread() < 128) {
        scores[gw::thread()] = in[gw::thread()];
#if MENDED
        gw::barrier_sync(1, 128);
#else
        gw::barrier_sync(1, 256);
#endif
        out[gw::thread()] = scores[gw::thread() ^ 64];
    }
}
