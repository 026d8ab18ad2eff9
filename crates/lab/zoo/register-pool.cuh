// Two consumer warpgroups ask for 240 registers a thread. With two blocks a multiprocessor the compiler gives a block half as
// many to share out, and what the producer releases never suffices.
#include "gw/gw.cuh"

#if MENDED
#define BLOCKS 1
#else
#define BLOCKS 2
#endif

GW_KERNEL_BOUNDED(exhibit, 384, BLOCKS)(u32* out, const u32* in) {
    if (gw::thread() < 128) {
        gw::registers_release<24>();
    } else {
        gw::registers_acquire<240>();
        out[gw::thread()] = in[gw::thread()];
    }
}
