#pragma once
// Floating-point functions. `exp2`, `log2`, `rsqrt` and `reciprocal` are the hardware's approximations (about 2 ulp)
// on the GPU and correctly rounded on the emulated device.

#include "gw/emulated.cuh"

namespace gw {

#ifdef GW_CUDA
GW_DEVICE f32 exp2(f32 x) {
    f32 r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
GW_DEVICE f32 log2(f32 x) {
    f32 r;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
GW_DEVICE f32 rsqrt(f32 x) {
    f32 r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
GW_DEVICE f32 reciprocal(f32 x) {
    f32 r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
GW_DEVICE f32 sqrt(f32 x) { return __fsqrt_rn(x); }
GW_DEVICE f32 fma(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
GW_DEVICE f64 fma(f64 a, f64 b, f64 c) { return __fma_rn(a, b, c); }
// A product and a sum that the compiler may not fuse.
GW_DEVICE f32 multiply(f32 a, f32 b) { return __fmul_rn(a, b); }
GW_DEVICE f32 add(f32 a, f32 b) { return __fadd_rn(a, b); }
// A number wins over a NaN, and +0 is larger than -0.
GW_DEVICE f32 maximum(f32 a, f32 b) { return fmaxf(a, b); }
GW_DEVICE f32 minimum(f32 a, f32 b) { return fminf(a, b); }
// A NaN, 0x7FFFFFFF, wins over a number.
GW_DEVICE f32 maximum_or_nan(f32 a, f32 b) {
    f32 r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
GW_DEVICE f32 absolute(f32 x) { return fabsf(x); }
#else
GW_DEVICE f32 exp2(f32 x) { return __builtin_exp2f(x); }
GW_DEVICE f32 log2(f32 x) { return __builtin_log2f(x); }
GW_DEVICE f32 rsqrt(f32 x) { return (f32)(1.0 / __builtin_sqrt((f64)x)); }
GW_DEVICE f32 reciprocal(f32 x) { return 1.0f / x; }
GW_DEVICE f32 sqrt(f32 x) { return __builtin_sqrtf(x); }
GW_DEVICE f32 fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
GW_DEVICE f64 fma(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
GW_DEVICE f32 multiply(f32 a, f32 b) { return a * b; }
GW_DEVICE f32 add(f32 a, f32 b) { return a + b; }
// Not the C library's, which answers a signalling NaN with a NaN and may take either zero for the larger.
GW_DEVICE f32 maximum(f32 a, f32 b) {
    if (a != a) return b;
    if (b != b) return a;
    // Equal values have the same bits, but for zeros.
    return a == b ? bits<f32>(bits<u32>(a) & bits<u32>(b)) : a > b ? a : b;
}
GW_DEVICE f32 minimum(f32 a, f32 b) {
    if (a != a) return b;
    if (b != b) return a;
    return a == b ? bits<f32>(bits<u32>(a) | bits<u32>(b)) : a < b ? a : b;
}
GW_DEVICE f32 maximum_or_nan(f32 a, f32 b) { return a != a || b != b ? bits<f32>(0x7FFFFFFFu) : maximum(a, b); }
GW_DEVICE f32 absolute(f32 x) { return __builtin_fabsf(x); }
#endif

}  // namespace gw
