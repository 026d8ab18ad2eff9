#pragma once
// Names for the scalar types, and what marks a device function or a kernel.

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;

// A condition that mostly holds: the code for it comes first.
#define GW_LIKELY(condition) __builtin_expect(!!(condition), 1)

#ifdef GW_CUDA
#define GW_DEVICE __device__ __forceinline__
#define GW_UNROLL _Pragma("unroll")
#define GW_PRAGMA(text) _Pragma(#text)
#define GW_UNROLL_BY(count) GW_PRAGMA(unroll count)
#define GW_RESTRICT __restrict__
// A kernel of any block size, and one that promises at most `threads` a block and wants `blocks` resident.
#define GW_KERNEL(name) extern "C" __global__ void name
#define GW_KERNEL_BOUNDED(name, threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name
#else
#define GW_DEVICE inline __attribute__((always_inline))
#define GW_UNROLL
#define GW_UNROLL_BY(count)
#define GW_RESTRICT
#define GW_KERNEL(name) extern "C" void name
#define GW_KERNEL_BOUNDED(name, threads, blocks) \
    extern "C" const u32 gw_bounds_##name[2] = {threads, blocks}; \
    extern "C" void name
#endif

// 16 bytes that travel in one access.
struct alignas(16) u32x4 {
    u32 x, y, z, w;
};
struct alignas(16) f32x4 {
    f32 x, y, z, w;
};
struct alignas(8) u32x2 {
    u32 x, y;
};
struct alignas(16) u64x2 {
    u64 x, y;
};

namespace gw {

// The bits of a value as another type of the same size.
template <class To, class From>
GW_DEVICE To bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "bits() keeps the size");
    union Both {
        From from;
        To to;
        GW_DEVICE Both() {}
    } both;
    both.from = value;
    return both.to;
}

// Tags of the number formats that matrix instructions take.
struct F16 {};
struct BF16 {};
struct E4M3 {};
struct E5M2 {};
struct S8 {};

}  // namespace gw
