#include "gw/gw.cuh"

// Arithmetic on pairs of f16, elementwise: out[call][i] of a[i], b[i] and c[i], in the order of the calls below. Threads
// stride over the elements.
GW_KERNEL(half_words)(const u32* a, const u32* b, const u32* c, u32* out, u32 n) {
    for (u32 i = gw::global_thread(); i < n; i += gw::global_threads()) {
        const u32 x = a[i], y = b[i], z = c[i];
        out[i] = gw::half_add(x, y);
        out[n + i] = gw::half_multiply(x, y);
        out[2 * n + i] = gw::half_fma(x, y, z);
        out[3 * n + i] = gw::half_fma_relu(x, y, z);
        out[4 * n + i] = gw::half_maximum(x, y);
    }
}
