#pragma once
// `cuda_fp16.h` and `cuda_bf16.h` on the emulated device: the types, conversions and arithmetic that kernels use most.
// Every operation is rounded once: sums and products of two such numbers are exact enough in f32, fused ones in f64.

#include "gw/cuda.cuh"

#ifndef GW_CUDA

// A format of 16 bits, with conversions from and to f32.
#define GW_SMALL(name, pair, from_f32, to_f32) \
    struct alignas(2) name { \
        unsigned short bits; \
        name() = default; \
        GW_INLINE name(float x) : bits(gw::from_f32(x)) {} \
        GW_INLINE name(double x) : name((float)x) {} \
        GW_INLINE name(int x) : name((float)x) {} \
        GW_INLINE name(unsigned x) : name((float)x) {} \
        GW_INLINE operator float() const { return gw::to_f32(bits); } \
        GW_INLINE name& operator+=(name other) { return *this = name((float)*this + (float)other); } \
        GW_INLINE name& operator-=(name other) { return *this = name((float)*this - (float)other); } \
        GW_INLINE name& operator*=(name other) { return *this = name((float)*this * (float)other); } \
        GW_INLINE name& operator/=(name other) { return *this = name((float)*this / (float)other); } \
    }; \
    GW_FUNCTION name operator+(name a, name b) { return a += b; } \
    GW_FUNCTION name operator-(name a, name b) { return a -= b; } \
    GW_FUNCTION name operator*(name a, name b) { return a *= b; } \
    GW_FUNCTION name operator/(name a, name b) { return a /= b; } \
    GW_FUNCTION name operator-(name a) { return name(-(float)a); } \
    GW_FUNCTION bool operator==(name a, name b) { return (float)a == (float)b; } \
    GW_FUNCTION bool operator!=(name a, name b) { return (float)a != (float)b; } \
    GW_FUNCTION bool operator<(name a, name b) { return (float)a < (float)b; } \
    GW_FUNCTION bool operator>(name a, name b) { return (float)a > (float)b; } \
    GW_FUNCTION bool operator<=(name a, name b) { return (float)a <= (float)b; } \
    GW_FUNCTION bool operator>=(name a, name b) { return (float)a >= (float)b; } \
    struct alignas(4) pair { \
        name x, y; \
    }; \
    GW_FUNCTION name __hadd(name a, name b) { return a + b; } \
    GW_FUNCTION name __hsub(name a, name b) { return a - b; } \
    GW_FUNCTION name __hmul(name a, name b) { return a * b; } \
    GW_FUNCTION name __hdiv(name a, name b) { return a / b; } \
    GW_FUNCTION name __hneg(name a) { return -a; } \
    GW_FUNCTION name __habs(name a) { return name(__builtin_fabsf(a)); } \
    GW_FUNCTION name __hmax(name a, name b) { return name(__builtin_fmaxf(a, b)); } \
    GW_FUNCTION name __hmin(name a, name b) { return name(__builtin_fminf(a, b)); } \
    GW_FUNCTION name __hfma(name a, name b, name c) { \
        return name((float)((double)(float)a * (double)(float)b + (double)(float)c)); \
    } \
    GW_FUNCTION bool __heq(name a, name b) { return a == b; } \
    GW_FUNCTION bool __hlt(name a, name b) { return a < b; } \
    GW_FUNCTION bool __hgt(name a, name b) { return a > b; } \
    GW_FUNCTION bool __hle(name a, name b) { return a <= b; } \
    GW_FUNCTION bool __hge(name a, name b) { return a >= b; } \
    GW_FUNCTION bool __hisnan(name a) { return (float)a != (float)a; } \
    GW_FUNCTION name hexp(name a) { return name(__builtin_expf(a)); } \
    GW_FUNCTION name hlog(name a) { return name(__builtin_logf(a)); } \
    GW_FUNCTION name hsqrt(name a) { return name(__builtin_sqrtf(a)); } \
    GW_FUNCTION name hrsqrt(name a) { return name(1.0f / __builtin_sqrtf(a)); } \
    GW_FUNCTION pair __hadd2(pair a, pair b) { return {a.x + b.x, a.y + b.y}; } \
    GW_FUNCTION pair __hsub2(pair a, pair b) { return {a.x - b.x, a.y - b.y}; } \
    GW_FUNCTION pair __hmul2(pair a, pair b) { return {a.x * b.x, a.y * b.y}; } \
    GW_FUNCTION pair __hfma2(pair a, pair b, pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
    GW_FUNCTION pair __hmax2(pair a, pair b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; } \
    GW_FUNCTION pair __hmin2(pair a, pair b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; } \
    GW_FUNCTION pair operator+(pair a, pair b) { return __hadd2(a, b); } \
    GW_FUNCTION pair operator-(pair a, pair b) { return __hsub2(a, b); } \
    GW_FUNCTION pair operator*(pair a, pair b) { return __hmul2(a, b); }

GW_SMALL(__half, __half2, f32_to_f16, f16_to_f32)
GW_SMALL(__nv_bfloat16, __nv_bfloat162, f32_to_bf16, bf16_to_f32)
#undef GW_SMALL
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

GW_FUNCTION __half __float2half(float x) { return __half(x); }
GW_FUNCTION __half __float2half_rn(float x) { return __half(x); }
GW_FUNCTION float __half2float(__half x) { return x; }
GW_FUNCTION __half __int2half_rn(int x) { return __half(x); }
GW_FUNCTION int __half2int_rn(__half x) { return __float2int_rn(x); }
GW_FUNCTION int __half2int_rz(__half x) { return __float2int_rz(x); }
GW_FUNCTION short __half_as_short(__half x) { return (short)x.bits; }
GW_FUNCTION __half __short_as_half(short x) { return gw::bits<__half>((unsigned short)x); }
GW_FUNCTION __half2 __lowhigh2highlow(__half2 x) { return {x.y, x.x}; }
GW_FUNCTION __half2 __low2half2(__half2 x) { return {x.x, x.x}; }
GW_FUNCTION __half2 __high2half2(__half2 x) { return {x.y, x.y}; }
GW_FUNCTION __half __ushort_as_half(unsigned short x) { return gw::bits<__half>(x); }
GW_FUNCTION unsigned short __half_as_ushort(__half x) { return x.bits; }
GW_FUNCTION __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
GW_FUNCTION __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
GW_FUNCTION __half2 __float22half2_rn(float2 x) { return {__half(x.x), __half(x.y)}; }
GW_FUNCTION float2 __half22float2(__half2 x) { return {x.x, x.y}; }
GW_FUNCTION __half2 __half2half2(__half x) { return {x, x}; }
GW_FUNCTION __half2 __halves2half2(__half x, __half y) { return {x, y}; }
GW_FUNCTION __half2 make_half2(__half x, __half y) { return {x, y}; }
GW_FUNCTION __half __low2half(__half2 x) { return x.x; }
GW_FUNCTION __half __high2half(__half2 x) { return x.y; }
GW_FUNCTION float __low2float(__half2 x) { return x.x; }
GW_FUNCTION float __high2float(__half2 x) { return x.y; }

GW_FUNCTION __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
GW_FUNCTION __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
GW_FUNCTION float __bfloat162float(__nv_bfloat16 x) { return x; }
GW_FUNCTION __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
GW_FUNCTION __nv_bfloat162 __float22bfloat162_rn(float2 x) { return {__nv_bfloat16(x.x), __nv_bfloat16(x.y)}; }
GW_FUNCTION float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }
GW_FUNCTION __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
GW_FUNCTION __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
GW_FUNCTION __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }
GW_FUNCTION __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
GW_FUNCTION __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
GW_FUNCTION __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
GW_FUNCTION __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return gw::bits<__nv_bfloat16>(x); }
GW_FUNCTION unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }

GW_FUNCTION __half2 atomicAdd(__half2* p, __half2 v) {
    return gw::bits<__half2>(gw::atomic_add_f16_pair((u32*)p, gw::bits<u32>(v)));
}
GW_FUNCTION __nv_bfloat162 atomicAdd(__nv_bfloat162* p, __nv_bfloat162 v) {
    return gw::bits<__nv_bfloat162>(gw::atomic_add_bf16_pair((u32*)p, gw::bits<u32>(v)));
}

#endif  // GW_CUDA
