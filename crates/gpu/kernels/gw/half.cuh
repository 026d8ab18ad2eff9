#pragma once
// Arithmetic on two f16 in one register, low half first, each operation rounded once.

#include "gw/convert.cuh"
#include "gw/emulated.cuh"

namespace gw {

#ifdef GW_CUDA
GW_DEVICE u32 half_add(u32 a, u32 b) {
    u32 r;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
GW_DEVICE u32 half_multiply(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
GW_DEVICE u32 half_fma(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
// max(a b + c, 0).
GW_DEVICE u32 half_fma_relu(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.relu.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
GW_DEVICE u32 half_maximum(u32 a, u32 b) {
    u32 r;
    asm("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
#else
GW_DEVICE u32 half_add(u32 a, u32 b) { return emulated::call::half_pair(emulated::HalfPairOp::Add, a, b, 0); }
GW_DEVICE u32 half_multiply(u32 a, u32 b) { return emulated::call::half_pair(emulated::HalfPairOp::Multiply, a, b, 0); }
GW_DEVICE u32 half_fma(u32 a, u32 b, u32 c) { return emulated::call::half_pair(emulated::HalfPairOp::Fma, a, b, c); }
GW_DEVICE u32 half_fma_relu(u32 a, u32 b, u32 c) { return emulated::call::half_pair(emulated::HalfPairOp::FmaRelu, a, b, c); }
GW_DEVICE u32 half_maximum(u32 a, u32 b) { return emulated::call::half_pair(emulated::HalfPairOp::Maximum, a, b, 0); }
#endif

// The same f16 twice.
GW_DEVICE u32 half_splat(f32 x) {
    const u32 h = f32_to_f16(x);
    return h | h << 16;
}

}  // namespace gw
