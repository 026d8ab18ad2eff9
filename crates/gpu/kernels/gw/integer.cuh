#pragma once
// Integer instructions that C++ has no operator for.

#include "gw/emulated.cuh"

namespace gw {

GW_DEVICE u32 lesser(u32 a, u32 b) { return a < b ? a : b; }
GW_DEVICE i32 lesser(i32 a, i32 b) { return a < b ? a : b; }
GW_DEVICE u32 greater(u32 a, u32 b) { return a > b ? a : b; }

// The high word of a product.
GW_DEVICE u32 multiply_high(u32 a, u32 b) { return (u32)(((u64)a * b) >> 32); }
#ifdef GW_CUDA
GW_DEVICE u64 multiply_high(u64 a, u64 b) { return __umul64hi(a, b); }
// Bytes of the pair (b, a), a lowest, picked by the four nibbles of `selector`; bit 3 of a nibble repeats the sign.
GW_DEVICE u32 permute_bytes(u32 a, u32 b, u32 selector) {
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}
// Any function of three bits, bitwise: TABLE is f(0xF0, 0xCC, 0xAA).
template <u32 TABLE>
GW_DEVICE u32 logic3(u32 a, u32 b, u32 c) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(TABLE));
    return r;
}
// The high 32 bits of (high:low) << (shift mod 32), and the low 32 of (high:low) >> (shift mod 32).
GW_DEVICE u32 funnel_left(u32 low, u32 high, u32 shift) { return __funnelshift_l(low, high, shift); }
GW_DEVICE u32 funnel_right(u32 low, u32 high, u32 shift) { return __funnelshift_r(low, high, shift); }
// Shifts by any count: from the width on nothing is left, or the sign. C++ has no such shift, and the emulated device stops
// one that its operators would make.
GW_DEVICE u32 shift_left(u32 x, u32 count) {
    u32 r;
    asm("shl.b32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(count));
    return r;
}
GW_DEVICE u64 shift_left(u64 x, u32 count) {
    u64 r;
    asm("shl.b64 %0, %1, %2;" : "=l"(r) : "l"(x), "r"(count));
    return r;
}
GW_DEVICE u32 shift_right(u32 x, u32 count) {
    u32 r;
    asm("shr.u32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(count));
    return r;
}
GW_DEVICE i32 shift_right(i32 x, u32 count) {
    i32 r;
    asm("shr.s32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(count));
    return r;
}
GW_DEVICE u64 shift_right(u64 x, u32 count) {
    u64 r;
    asm("shr.u64 %0, %1, %2;" : "=l"(r) : "l"(x), "r"(count));
    return r;
}
GW_DEVICE u32 reverse_bits(u32 x) { return __brev(x); }
GW_DEVICE u32 count_ones(u32 x) { return __popc(x); }
GW_DEVICE u32 leading_zeros(u32 x) { return __clz(x); }
#else
GW_DEVICE u64 multiply_high(u64 a, u64 b) { return (u64)(((unsigned __int128)a * b) >> 64); }
GW_DEVICE u32 permute_bytes(u32 a, u32 b, u32 selector) {
    const u64 pair = ((u64)b << 32) | a;
    u32 r = 0;
    for (u32 i = 0; i < 4; ++i) {
        const u32 nibble = selector >> (4 * i);
        u32 byte = (u32)(pair >> (8 * (nibble & 7))) & 0xFF;
        if (nibble & 8) byte = byte & 0x80 ? 0xFF : 0;
        r |= byte << (8 * i);
    }
    return r;
}
template <u32 TABLE>
GW_DEVICE u32 logic3(u32 a, u32 b, u32 c) {
    u32 r = 0;
    for (u32 i = 0; i < 8; ++i) {
        if (TABLE >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return r;
}
GW_DEVICE u32 funnel_left(u32 low, u32 high, u32 shift) {
    return (u32)(((((u64)high << 32) | low) << (shift & 31)) >> 32);
}
GW_DEVICE u32 funnel_right(u32 low, u32 high, u32 shift) { return (u32)((((u64)high << 32) | low) >> (shift & 31)); }
GW_DEVICE u32 shift_left(u32 x, u32 count) { return count < 32 ? x << count : 0; }
GW_DEVICE u64 shift_left(u64 x, u32 count) { return count < 64 ? x << count : 0; }
GW_DEVICE u32 shift_right(u32 x, u32 count) { return count < 32 ? x >> count : 0; }
GW_DEVICE i32 shift_right(i32 x, u32 count) { return x >> (count < 32 ? count : 31); }
GW_DEVICE u64 shift_right(u64 x, u32 count) { return count < 64 ? x >> count : 0; }
GW_DEVICE u32 reverse_bits(u32 x) {
    u32 r = 0;
    for (u32 i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
    return r;
}
GW_DEVICE u32 count_ones(u32 x) { return (u32)__builtin_popcount(x); }
GW_DEVICE u32 leading_zeros(u32 x) { return x ? (u32)__builtin_clz(x) : 32; }
#endif

}  // namespace gw
