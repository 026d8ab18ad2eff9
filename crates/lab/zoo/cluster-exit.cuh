// A block reads a word of its neighbour's shared memory, and nothing keeps the neighbour from ending before.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* word = gw::shared<u32>();
    if (gw::thread() == 0) word[0] = in[gw::block_x()];
    gw::sync_cluster();
    if (gw::cluster_rank() != 0) out[gw::block_x() * 32 + gw::thread()] = *gw::cluster_map(word, 0);
#if MENDED
    gw::sync_cluster();
#endif
}
