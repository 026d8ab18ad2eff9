// Four warps reduce a maximum through shared memory and read it back. The next reduction writes the scratch while a slow warp
// still reads the last.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* scratch = gw::shared<u32>();
    for (u32 tile = 0; tile < 2; ++tile) {
        const u32 mine = gw::reduce_max(in[128 * tile + gw::thread()]);
        if (gw::lane() == 0) scratch[gw::warp()] = mine;
        gw::sync_threads();
        u32 most = 0;
        for (u32 i = 0; i < 4; ++i) most = scratch[i] > most ? scratch[i] : most;
        out[128 * tile + gw::thread()] = most;
#if MENDED
        gw::sync_threads();
#endif
    }
}
