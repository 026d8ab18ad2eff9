#pragma once
// Conversions between number formats, bit for bit as the hardware rounds: to nearest, ties to even; e4m3 and e5m2
// saturate to their largest finite value. Small formats travel as their bits.

#include "gw/emulated.cuh"

namespace gw {

#ifdef GW_CUDA
GW_DEVICE u16 f32_to_f16(f32 x) {
    u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}
GW_DEVICE f32 f16_to_f32(u16 x) {
    f32 r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
    return r;
}
GW_DEVICE u16 f32_to_bf16(f32 x) {
    u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}
GW_DEVICE f32 bf16_to_f32(u16 x) { return bits<f32>((u32)x << 16); }
// Towards zero; beyond the range the nearest integer in it, and 0 for a NaN. A cast of C++ has no result there, and the
// emulated device stops it.
GW_DEVICE i32 f32_to_i32(f32 x) {
    i32 r;
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}
GW_DEVICE u32 f32_to_u32(f32 x) {
    u32 r;
    asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}
// Two values in one word, `low` in the low byte.
GW_DEVICE u16 f32_to_e4m3x2(f32 low, f32 high) {
    u16 r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
    return r;
}
GW_DEVICE u16 f32_to_e5m2x2(f32 low, f32 high) {
    u16 r;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
    return r;
}
GW_DEVICE u16 f16x2_to_e4m3x2(u32 x) {
    u16 r;
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(r) : "r"(x));
    return r;
}
GW_DEVICE u16 f16x2_to_e5m2x2(u32 x) {
    u16 r;
    asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(r) : "r"(x));
    return r;
}
GW_DEVICE u32 e4m3x2_to_f16x2(u16 x) {
    u32 r;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(x));
    return r;
}
GW_DEVICE u32 e5m2x2_to_f16x2(u16 x) {
    u32 r;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(r) : "h"(x));
    return r;
}
#else
GW_DEVICE u16 f32_to_f16(f32 x) { return (u16)emulated::call::convert(emulated::Conversion::F32ToF16, bits<u32>(x)); }
GW_DEVICE f32 f16_to_f32(u16 x) { return bits<f32>(emulated::call::convert(emulated::Conversion::F16ToF32, x)); }
GW_DEVICE u16 f32_to_bf16(f32 x) { return (u16)emulated::call::convert(emulated::Conversion::F32ToBf16, bits<u32>(x)); }
GW_DEVICE f32 bf16_to_f32(u16 x) { return bits<f32>((u32)x << 16); }
GW_DEVICE i32 f32_to_i32(f32 x) {
    if (x != x) return 0;
    return x >= 2147483648.0f ? 0x7FFFFFFF : x < -2147483648.0f ? (i32)0x80000000 : (i32)x;
}
GW_DEVICE u32 f32_to_u32(f32 x) { return x >= 4294967296.0f ? 0xFFFFFFFFu : x > 0.0f ? (u32)x : 0; }
namespace emulated {
// Both halves of a pair through the same conversion.
GW_DEVICE u32 convert_pair(Conversion kind, u32 low, u32 high, u32 shift) {
    return call::convert(kind, low) | call::convert(kind, high) << shift;
}
}  // namespace emulated
GW_DEVICE u16 f32_to_e4m3x2(f32 low, f32 high) {
    return (u16)emulated::convert_pair(emulated::Conversion::F32ToE4m3, bits<u32>(low), bits<u32>(high), 8);
}
GW_DEVICE u16 f32_to_e5m2x2(f32 low, f32 high) {
    return (u16)emulated::convert_pair(emulated::Conversion::F32ToE5m2, bits<u32>(low), bits<u32>(high), 8);
}
GW_DEVICE u16 f16x2_to_e4m3x2(u32 x) { return (u16)emulated::convert_pair(emulated::Conversion::F16ToE4m3, x & 0xFFFF, x >> 16, 8); }
GW_DEVICE u16 f16x2_to_e5m2x2(u32 x) { return (u16)emulated::convert_pair(emulated::Conversion::F16ToE5m2, x & 0xFFFF, x >> 16, 8); }
GW_DEVICE u32 e4m3x2_to_f16x2(u16 x) { return emulated::convert_pair(emulated::Conversion::E4m3ToF16, x & 0xFF, x >> 8, 16); }
GW_DEVICE u32 e5m2x2_to_f16x2(u16 x) { return emulated::convert_pair(emulated::Conversion::E5m2ToF16, x & 0xFF, x >> 8, 16); }
#endif

// Four e4m3 in one word, in the order given, lowest byte first.
GW_DEVICE u32 f32_to_e4m3x4(f32 a, f32 b, f32 c, f32 d) {
    return (u32)f32_to_e4m3x2(a, b) | (u32)f32_to_e4m3x2(c, d) << 16;
}
// Two f16 in one word, `low` in the low half.
GW_DEVICE u32 f32_to_f16x2(f32 low, f32 high) { return (u32)f32_to_f16(low) | (u32)f32_to_f16(high) << 16; }
GW_DEVICE u32 f32_to_bf16x2(f32 low, f32 high) { return (u32)f32_to_bf16(low) | (u32)f32_to_bf16(high) << 16; }

}  // namespace gw
