#include "gw/gw.cuh"

// y <- a x + y, elementwise, the product rounded before the sum. One thread an element.
GW_KERNEL(saxpy)(const f32* x, f32* y, f32 a, u64 n) {
    const u64 i = gw::global_thread();
    if (i < n) y[i] = gw::add(gw::multiply(a, x[i]), y[i]);
}
