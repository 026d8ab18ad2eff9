// Lanes exchange counters through shared memory around a vote of the warp. A vote passes a value on, and orders no memory.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* counters = gw::shared<u32>();
    counters[gw::lane()] = in[gw::lane()];
    const bool some = gw::any(in[gw::lane()] > 3);
#if MENDED
    gw::sync_warp();
#endif
    out[gw::lane()] = some ? counters[gw::lane() ^ 1] : 0;
}
