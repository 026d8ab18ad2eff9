// Compute warps meet at __syncthreads in a branch of their own; warps that copy never come there.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* partial = gw::shared<u32>();
    if (gw::warp() < 2) {
        partial[gw::thread()] = in[gw::thread()];
#if MENDED
        gw::barrier_sync(1, 64);
#else
        gw::sync_threads();
#endif
        if (gw::warp() == 0) out[gw::lane()] = partial[gw::lane()] + partial[32 + gw::lane()];
    }
}
