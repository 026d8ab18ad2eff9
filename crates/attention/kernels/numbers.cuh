#pragma once
// Numbers of inputs and outputs: the type that has their bits, and the way from f32 and back.

#include "gw/gw.cuh"
#include "shared.cuh"

template <Number N> struct BitsOf;
template <> struct BitsOf<Number::F32> { typedef f32 type; };
template <> struct BitsOf<Number::F16> { typedef u16 type; };
template <> struct BitsOf<Number::Bf16> { typedef u16 type; };
template <> struct BitsOf<Number::E4m3> { typedef u8 type; };
template <Number N> using Bits = typename BitsOf<N>::type;

// The number whose bits are the low ones of `word`.
template <Number N>
GW_DEVICE f32 widen(u32 word) {
    if constexpr (N == Number::F32) return gw::bits<f32>(word);
    else if constexpr (N == Number::F16) return gw::f16_to_f32((u16)word);
    else if constexpr (N == Number::Bf16) return gw::bf16_to_f32((u16)word);
    else {
        static_assert(N == Number::E4m3, "a number of another format");
        return gw::f16_to_f32((u16)gw::e4m3x2_to_f16x2((u16)(word & 0xFF)));
    }
}

// The nearest number of the format.
template <Number N>
GW_DEVICE void store(Bits<N>* to, f32 value) {
    if constexpr (N == Number::F32) *to = value;
    else if constexpr (N == Number::F16) *to = gw::f32_to_f16(value);
    else {
        static_assert(N == Number::Bf16, "an output of another format");
        *to = gw::f32_to_bf16(value);
    }
}

// Two neighbours; those of 16 bits in one store.
template <Number N>
GW_DEVICE void store_pair(Bits<N>* to, f32 left, f32 right) {
    if constexpr (N == Number::F32) {
        to[0] = left;
        to[1] = right;
    } else if constexpr (N == Number::F16) {
        *reinterpret_cast<u32*>(to) = gw::f32_to_f16x2(left, right);
    } else {
        static_assert(N == Number::Bf16, "an output of another format");
        *reinterpret_cast<u32*>(to) = gw::f32_to_bf16x2(left, right);
    }
}
