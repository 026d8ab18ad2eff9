// A region of 48 threads writes a row that others read. Its barrier was dropped because 48 is no multiple of 32.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* row = gw::shared<u32>();
    if (gw::thread() < 48) row[gw::thread()] = in[gw::thread()];
#if MENDED
    gw::sync_threads();
#endif
    if (gw::thread() < 48) out[gw::thread()] = row[47 - gw::thread()];
}
