#pragma once
// The mathematical functions of CUDA C++ on the emulated device. Approximations of the hardware are rounded correctly, or as the
// machine's C library does.

#include "gw/gw.cuh"

#ifndef GW_CUDA

#define GW_FUNCTION static inline __attribute__((always_inline, unused))
#define GW_INLINE inline __attribute__((always_inline))

// `name(double)`, `namef(float)` and what overloads of `name` make of other numbers.
#define GW_OF_INTEGERS(name, type) \
    GW_FUNCTION double name(type x) { return __builtin_##name((double)x); }
#define GW_MATH_1(name) \
    GW_FUNCTION float name##f(float x) { return __builtin_##name##f(x); } \
    GW_FUNCTION float name(float x) { return __builtin_##name##f(x); } \
    GW_FUNCTION double name(double x) { return __builtin_##name(x); } \
    GW_OF_INTEGERS(name, int) \
    GW_OF_INTEGERS(name, unsigned) \
    GW_OF_INTEGERS(name, long) \
    GW_OF_INTEGERS(name, unsigned long) \
    GW_OF_INTEGERS(name, long long) \
    GW_OF_INTEGERS(name, unsigned long long)
GW_MATH_1(sqrt)
GW_MATH_1(cbrt)
GW_MATH_1(exp)
GW_MATH_1(exp2)
GW_MATH_1(expm1)
GW_MATH_1(log)
GW_MATH_1(log2)
GW_MATH_1(log10)
GW_MATH_1(log1p)
GW_MATH_1(fabs)
GW_MATH_1(floor)
GW_MATH_1(ceil)
GW_MATH_1(trunc)
GW_MATH_1(round)
GW_MATH_1(rint)
GW_MATH_1(nearbyint)
GW_MATH_1(sin)
GW_MATH_1(cos)
GW_MATH_1(tan)
GW_MATH_1(asin)
GW_MATH_1(acos)
GW_MATH_1(atan)
GW_MATH_1(sinh)
GW_MATH_1(cosh)
GW_MATH_1(tanh)
GW_MATH_1(asinh)
GW_MATH_1(acosh)
GW_MATH_1(atanh)
GW_MATH_1(erf)
GW_MATH_1(erfc)
GW_MATH_1(lgamma)
GW_MATH_1(tgamma)
#undef GW_MATH_1
#undef GW_OF_INTEGERS

#define GW_MATH_2(name) \
    GW_FUNCTION float name##f(float x, float y) { return __builtin_##name##f(x, y); } \
    GW_FUNCTION float name(float x, float y) { return __builtin_##name##f(x, y); } \
    GW_FUNCTION double name(double x, double y) { return __builtin_##name(x, y); } \
    GW_FUNCTION double name(float x, double y) { return __builtin_##name((double)x, y); } \
    GW_FUNCTION double name(double x, float y) { return __builtin_##name(x, (double)y); } \
    GW_FUNCTION float name(float x, int y) { return __builtin_##name##f(x, (float)y); } \
    GW_FUNCTION double name(double x, int y) { return __builtin_##name(x, (double)y); }
GW_MATH_2(pow)
GW_MATH_2(fmod)
GW_MATH_2(fmax)
GW_MATH_2(fmin)
GW_MATH_2(fdim)
GW_MATH_2(atan2)
GW_MATH_2(hypot)
GW_MATH_2(copysign)
GW_MATH_2(remainder)
#undef GW_MATH_2

GW_FUNCTION float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
GW_FUNCTION float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
GW_FUNCTION double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
GW_FUNCTION float ldexpf(float x, int e) { return __builtin_ldexpf(x, e); }
GW_FUNCTION float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
GW_FUNCTION double ldexp(double x, int e) { return __builtin_ldexp(x, e); }
GW_FUNCTION float frexpf(float x, int* e) { return __builtin_frexpf(x, e); }
GW_FUNCTION double frexp(double x, int* e) { return __builtin_frexp(x, e); }
GW_FUNCTION float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
GW_FUNCTION float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
GW_FUNCTION double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
GW_FUNCTION float exp10f(float x) { return __builtin_powf(10.0f, x); }
GW_FUNCTION double exp10(double x) { return __builtin_pow(10.0, x); }
GW_FUNCTION float sinpif(float x) { return (float)__builtin_sin(3.141592653589793 * (double)x); }
GW_FUNCTION float cospif(float x) { return (float)__builtin_cos(3.141592653589793 * (double)x); }
GW_FUNCTION float normcdff(float x) { return (float)(0.5 * __builtin_erfc(-0.7071067811865476 * (double)x)); }
GW_FUNCTION double normcdf(double x) { return 0.5 * __builtin_erfc(-0.7071067811865476 * x); }
GW_FUNCTION void sincosf(float x, float* s, float* c) { *s = __builtin_sinf(x), *c = __builtin_cosf(x); }
GW_FUNCTION void sincos(double x, double* s, double* c) { *s = __builtin_sin(x), *c = __builtin_cos(x); }
GW_FUNCTION float norm3df(float x, float y, float z) { return __builtin_sqrtf(x * x + y * y + z * z); }
GW_FUNCTION float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
GW_FUNCTION long lrintf(float x) { return __builtin_lrintf(x); }
GW_FUNCTION long lroundf(float x) { return __builtin_lroundf(x); }
GW_FUNCTION long long llrint(double x) { return __builtin_llrint(x); }

#define GW_CLASS(name) \
    GW_FUNCTION bool name(float x) { return __builtin_##name(x); } \
    GW_FUNCTION bool name(double x) { return __builtin_##name(x); }
GW_CLASS(isnan)
GW_CLASS(isinf)
GW_CLASS(isfinite)
GW_CLASS(signbit)
#undef GW_CLASS
GW_FUNCTION int __isnanf(float x) { return __builtin_isnan(x); }
GW_FUNCTION int __isinff(float x) { return __builtin_isinf(x); }
GW_FUNCTION int __finitef(float x) { return __builtin_isfinite(x); }

extern "C" int abs(int) noexcept;
extern "C" long labs(long) noexcept;
extern "C" long long llabs(long long) noexcept;
// A template, because the C++ library has functions of its own beside it.
template <class T>
GW_FUNCTION T abs(T x) {
    if constexpr (__is_same(T, float)) return __builtin_fabsf(x);
    else if constexpr (__is_same(T, double)) return __builtin_fabs(x);
    else return x < T() ? -x : x;
}

// As CUDA overloads them; the templates are for whatever else can be compared.
#define GW_EXTREMES(a, b, result) \
    GW_FUNCTION constexpr result min(a x, b y) { return (result)x < (result)y ? (result)x : (result)y; } \
    GW_FUNCTION constexpr result max(a x, b y) { return (result)x > (result)y ? (result)x : (result)y; }
GW_EXTREMES(int, int, int)
GW_EXTREMES(unsigned, unsigned, unsigned)
GW_EXTREMES(int, unsigned, unsigned)
GW_EXTREMES(unsigned, int, unsigned)
GW_EXTREMES(long, long, long)
GW_EXTREMES(unsigned long, unsigned long, unsigned long)
GW_EXTREMES(long, unsigned long, unsigned long)
GW_EXTREMES(unsigned long, long, unsigned long)
GW_EXTREMES(long long, long long, long long)
GW_EXTREMES(unsigned long long, unsigned long long, unsigned long long)
GW_EXTREMES(long long, unsigned long long, unsigned long long)
GW_EXTREMES(unsigned long long, long long, unsigned long long)
#undef GW_EXTREMES
// A number wins over a NaN.
#define GW_EXTREMES(a, b, result, suffix) \
    GW_FUNCTION result min(a x, b y) { return __builtin_fmin##suffix((result)x, (result)y); } \
    GW_FUNCTION result max(a x, b y) { return __builtin_fmax##suffix((result)x, (result)y); }
GW_EXTREMES(float, float, float, f)
GW_EXTREMES(double, double, double, )
GW_EXTREMES(float, double, double, )
GW_EXTREMES(double, float, double, )
#undef GW_EXTREMES
template <class T, class U>
GW_FUNCTION constexpr auto min(T a, U b) -> decltype(a + b) { return a < b ? a : b; }
template <class T, class U>
GW_FUNCTION constexpr auto max(T a, U b) -> decltype(a + b) { return a > b ? a : b; }

// Bits as another type.
GW_FUNCTION unsigned __float_as_uint(float x) { return gw::bits<unsigned>(x); }
GW_FUNCTION int __float_as_int(float x) { return gw::bits<int>(x); }
GW_FUNCTION float __uint_as_float(unsigned x) { return gw::bits<float>(x); }
GW_FUNCTION float __int_as_float(int x) { return gw::bits<float>(x); }
GW_FUNCTION long long __double_as_longlong(double x) { return gw::bits<long long>(x); }
GW_FUNCTION double __longlong_as_double(long long x) { return gw::bits<double>(x); }
GW_FUNCTION int __double2hiint(double x) { return (int)(gw::bits<u64>(x) >> 32); }
GW_FUNCTION int __double2loint(double x) { return (int)gw::bits<u64>(x); }
GW_FUNCTION double __hiloint2double(int high, int low) { return gw::bits<double>((u64)(unsigned)high << 32 | (unsigned)low); }

// Arithmetic that is rounded once, and is not fused with what is around it.
#define GW_ROUNDED(name, type, expression) \
    GW_FUNCTION type name(type x, type y) { return expression; }
GW_ROUNDED(__fadd_rn, float, x + y)
GW_ROUNDED(__fsub_rn, float, x - y)
GW_ROUNDED(__fmul_rn, float, x * y)
GW_ROUNDED(__fdiv_rn, float, x / y)
GW_ROUNDED(__fdividef, float, x / y)
GW_ROUNDED(__dadd_rn, double, x + y)
GW_ROUNDED(__dsub_rn, double, x - y)
GW_ROUNDED(__dmul_rn, double, x * y)
GW_ROUNDED(__ddiv_rn, double, x / y)
#undef GW_ROUNDED
GW_FUNCTION float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
GW_FUNCTION double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
GW_FUNCTION float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
GW_FUNCTION double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
GW_FUNCTION float __frcp_rn(float x) { return 1.0f / x; }
GW_FUNCTION float __frsqrt_rn(float x) { return (float)(1.0 / __builtin_sqrt((double)x)); }
GW_FUNCTION float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
GW_FUNCTION float __expf(float x) { return __builtin_expf(x); }
GW_FUNCTION float __exp10f(float x) { return __builtin_powf(10.0f, x); }
GW_FUNCTION float __logf(float x) { return __builtin_logf(x); }
GW_FUNCTION float __log2f(float x) { return __builtin_log2f(x); }
GW_FUNCTION float __log10f(float x) { return __builtin_log10f(x); }
GW_FUNCTION float __sinf(float x) { return __builtin_sinf(x); }
GW_FUNCTION float __cosf(float x) { return __builtin_cosf(x); }
GW_FUNCTION float __tanf(float x) { return __builtin_tanf(x); }
GW_FUNCTION void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
GW_FUNCTION float __powf(float x, float y) { return __builtin_powf(x, y); }

// Conversions: to the nearest of the range, and 0 for a NaN.
#define GW_TO_INTEGERS(mode, rounding) \
    GW_FUNCTION int __float2int_##mode(float x) { return gw::f32_to_i32(__builtin_##rounding##f(x)); } \
    GW_FUNCTION unsigned __float2uint_##mode(float x) { return gw::f32_to_u32(__builtin_##rounding##f(x)); } \
    GW_FUNCTION int __double2int_##mode(double x) { return gw::cuda::to_i32(__builtin_##rounding(x)); } \
    GW_FUNCTION long long __float2ll_##mode(float x) { return gw::cuda::to_i64((double)__builtin_##rounding##f(x)); } \
    GW_FUNCTION long long __double2ll_##mode(double x) { return gw::cuda::to_i64(__builtin_##rounding(x)); }
namespace gw {
namespace cuda {
GW_FUNCTION int to_i32(double x) {
    return x != x ? 0 : x >= 2147483647.0 ? 0x7FFFFFFF : x <= -2147483648.0 ? (int)0x80000000 : (int)x;
}
GW_FUNCTION long long to_i64(double x) {
    const long long least = (long long)(1ull << 63);
    if (x != x) return least;
    return x >= 9223372036854775808.0 ? ~least : x < -9223372036854775808.0 ? least : (long long)x;
}
}  // namespace cuda
}  // namespace gw
GW_TO_INTEGERS(rn, rint)
GW_TO_INTEGERS(rz, trunc)
GW_TO_INTEGERS(rd, floor)
GW_TO_INTEGERS(ru, ceil)
#undef GW_TO_INTEGERS
GW_FUNCTION float __int2float_rn(int x) { return (float)x; }
GW_FUNCTION float __uint2float_rn(unsigned x) { return (float)x; }
GW_FUNCTION float __ll2float_rn(long long x) { return (float)x; }
GW_FUNCTION float __ull2float_rn(unsigned long long x) { return (float)x; }
GW_FUNCTION float __double2float_rn(double x) { return (float)x; }
GW_FUNCTION double __int2double_rn(int x) { return x; }
GW_FUNCTION double __uint2double_rn(unsigned x) { return x; }
GW_FUNCTION double __ll2double_rn(long long x) { return (double)x; }

// Integers.
GW_FUNCTION int __popc(unsigned x) { return __builtin_popcount(x); }
GW_FUNCTION int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
GW_FUNCTION int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
GW_FUNCTION int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
GW_FUNCTION int __ffs(int x) { return __builtin_ffs(x); }
GW_FUNCTION int __ffsll(long long x) { return __builtin_ffsll(x); }
GW_FUNCTION unsigned __brev(unsigned x) { return gw::reverse_bits(x); }
GW_FUNCTION unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)gw::reverse_bits((unsigned)x) << 32 | gw::reverse_bits((unsigned)(x >> 32));
}
GW_FUNCTION unsigned __byte_perm(unsigned x, unsigned y, unsigned s) { return gw::permute_bytes(x, y, s); }
GW_FUNCTION unsigned __funnelshift_l(unsigned low, unsigned high, unsigned s) { return gw::funnel_left(low, high, s); }
GW_FUNCTION unsigned __funnelshift_r(unsigned low, unsigned high, unsigned s) { return gw::funnel_right(low, high, s); }
GW_FUNCTION int __mulhi(int x, int y) { return (int)(((long long)x * y) >> 32); }
GW_FUNCTION unsigned __umulhi(unsigned x, unsigned y) { return gw::multiply_high(x, y); }
GW_FUNCTION unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return gw::multiply_high((u64)x, (u64)y);
}
GW_FUNCTION long long __mul64hi(long long x, long long y) { return (long long)(((__int128)x * y) >> 64); }
GW_FUNCTION int __mul24(int x, int y) {
    return (int)((long long)((int)((unsigned)x << 8) >> 8) * ((int)((unsigned)y << 8) >> 8));
}
GW_FUNCTION unsigned __umul24(unsigned x, unsigned y) { return (x & 0xFFFFFF) * (y & 0xFFFFFF); }
GW_FUNCTION unsigned __sad(int x, int y, unsigned z) { return z + (x > y ? (unsigned)x - (unsigned)y : (unsigned)y - (unsigned)x); }
GW_FUNCTION unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x > y ? x - y : y - x); }
// The sum of four products of bytes, and of c.
GW_FUNCTION int __dp4a(int a, int b, int c) {
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 32; i += 8) sum += (unsigned)((int)(signed char)((unsigned)a >> i) * (signed char)((unsigned)b >> i));
    return (int)sum;
}
GW_FUNCTION unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 0xFF) * (b >> i & 0xFF);
    return c;
}

#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931e+0
#define CUDART_LOG2E_F 1.442695041f
#define CUDART_LN2_F 0.693147181f
#define CUDART_SQRT_TWO_F 1.414213562f
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define HUGE_VAL __builtin_inf()

#endif  // GW_CUDA
