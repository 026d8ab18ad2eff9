#include "gw/gw.cuh"

// Floating-point functions, elementwise: out[call][i] of a[i], b[i] and c[i], in the order of the calls below. Threads
// stride over the elements.

// The functions that round correctly.
GW_KERNEL(float_exact)(const f32* a, const f32* b, const f32* c, f32* out, u32 n) {
    for (u32 i = gw::global_thread(); i < n; i += gw::global_threads()) {
        const f32 x = a[i], y = b[i], z = c[i];
        out[i] = gw::sqrt(x);
        out[n + i] = gw::fma(x, y, z);
        // The compiler may not make one fused operation of these two.
        out[2 * n + i] = gw::add(gw::multiply(x, y), z);
        out[3 * n + i] = gw::maximum(x, y);
        out[4 * n + i] = gw::minimum(x, y);
        out[5 * n + i] = gw::absolute(x);
        out[6 * n + i] = (f32)gw::fma((f64)x, (f64)y, (f64)z);
        // Nor of these, written as anyone would: the module is compiled for exact results.
        out[7 * n + i] = x * y + z;
    }
}

// The hardware's approximations.
GW_KERNEL(float_approximate)(const f32* exponents, const f32* positives, f32* out, u32 n) {
    for (u32 i = gw::global_thread(); i < n; i += gw::global_threads()) {
        out[i] = gw::exp2(exponents[i]);
        out[n + i] = gw::log2(positives[i]);
        out[2 * n + i] = gw::rsqrt(positives[i]);
        out[3 * n + i] = gw::reciprocal(positives[i]);
    }
}
