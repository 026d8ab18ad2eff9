#include "gw/gw.cuh"

// x[i] <- 1664525 x[i] + step, modulo 2^32. One thread an element; launched many times in a row.
GW_KERNEL(chain)(u32* x, u32 step, u32 n) {
    const u64 i = gw::global_thread();
    if (i < n) x[i] = 1664525u * x[i] + step;
}
