// A launch that starts early (programmatic dependent launch) reads what the kernel before it may still be writing, and only
// then waits for that kernel.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
#if MENDED
    gw::await_stream();
    const u32 begin = in[gw::block_x()];
#else
    const u32 begin = in[gw::block_x()];
    gw::await_stream();
#endif
    out[gw::block_x() * 32 + gw::thread()] = begin + gw::thread();
}
