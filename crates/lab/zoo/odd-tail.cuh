// 63 words are stored by one bulk copy of 252 bytes. The copy engine moves multiples of 16.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* row = gw::shared<u32>();
    row[gw::thread()] = in[gw::thread()];
    gw::fence_async_proxy_shared();
    gw::sync_threads();
    if (gw::thread() == 0) {
#if MENDED
        gw::bulk_store(out, row, 240);
        for (u32 i = 60; i < 63; ++i) out[i] = row[i];
#else
        gw::bulk_store(out, row, 252);
#endif
        gw::bulk_commit();
        gw::bulk_wait<0>();
    }
}
