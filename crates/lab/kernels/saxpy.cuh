#include "gw/gw.cuh"

// y <- a x + y, elementwise, the product rounded before the sum. One thread four neighbours, in one access each; x and y
// start at multiples of 16 bytes.
GW_DEVICE f32 scaled_sum(f32 a, f32 x, f32 y) { return gw::add(gw::multiply(a, x), y); }

GW_KERNEL(saxpy)(const f32* x, f32* y, f32 a, u64 n) {
    const u64 i = 4 * gw::global_thread();
    if (i + 4 <= n) {
        const f32x4 u = gw::bits<f32x4>(gw::load_128(x + i)), v = gw::bits<f32x4>(gw::load_128(y + i));
        const f32x4 sum = {scaled_sum(a, u.x, v.x), scaled_sum(a, u.y, v.y), scaled_sum(a, u.z, v.z), scaled_sum(a, u.w, v.w)};
        gw::store_128(y + i, gw::bits<u32x4>(sum));
    } else {
        for (u64 j = i; j < n; ++j) y[j] = scaled_sum(a, x[j], y[j]);
    }
}
